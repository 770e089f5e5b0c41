"""Serve the gateway: `python -m hat_serving.gateway --data DIR --engine URL --harness NAME=FOLDER --tools URL`."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
import yaml
from starlette.applications import Starlette

from hat_registry.client import Client
from hat_registry.store.database import Database
from hat_serving.gateway.app import HttpSettings, create_app
from hat_serving.gateway.conversations import Conversations
from hat_serving.gateway.host import Host, HostLimits
from hat_serving.gateway.live import FolderSource, RegistrySource, Source
from hat_serving.gateway.toolbox import Bindings, Toolbox
from hat_serving.gateway.traces import TraceWriter
from hat_serving.gateway.upstream import Engine, Engines


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hat_serving.gateway", description="The agent gateway.")
    parser.add_argument("--data", type=Path, required=True, help="folder for conversations, traces and keys")
    parser.add_argument("--engine", required=True, help="address of an engine with OpenAI routes, without /v1")
    parser.add_argument("--engine-model", default="default", help="model name that the engine expects")
    parser.add_argument(
        "--harness", action="append", default=[], metavar="NAME=FOLDER", help="serve a folder; may be repeated"
    )
    parser.add_argument("--registry", default="", help="address of a registry; harness names follow its pointers")
    parser.add_argument("--pointer", default="production")
    parser.add_argument("--tools", default="", help="address of an MCP server for all tools")
    parser.add_argument("--bindings", type=Path, help="bindings.yaml, instead of --tools")
    parser.add_argument("--database", default="", help="SQLAlchemy URL; by default a file in the data folder")
    parser.add_argument(
        "--token-hashes", type=Path, help="file with the SHA-256 (hex) of each bearer token, one a line"
    )
    parser.add_argument("--open-turns", type=int, default=256)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8710)
    given = parser.parse_args()
    if bool(given.harness) == bool(given.registry):
        parser.error("give either --harness NAME=FOLDER or --registry URL")
    if any("=" not in one for one in given.harness):
        parser.error("--harness is NAME=FOLDER")
    return given


def build(given: argparse.Namespace) -> Starlette:
    """The application for the arguments."""
    given.data.mkdir(parents=True, exist_ok=True)
    source: Source
    if given.registry:
        client = Client(given.registry, given.data / "cache", token=os.environ.get("HATSTACK_TOKEN", ""))
        source = RegistrySource(client, given.pointer)
    else:
        pairs = (one.partition("=") for one in given.harness)
        source = FolderSource({name: Path(folder) for name, _, folder in pairs})
    if given.bindings:
        bindings = Bindings.parse(yaml.safe_load(given.bindings.read_text(encoding="utf-8")), str(given.bindings))
    elif given.tools:
        bindings = Bindings.parse({"servers": {"tools": {"mcp": given.tools}}, "tools": {"*": "tools"}})
    else:
        bindings = Bindings()
    engines = Engines({"": Engine(url=given.engine, model=given.engine_model)})
    toolbox = Toolbox(bindings)
    traces = TraceWriter(given.data / "traces")
    database = Database(given.database or f"sqlite:///{given.data / 'gateway.db'}")
    host = Host(
        source,
        engines,
        toolbox,
        conversations=Conversations(database),
        traces=traces,
        limits=HostLimits(open_turns=given.open_turns),
    )

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        async with engines, toolbox:
            yield
        traces.close()
        database.close()

    tokens = frozenset(given.token_hashes.read_text(encoding="utf-8").split()) if given.token_hashes else frozenset()
    return create_app(
        host, HttpSettings(pseudonym_key=pseudonym_key(given.data / "pseudonym.key"), tokens=tokens), life
    )


def pseudonym_key(path: Path) -> bytes:
    """HATSTACK_PSEUDONYM_KEY, else the key in `path`, made at the first start and readable by its owner only."""
    found = os.environ.get("HATSTACK_PSEUDONYM_KEY", "")
    if found:
        return found.encode()
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()


def main() -> None:
    """Serve until the process is ended."""
    given = arguments()
    uvicorn.run(build(given), host=given.host, port=given.port, log_level="warning", timeout_graceful_shutdown=25)


if __name__ == "__main__":
    main()
