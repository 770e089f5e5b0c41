"""Serve the gateway: `python -m hat_serving.gateway --data DIR --engine URL --harness NAME=FOLDER --tools URL`.

The admin API needs a token: hashes in `--admin-token-hashes`, else the one in `<data>/admin.token`, made at the first start.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import hashlib
import logging
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvicorn
import yaml
from starlette.applications import Starlette

from hat_harness.errors import PlatformError
from hat_registry.client import Client
from hat_registry.settings import secret_url
from hat_registry.store.database import Database
from hat_serving.experiment.events import Events
from hat_serving.gateway.admin import Admin
from hat_serving.gateway.app import HttpSettings, Sides, create_app, pseudonym
from hat_serving.gateway.control import Control
from hat_serving.gateway.conversations import Conversations
from hat_serving.gateway.experiments import Experiments
from hat_serving.gateway.host import Host, HostLimits
from hat_serving.gateway.kept import Kept
from hat_serving.gateway.live import FolderSource, RegistrySource, Source
from hat_serving.gateway.proxy import App, Proxy, fronted
from hat_serving.gateway.replays import Replays
from hat_serving.gateway.retention import Retention, keeping
from hat_serving.gateway.steered import SteeredSource
from hat_serving.gateway.telemetry import otlp
from hat_serving.gateway.toolbox import Bindings, Toolbox
from hat_serving.gateway.traces import TraceWriter
from hat_serving.gateway.trials import Trials
from hat_serving.gateway.upstream import Engine, Engines
from hat_serving.gateway.usage import UsageWriter

log = logging.getLogger("hatstack.gateway")
DATABASE = "HATSTACK_GATEWAY_DATABASE_URL"
"""Holds the database's URL, or `…_FILE` names a file that does: a command line is seen by every user of the machine."""
FOLLOW_S = 0.5
"""How often a replica looks for a new steering."""
TEND_S = 5.0
"""How often running experiments are looked at."""
GC_EVERY = 10_000
"""New objects between two collections of the youngest; Python's own 700 is a collection in every other turn."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hat_serving.gateway", description="The agent gateway.")
    parser.add_argument("--data", type=Path, required=True, help="folder for conversations, traces and keys")
    parser.add_argument(
        "--engine",
        required=True,
        action="append",
        metavar="[NAME=]URL",
        help="an engine with OpenAI routes, without /v1; the one without a name is the primary; may be repeated",
    )
    parser.add_argument("--engine-model", default="default", help="model name that the engine expects")
    parser.add_argument(
        "--harness", action="append", default=[], metavar="NAME=FOLDER", help="serve a folder; may be repeated"
    )
    parser.add_argument("--registry", default="", help="address of a registry; harness names follow its pointers")
    parser.add_argument("--pointer", default="production")
    parser.add_argument("--tools", default="", help="address of an MCP server for all tools")
    parser.add_argument("--bindings", type=Path, help="bindings.yaml, instead of --tools")
    parser.add_argument(
        "--database",
        default="",
        help=f"SQLAlchemy URL; with a password: {DATABASE} instead; else a file in the data folder",
    )
    parser.add_argument(
        "--token-hashes", type=Path, help="file with the SHA-256 (hex) of each bearer token, one a line"
    )
    parser.add_argument(
        "--admin-token-hashes", type=Path, help="file with the SHA-256 (hex) of each admin token, one a line"
    )
    parser.add_argument(
        "--pass-through", action="store_true", help="pass /engines/NAME/v1/… on to the engines, without an agent"
    )
    parser.add_argument(
        "--otlp", default=os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""), help="OTLP/HTTP collector for spans"
    )
    parser.add_argument("--otlp-contents", action="store_true", help="put texts of viewers and tools into spans too")
    parser.add_argument("--kept-sessions", type=int, default=10_000, help="conversations held in memory, 20 KB each")
    parser.add_argument("--open-turns", type=int, default=256)
    parser.add_argument(
        "--keep-conversations-days", type=int, default=30, help="days after the last turn, then a conversation goes"
    )
    parser.add_argument("--keep-traces-days", type=int, default=90, help="days, then a trace file goes")
    parser.add_argument(
        "--keep-experiments-days",
        type=int,
        default=180,
        help="days after an experiment's end, then what single units did goes; totals stay",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8710)
    given = parser.parse_args()
    given.database = secret_url(given.database, DATABASE)
    if bool(given.harness) == bool(given.registry):
        parser.error("give either --harness NAME=FOLDER or --registry URL")
    if any("=" not in one for one in given.harness):
        parser.error("--harness is NAME=FOLDER")
    if sum(not _named(one)[0] for one in given.engine) != 1:
        parser.error("exactly one --engine has no name: the primary")
    return given


def _named(engine: str) -> tuple[str, str]:
    """(name, address) of an `--engine`."""
    name, found, url = engine.partition("=")
    return (name, url) if found and "/" not in name else ("", engine)


def build(given: argparse.Namespace) -> Starlette:
    """The application for the arguments."""
    given.data.mkdir(parents=True, exist_ok=True)
    keep = Retention(given.keep_conversations_days, given.keep_traces_days, given.keep_experiments_days)
    engines = Engines({name: Engine(url=url, model=given.engine_model) for name, url in map(_named, given.engine)})
    toolbox = Toolbox(_bindings(given))
    telemetry = otlp(given.otlp, contents=given.otlp_contents) if given.otlp else None
    traces = TraceWriter(given.data / "traces", also=telemetry.take if telemetry is not None else None)
    database = Database(given.database or f"sqlite:///{given.data / 'gateway.db'}")
    control = Control(database)
    base = _source(given)
    source = SteeredSource(base, control)
    conversations = Conversations(database)
    follows = base if isinstance(base, RegistrySource) else None
    host = Host(
        source,
        engines,
        toolbox,
        conversations=conversations,
        traces=traces,
        limits=HostLimits(open_turns=given.open_turns, kept_sessions=given.kept_sessions),
        muted=lambda: control.muted() | follows.muted if follows is not None else control.muted(),
    )
    key = pseudonym_key(given.data / "pseudonym.key")

    def known(identity: str) -> str:
        return pseudonym(key, identity)

    tokens = _hashes(given.admin_token_hashes) or own_token(given.data / "admin.token")
    drain = functools.partial(setattr, host, "draining")
    admin = Admin(control, source, database, tokens=tokens, pseudonym=known, engines=engines, drain=drain)
    trials = Trials(control, source, database, pseudonym=known, engines=engines)
    kept = Kept(conversations, source.harness, given.data / "traces", admin)
    replays = Replays(admin, source, engines, toolbox)
    sides = Sides(admin, Experiments(trials, Events(database, known), admin), kept, replays)

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        async with (
            engines,
            toolbox,
            following(control, trials, source=follows),
            keeping(given.data, keep, given.database),
        ):
            if follows is not None:
                follows.follow()
            yield
        if follows is not None:
            follows.close()
        traces.close()
        if telemetry is not None:
            telemetry.close()
        database.close()

    app = create_app(host, HttpSettings(pseudonym_key=key, tokens=_hashes(given.token_hashes)), life, sides)
    app.state.collector = host.metrics.collector
    return app


def passing(app: Starlette, given: argparse.Namespace) -> App:
    """The application with the engines' own routes before it, where they are asked for; the primary is `primary`."""
    if not given.pass_through:
        return app
    engines = {name or "primary": Engine(url=url) for name, url in map(_named, given.engine)}
    usage = UsageWriter(given.data / "usage")
    proxy = Proxy(engines, tokens=_hashes(given.token_hashes), collector=app.state.collector, usage=usage)
    return fronted(app, proxy)


def _source(given: argparse.Namespace) -> Source:
    if given.registry:
        client = Client(given.registry, given.data / "cache", token=os.environ.get("HATSTACK_TOKEN", ""))
        return RegistrySource(client, given.pointer, [name for name, _ in map(_named, given.engine)])
    pairs = (one.partition("=") for one in given.harness)
    return FolderSource({name: Path(folder) for name, _, folder in pairs}, keep=given.data / "harnesses")


def _bindings(given: argparse.Namespace) -> Bindings:
    if given.bindings:
        return Bindings.parse(yaml.safe_load(given.bindings.read_text(encoding="utf-8")), str(given.bindings))
    if given.tools:
        return Bindings.parse({"servers": {"tools": {"mcp": given.tools}}, "tools": {"*": "tools"}})
    return Bindings()


def _hashes(path: Path | None) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8").split()) if path else frozenset()


@asynccontextmanager
async def following(
    control: Control,
    trials: Trials | None = None,
    every_s: float = FOLLOW_S,
    source: RegistrySource | None = None,
) -> AsyncIterator[None]:
    """Follows steering and registry and tends experiments while the block runs; then takes this replica off the list."""

    async def tried(what: Callable[[], None], done: str) -> None:
        try:
            await asyncio.to_thread(what)
        except PlatformError as error:
            log.warning("%s: %s", done, error.message)
        except Exception:  # whatever goes wrong here must not end the following
            log.exception(done)

    async def follow() -> None:
        tended = 0.0
        while True:
            await tried(control.sync, "the steering stands as last known")
            if time.monotonic() - tended >= TEND_S:
                tended = time.monotonic()
                if source is not None:
                    await tried(source.refresh, "the registry's last good versions go on")
                if trials is not None:
                    await tried(trials.tend, "experiments are not tended")
            await asyncio.sleep(every_s)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with suppress(PlatformError):
            await asyncio.to_thread(control.leave)


def own_token(path: Path) -> frozenset[str]:
    """The hash of the admin token in `path`, which is made at the first start and readable by its owner only."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32), encoding="utf-8")
    return frozenset({hashlib.sha256(path.read_text(encoding="utf-8").strip().encode()).hexdigest()})


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
    app = passing(build(given), given)
    # What a start makes lives as long as the process: no collection need look at it again, and turns leave few cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EVERY)
    uvicorn.run(
        app,
        host=given.host,
        port=given.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=25,
    )


if __name__ == "__main__":
    try:
        main()
    except PlatformError as error:
        sys.exit(f"error: {error}")
