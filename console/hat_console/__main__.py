"""Serve registry and console: `python -m hat_console --data DIR --port 8700`."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

import uvicorn

from hat_console import entry
from hat_console.app import ConsoleSettings, create_app
from hat_console.pages.judgings import Judge
from hat_console.pulse import Prices
from hat_harness.errors import PlatformError
from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.desk import Desk, Settings
from hat_registry import logs
from hat_registry.mlflow_link import Follower, Mlflow
from hat_registry.registry import Registry
from hat_registry.settings import database_url, take_defaults


def session_key(path: Path) -> bytes:
    """The key in `path`; made at the first start, readable by its owner only."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()


def _parser() -> argparse.ArgumentParser:
    """Every option of the command line."""
    parser = argparse.ArgumentParser(prog="python -m hat_console", description="Registry and console.")
    parser.add_argument("--data", type=Path, required=True, help="folder for database, blobs and keys")
    parser.add_argument("--database", default="", help="SQLAlchemy URL; with a password: HATSTACK_DATABASE_URL instead")
    parser.add_argument("--blobs", default="", help="folder or s3://bucket/prefix; by default in the data folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8700)
    parser.add_argument("--open", action="store_true", help="let everybody in while no account exists (loopback only)")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--behind-tls", action="store_true", help="mark cookies as HTTPS only")
    parser.add_argument("--runs", type=Path, default=None, help="runs directory whose evaluations are shown")
    parser.add_argument("--rollouts", default="", help="`cluster`, or a folder of canary rollouts to show")
    parser.add_argument("--gateway", default="", help="address of a gateway, for experiments and chat")
    parser.add_argument("--gateway-workspace", default="default", help="workspace whose people see the gateway")
    parser.add_argument("--gateway-metrics", action="append", default=[], help="metrics page of a gateway's replica")
    parser.add_argument("--price-in", type=float, default=None, help="price of a million tokens that a model reads")
    parser.add_argument("--price-out", type=float, default=None, help="price of a million tokens that it writes")
    parser.add_argument("--gateway-token", type=Path, default=None, help="file with the gateway's admin token")
    parser.add_argument("--judge-endpoint", default="", help="OpenAI-compatible server that judges: base URL up to /v1")
    parser.add_argument("--judge-model", default="", help="model at that server; by default the judge's own")
    parser.add_argument("--judge", default="live-commerce", help="judge that ships with hatstack")
    parser.add_argument("--profiles", type=Path, default=None, help="folder of profiles that runs are started by")
    parser.add_argument("--harnesses", type=Path, default=None, help="folder of harnesses that runs are started with")
    parser.add_argument("--pipeline", action="append", default=[], help="module of a pipeline of one's own")
    parser.add_argument("--cache", type=Path, default=None, help="folder of results of finished steps")
    parser.add_argument("--at-a-time", type=int, default=1, help="runs on this machine at a time; others wait")
    parser.add_argument("--tracking", default="", help="MLflow's tracking URI for the steps of runs")
    parser.add_argument("--mlflow", default="", help="URL of MLflow's pages, for links")
    parser.add_argument("--remote", action="append", default=[], metavar="KEY=VALUE", help="a cluster for runs: docs")
    entry.add_options(parser)
    return parser


def _settings(given: argparse.Namespace) -> ConsoleSettings:
    """What the pages are told of the options."""
    return ConsoleSettings(
        session_key=session_key(given.data / "session.key"),
        open_access=given.open,
        read_only=given.read_only,
        secure_cookies=given.behind_tls,
        runs=given.runs,
        rollouts=given.rollouts,
        gateway=given.gateway,
        gateway_workspace=given.gateway_workspace,
        gateway_metrics=tuple(given.gateway_metrics),
        prices=Prices(given.price_in, given.price_out),
        gateway_token=given.gateway_token,
        judge=Judge(given.judge_endpoint, given.judge_model, given.judge),
        links=_links(given),
        oidc=entry.oidc(given),
        outbound=entry.outbound(given),
        send_webhooks=not given.no_webhooks,
        log_requests=given.log_requests,
    )


def main() -> None:
    """Parse the arguments and serve until the process is ended."""
    parser = _parser()
    given = take_defaults(parser, "HATSTACK_CONSOLE_").parse_args()
    if given.open and given.host not in {"127.0.0.1", "::1", "localhost"}:
        parser.error("--open is for loopback; make an account instead")
    logs.install()
    given.data.mkdir(parents=True, exist_ok=True)
    registry = Registry.open(database_url(given.database, given.data), given.blobs or given.data / "blobs")
    follower = _follower(registry, given)
    settings = _settings(given)
    desk = _desk(registry, given)
    if desk is not None:
        desk.start()
    if follower is not None:
        follower.start()
    entry.announce(registry, given)
    app = create_app(registry, settings, desk)
    if app.state.pulse is not None:
        app.state.pulse.start()
    # Logs are ours; open event streams must not keep a server from stopping.
    uvicorn.run(app, host=given.host, port=given.port, log_config=None, access_log=False, timeout_graceful_shutdown=3)
    if app.state.pulse is not None:
        app.state.pulse.close()
    if desk is not None:
        desk.stop()
    if follower is not None:
        follower.stop()


def _follower(registry: Registry, given: argparse.Namespace) -> Follower | None:
    """Lets MLflow's aliases follow the ledger; None without an MLflow, or while nothing may change."""
    uri = given.tracking or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        return None
    registry.mlflow = Mlflow(uri)
    return None if given.read_only else Follower(registry, registry.mlflow)


def _links(given: argparse.Namespace) -> dict[str, str]:
    """Where a run can also be seen."""
    told = dict(text.partition("=")[::2] for text in given.remote)
    found = {name: told[f"{name}_page"] for name in ("kfp", "argo") if told.get(f"{name}_page")}
    return {**found, "mlflow": given.mlflow} if given.mlflow else found


def _desk(registry: Registry, given: argparse.Namespace) -> Desk | None:
    """The desk that starts runs; None without a runs directory, profiles or harnesses, or while nothing may change."""
    if given.read_only or not (given.runs and given.profiles and given.harnesses):
        return None
    catalogue = Catalogue(given.profiles, given.harnesses, tuple(given.pipeline))
    environment = {"MLFLOW_TRACKING_URI": given.tracking} if given.tracking else {}
    remote = dict(text.partition("=")[::2] for text in given.remote)
    settings = Settings(
        root=given.runs, cache=given.cache, limit=given.at_a_time, environment=environment, remote=remote
    )
    return Desk(registry.database, catalogue, settings)


if __name__ == "__main__":
    try:
        main()
    except PlatformError as error:
        sys.exit(f"error: {error}")
