"""Serve registry and console: `python -m hat_console --data DIR --port 8700`."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

import uvicorn

from hat_console.app import ConsoleSettings, create_app
from hat_registry.registry import Registry


def session_key(path: Path) -> bytes:
    """The key in `path`; made at the first start, readable by its owner only."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()


def main() -> None:
    """Parse the arguments and serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m hat_console", description="Registry and console.")
    parser.add_argument("--data", type=Path, required=True, help="folder for database, blobs and keys")
    parser.add_argument("--database", default="", help="SQLAlchemy URL; by default a file in the data folder")
    parser.add_argument("--blobs", default="", help="folder or s3://bucket/prefix; by default in the data folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8700)
    parser.add_argument("--open", action="store_true", help="let everybody in while no account exists (loopback only)")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--behind-tls", action="store_true", help="mark cookies as HTTPS only")
    parser.add_argument("--runs", type=Path, default=None, help="runs directory whose evaluations are shown")
    given = parser.parse_args()
    if given.open and given.host not in {"127.0.0.1", "::1", "localhost"}:
        parser.error("--open is for loopback; make an account instead")
    given.data.mkdir(parents=True, exist_ok=True)
    url = given.database or f"sqlite:///{given.data / 'registry.db'}"
    registry = Registry.open(url, given.blobs or given.data / "blobs")
    settings = ConsoleSettings(
        session_key=session_key(given.data / "session.key"),
        open_access=given.open,
        read_only=given.read_only,
        secure_cookies=given.behind_tls,
        runs=given.runs,
    )
    uvicorn.run(create_app(registry, settings), host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
