"""Runs benches: `python -m bench` all of them, `python -m bench NAME…` some, `python -m bench --list` says which there are.

A bench is a file of this folder that prints its result, JSON where it can, and exits 1 when it misses its own goal; each
runs in a process of its own, one after another. Prints one JSON line a bench on stdout and a table on stderr. Exits 1 when
any failed. Arguments after `--` go to the benches: `python -m bench harness_peers -- --rounds 3`.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def benches() -> dict[str, str]:
    """Name → first line of what it says of itself."""
    found = {}
    for path in sorted(HERE.glob("[a-z]*.py")):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = said.split("\n")[0]
    return found


def machine() -> dict[str, Any]:
    """What a number depends on."""
    cpu = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else ""
    load = round(os.getloadavg()[0], 1)
    return {
        "cpu": cpu or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "hatstack": version("hatstack"),
        "load": load,
    }


def parsed(text: str) -> Any:
    """The output as JSON: of the whole, else of every line that is JSON, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows or text.strip()


def run(name: str, arguments: list[str]) -> dict[str, Any]:
    """One bench."""
    began = time.monotonic()
    root = str(HERE.parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=env)
    said: dict[str, Any] = {"bench": name, "exit": done.returncode, "seconds": round(time.monotonic() - began, 1)}
    said["result"] = parsed(done.stdout)
    if done.returncode:
        said["error"] = done.stderr[-2000:]
    return said


def main(argv: list[str]) -> int:
    """Runs what is asked."""
    split = argv.index("--") if "--" in argv else len(argv)
    names, arguments = argv[:split], argv[split + 1 :]
    known = benches()
    if names == ["--list"]:
        print("\n".join(f"{name:20} {text}" for name, text in known.items()))
        return 0
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no bench {unknown[0]}; benches: {', '.join(known)}", file=sys.stderr)
        return 2
    on, rows = machine(), []
    for name in names or list(known):
        found = run(name, arguments)
        rows.append(found)
        print(json.dumps({**found, "machine": on}, ensure_ascii=False), flush=True)
    for found in rows:
        verdict = "ok" if found["exit"] == 0 else f"exit {found['exit']}"
        print(f"{found['bench']:20} {verdict:8} {found['seconds']:8.1f} s", file=sys.stderr)
    return int(any(found["exit"] for found in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
