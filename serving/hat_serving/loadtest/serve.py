"""Dev engines for a replay that brings model folders instead of addresses: started, waited for, ended.

Always holds: the process is gone when the block ends. Not here: the engine, SGLang on GPUs (give its address).
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hat_serving.engine.folder import read_folder
from hat_serving.errors import UpstreamError


def has_head(folder: Path) -> bool:
    """Whether the model has an MTP head."""
    return read_folder(folder).has_mtp


@contextmanager
def dev_engine(folder: Path, *, mtp: bool, threads: int = 1) -> Iterator[str]:
    """The dev engine on a folder, with or without speculation; its address."""
    command = [
        sys.executable,
        "-m",
        "hat_serving.engine",
        "--model-path",
        str(folder),
        "--port",
        "0",
        "--enable-metrics",
    ]
    command += [
        "--dtype",
        "float32",
        "--threads",
        str(threads),
        "--tool-call-parser",
        "qwen",
        "--reasoning-parser",
        "qwen3",
    ]
    if mtp:
        command += ["--speculative-algorithm", "NEXTN"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise UpstreamError(f"the engine did not start: {line.strip()[:300]}", place=str(folder))
        yield found.group()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
