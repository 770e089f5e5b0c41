"""Every option of the server has a variable, and a secret stands in none but a variable or a file."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from hat_registry.errors import InvalidError
from hat_registry.settings import DATABASE, database_url, secret, take_defaults
from tests.registry.servers import fresh

SECRET = "postgresql://hat:very-secret@db.example/registry"
DOC = Path(__file__).resolve().parents[2] / "docs" / "registry.md"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--port", type=int, default=8700)
    made.add_argument("--read-only", action="store_true")
    made.add_argument("--pipeline", action="append", default=[])
    return made


def test_options_default_to_the_environment_and_the_command_line_wins() -> None:
    env = {"X_DATA": "d", "X_PORT": "9", "X_READ_ONLY": "true", "X_PIPELINE": "a,b", "X_HELP": "no"}
    given = take_defaults(parser(), "X_", env).parse_args(["--port", "10"])
    assert (given.data, given.port, given.read_only, given.pipeline) == (Path("d"), 10, True, ["a", "b"])
    assert take_defaults(parser(), "X_", {"X_READ_ONLY": "0"}).parse_args(["--data", "d"]).read_only is False
    with pytest.raises(InvalidError, match="X_READ_ONLY"):
        take_defaults(parser(), "X_", {"X_READ_ONLY": "maybe"})
    with pytest.raises(SystemExit):
        take_defaults(parser(), "X_", {"X_PORT": "many"}).parse_args(["--data", "d"])


def test_the_database_comes_from_a_variable_a_file_or_the_data_folder(tmp_path: Path) -> None:
    full = SECRET.replace("postgresql:", "postgresql+psycopg:")
    assert database_url("", tmp_path, {}) == f"sqlite:///{tmp_path}/registry.db"
    assert database_url("", tmp_path, {DATABASE: SECRET}) == full
    (tmp_path / "url").write_text(SECRET + "\n")
    assert database_url("", tmp_path, {f"{DATABASE}_FILE": str(tmp_path / "url")}) == full
    assert database_url("sqlite:///x.db", tmp_path, {DATABASE: SECRET}) == "sqlite:///x.db"
    with pytest.raises(InvalidError, match="cannot be read"):
        secret(DATABASE, {f"{DATABASE}_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize("given", [SECRET, "not a url with very-secret"])
def test_what_is_refused_never_repeats_the_secret(given: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as raised:
        database_url(given, tmp_path, {})
    assert "very-secret" not in str(raised.value)


def test_a_server_refuses_a_password_in_its_arguments_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hat_console", "--data", str(tmp_path), "--database", SECRET]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert DATABASE in done.stderr
    assert "very-secret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_starts_from_the_environment_alone(postgres: str, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        DATABASE: fresh(postgres, "from_environment"),
        "HATSTACK_CONSOLE_DATA": str(tmp_path / "data"),
        "HATSTACK_CONSOLE_PORT": str(port),
        "HATSTACK_CONSOLE_OPEN": "true",
    }
    process = subprocess.Popen([sys.executable, "-m", "hat_console"], env=env)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/harnesses", timeout=5)
                break
            except OSError:
                assert time.monotonic() < deadline
                assert process.poll() is None
                threading.Event().wait(0.2)
        assert answer.status == 200
        assert not (tmp_path / "data" / "registry.db").exists()
    finally:
        process.terminate()
        process.wait(30)


def test_the_page_names_every_variable() -> None:
    page = DOC.read_text(encoding="utf-8")
    for name in (
        DATABASE,
        f"{DATABASE}_FILE",
        "HATSTACK_MLFLOW_DATABASE_URL",
        "HATSTACK_CONSOLE_<OPTION>",
        "MLFLOW_TRACKING_URI",
    ):
        assert f"`{name}`" in page
