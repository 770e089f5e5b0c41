"""Fixtures of the engine's tests: models made once, the dev engine as a process, the real SGLang beside it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from tests.engine.models import add_head, random_head, random_model, talker_model, without_head
from tests.engine.sglang_env import SglangServer

FLAGS = (
    *("--enable-metrics", "--enable-cache-report", "--extra-metric-labels", '{"variant":"canary"}'),
    *("--tool-call-parser", "qwen", "--reasoning-parser", "qwen3"),
)
"""Flags that both engines are started with."""


@dataclass(frozen=True)
class Served:
    """A running engine."""

    kind: str
    url: str
    model: Path

    def post(self, path: str, body: Any) -> httpx.Response:
        """One JSON request."""
        return httpx.post(self.url + path, json=body, timeout=120)

    def get(self, path: str) -> httpx.Response:
        """One request."""
        return httpx.get(self.url + path, timeout=120)


@contextmanager
def dev_engine(model: Path, flags: Sequence[str] = ()) -> Iterator[str]:
    """The dev engine in a process of its own; its address."""
    command = [sys.executable, "-m", "hat_serving.engine", "--model-path", str(model), "--port", "0", *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise RuntimeError(line + process.stdout.read())
        yield found.group()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model without an MTP head."""
    return random_model(tmp_path_factory.mktemp("engine") / "random")


@pytest.fixture(scope="session")
def random_mtp_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model with a random MTP head."""
    folder = random_model(tmp_path_factory.mktemp("engine") / "random-mtp")
    add_head(folder, random_head(folder / "config.json"))
    return folder


@pytest.fixture(scope="session")
def talker_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The talker with its MTP head."""
    return talker_model(tmp_path_factory.mktemp("engine") / "talker")


@pytest.fixture(scope="session")
def plain_talker_folder(talker_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The talker without MTP head: what SGLang serves, whose dense Qwen3 knows none."""
    return without_head(talker_folder, tmp_path_factory.mktemp("engine") / "plain-talker")


@pytest.fixture(scope="session")
def dev(plain_talker_folder: Path) -> Iterator[Served]:
    """The dev engine on the talker."""
    flags = (*FLAGS, "--dtype", "float32", "--max-running-requests", "8")
    with dev_engine(plain_talker_folder, flags) as url:
        yield Served("dev", url, plain_talker_folder)


@pytest.fixture(scope="session")
def sglang(plain_talker_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The real SGLang on the talker; its environment is made when it is missing."""
    log = tmp_path_factory.mktemp("sglang") / "server.log"
    with SglangServer(plain_talker_folder, log, (*FLAGS, "--sleep-on-idle")) as server:
        yield Served("sglang", server.url, plain_talker_folder)


@pytest.fixture(params=["dev", pytest.param("sglang", marks=pytest.mark.sglang)])
def served(request: pytest.FixtureRequest) -> Served:
    """Each engine in turn."""
    found: Served = request.getfixturevalue(request.param)
    return found
