"""The real SGLang 0.5.23 in an environment of its own, and a server of it on the CPU.

`environment()` makes the environment when it is missing (about a minute, 9.5 GB, outside the repository); `python -m
tests.engine.sglang_env` does only that, and with `can` says why it could not. Not here: what is asked of the server (the tests).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import httpx

VERSION = "0.5.23"
SHIM = Path(__file__).resolve().parent / "shim"
START_S = 420
NEEDED = 11 * 2**30
LEAST_MEMORY = 8 * 2**30
BASE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hatstack"


def environment() -> Path:
    """The environment's python; made when it is missing. RuntimeError where it cannot be."""
    home, python = BASE / "sglang", BASE / "sglang" / "bin" / "python"
    stamp = home / f".hatstack-{VERSION}"
    if stamp.is_file() and python.exists():
        return python
    if python.exists() and _version(python) == VERSION:
        stamp.touch()
        return python
    fault = lacking()
    if fault:
        raise RuntimeError(fault)
    tool = _uv()
    print(f"making SGLang {VERSION}'s environment in {home} (about a minute, 9.5 GB) ...", file=sys.stderr, flush=True)
    subprocess.run([tool, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)], check=True)
    install = [tool, "pip", "install", "--compile-bytecode", "--python", str(python), f"sglang=={VERSION}"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    stamp.touch()
    return python


def lacking() -> str:
    """Why the environment cannot be made here; "" when it is there or can be."""
    if (BASE / "sglang" / f".hatstack-{VERSION}").is_file():
        return ""
    BASE.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(BASE).free < NEEDED:
        return f"SGLang's environment takes 9.5 GB and {BASE} has less than 11 free; set XDG_CACHE_HOME"
    if not _uv():
        return "uv is needed to make SGLang's environment: pip install uv"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory < LEAST_MEMORY:
        return f"SGLang takes 4 GB of memory beside the tests; this machine has {memory / 2**30:.0f} GiB"
    return ""


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv") or ""


def _version(python: Path) -> str:
    asked = "import importlib.metadata as m; print(m.version('sglang'))"
    return subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=False).stdout.strip()


def variables() -> dict[str, str]:
    """Environment variables under which SGLang runs without a GPU."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SGLANG"))}
    return {
        **kept,
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(SHIM),
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def run_script(script: str, stdin: str = "", timeout: int = 240) -> str:
    """Standard output of a script in SGLang's environment."""
    made = subprocess.run(
        [str(environment()), "-c", script],
        input=stdin,
        capture_output=True,
        text=True,
        env=variables(),
        timeout=timeout,
        check=False,
    )
    if made.returncode:
        raise RuntimeError(made.stderr[-3000:])
    return made.stdout


class SglangServer:
    """A real server on a model folder. Use as a context manager; its whole process group ends with it."""

    def __init__(self, model: Path, log: Path, flags: Sequence[str] = ()) -> None:
        self._log = log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            *(str(environment()), "-m", "sglang.launch_server", "--model-path", str(model), "--device", "cpu"),
            *("--attention-backend", "torch_native", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--dtype", "float32", "--mem-fraction-static", "0.05", "--max-total-tokens", "8192"),
            *("--max-running-requests", "8", "--skip-server-warmup", *flags),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> SglangServer:
        self._output = self._log.open("wb")
        self._process = subprocess.Popen(
            self._command, stdout=self._output, stderr=subprocess.STDOUT, env=variables(), start_new_session=True
        )
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"SGLang ended while starting:\n{self._log.read_text(errors='replace')[-3000:]}")
            try:
                if httpx.get(f"{self.url}/ready", timeout=5).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.5)
        self.close()
        raise RuntimeError(f"SGLang was not ready after {START_S} s:\n{self._log.read_text(errors='replace')[-3000:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the group at once: there is nothing of value in it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=30)
        if self._output is not None:
            self._output.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["can"]:
        sys.exit(lacking() or 0)
    print(environment())
