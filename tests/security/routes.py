"""The route table of the console, and what each route needs: the one place where a new route is classified.

`needs`: `public` asks nobody who they are; `signed` takes any account; `some` shows what the account may read, which may be
nothing; else the permission that the account must have. `path` is a sample, `send` what httpx sends with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.security.conftest import ONE, TWO

H = "/api/v1/harnesses/react-baseline"
PAGE = "/harnesses/react-baseline"


@dataclass(frozen=True)
class Rule:
    """What a route needs, and a request to it that would be valid."""

    needs: str
    path: str = ""
    send: Mapping[str, Any] = field(default_factory=dict)


def every(routes: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(method, path) of all routes, those of included routers too."""
    for one in routes:
        inner = getattr(one, "original_router", None)
        if inner is not None:
            yield from every(inner.routes, prefix + one.include_context.prefix)
        elif getattr(one, "methods", None):
            yield from ((method, prefix + one.path) for method in sorted(one.methods - {"HEAD"}))


def rules(ids: Mapping[str, str]) -> dict[tuple[str, str], Rule]:
    """The classification, with the ids of a world filled in."""
    api = {**_reads(ids), **_moves(ids), **_administration(ids), **_console_api()}
    return {**_entrance(), **api, **_pages(ids), **_page_changes(ids)}


def _entrance() -> dict[tuple[str, str], Rule]:
    return {
        ("GET", "/healthz"): Rule("public"),
        ("GET", "/readyz"): Rule("public"),
        ("GET", "/api/v1/openapi.json"): Rule("public"),
        ("GET", "/login"): Rule("public"),
        ("POST", "/login"): Rule("public", send={"data": {"name": "x", "password": "y"}}),
        ("GET", "/login/oidc"): Rule("public"),
        ("GET", "/login/oidc/back"): Rule("public"),
        ("GET", "/setup"): Rule("public"),
        ("POST", "/setup"): Rule("public"),
        ("POST", "/logout"): Rule("public"),
        ("POST", "/language"): Rule("public", send={"data": {"language": "en"}}),
    }


def _under_api(told: Mapping[tuple[str, str], Rule]) -> dict[tuple[str, str], Rule]:
    return {
        (method, f"/api/v1{template}"): Rule(rule.needs, f"/api/v1{rule.path or template}", rule.send)
        for (method, template), rule in told.items()
    }


def _reads(ids: Mapping[str, str]) -> dict[tuple[str, str], Rule]:
    digest, proposal = ids["digest"], ids["proposal"]
    read = {
        f"{H}": "/harnesses/{name}",
        f"{H}/diff?a={digest}&b={digest}": "/harnesses/{name}/diff",
        f"{H}/lineage/{digest}": "/harnesses/{name}/lineage/{selector}",
        f"{H}/pointers/staging/ways-back": "/harnesses/{name}/pointers/{pointer}/ways-back",
        f"{H}/pointers/staging": "/harnesses/{name}/pointers/{pointer}",
        f"{H}/versions/{digest}": "/harnesses/{name}/versions/{selector}",
        f"{H}/versions/{digest}/archive": "/harnesses/{name}/versions/{selector}/archive",
        f"{H}/versions/{digest}/content": "/harnesses/{name}/versions/{selector}/content",
        "/api/v1/ledger/as-of?kind=harness&name=react-baseline&pointer=staging&at=2030-01-01": "/ledger/as-of",
        "/api/v1/ledger/export": "/ledger/export",
        "/api/v1/ledger/verify": "/ledger/verify",
        "/api/v1/mlflow/aliases": "/mlflow/aliases",
        "/api/v1/models/shop": "/models/{name}",
        "/api/v1/releases/shop/pointers/staging": "/releases/{name}/pointers/{pointer}",
    }
    some = {
        "/api/v1/changes?after=0": "/changes",
        f"/api/v1/evidence?subject={digest}": "/evidence",
        "/api/v1/harnesses": "/harnesses",
        f"/api/v1/diff/{digest}/{digest}": "/diff/{a}/{b}",
        "/api/v1/ledger": "/ledger",
        "/api/v1/ledger/state": "/ledger/state",
        "/api/v1/models": "/models",
        "/api/v1/mutes": "/mutes",
        "/api/v1/overview": "/overview",
        "/api/v1/proposals": "/proposals",
        f"/api/v1/proposals/{proposal}": "/proposals/{identity}",
        "/api/v1/releases": "/releases",
        f"/api/v1/releases/{ids['release']}": "/releases/{digest}",
        "/api/v1/watch?after=0": "/watch",
    }
    found = {("GET", f"/api/v1{template}"): Rule("read", path) for path, template in read.items()}
    return found | {("GET", f"/api/v1{template}"): Rule("some", path) for path, template in some.items()}


def _moves(ids: Mapping[str, str]) -> dict[tuple[str, str], Rule]:
    digest, proposal = ids["digest"], ids["proposal"]
    move = {"release": "shop", "phase": "Running", "step": 0, "weight": 10}
    new = {"kind": "harness", "name": "react-baseline", "pointer": "production", "digest": digest, "reason": "x"}
    release = {"name": "shop", "model": TWO, "harness": digest, "profile": ONE}
    fact = {"format": "hatstack.evidence/1", "subject": digest, "type": "cost", "content": {}}
    changes: dict[tuple[str, str], Rule] = {
        ("POST", "/harnesses"): Rule("push", "/harnesses?message=x", {"content": ids["tar"]}),
        ("PUT", "/harnesses/{name}/pointers/{pointer}"): Rule(
            "push", "/harnesses/react-baseline/pointers/staging", {"json": {"digest": digest}}
        ),
        ("POST", "/harnesses/{name}/pointers/{pointer}/rollback"): Rule(
            "rollback", "/harnesses/react-baseline/pointers/staging/rollback", {"json": {"reason": "x"}}
        ),
        ("POST", "/releases/{name}/pointers/{pointer}/rollback"): Rule(
            "rollback", "/releases/shop/pointers/staging/rollback", {"json": {"reason": "x"}}
        ),
        ("POST", "/proposals"): Rule("propose", "", {"json": new}),
        ("POST", "/proposals/{identity}/gates"): Rule("propose", f"/proposals/{proposal}/gates"),
        ("POST", "/proposals/{identity}/decision"): Rule(
            "approve", f"/proposals/{proposal}/decision", {"json": {"verdict": "approve"}}
        ),
        ("POST", "/proposals/{identity}/promote"): Rule("move", f"/proposals/{proposal}/promote"),
        ("POST", "/proposals/{identity}/comments"): Rule(
            "propose", f"/proposals/{proposal}/comments", {"json": {"text": "why?"}}
        ),
        ("POST", "/evidence"): Rule("evidence", "", {"json": fact}),
        ("PUT", "/policies/{kind}/{pointer}"): Rule(
            "policy", "/policies/harness/production", {"json": {"approvals": 2}}
        ),
        ("POST", "/releases"): Rule("push", "", {"json": release}),
        ("PUT", "/mutes/{room}"): Rule("mute", "/mutes/r1"),
        ("DELETE", "/mutes/{room}"): Rule("mute", "/mutes/r1"),
        ("POST", "/mlflow/follow"): Rule("move"),
        ("POST", "/canaries/{namespace}/{name}/moves"): Rule("evidence", "/canaries/a/b/moves", {"json": move}),
    }
    return _under_api(changes)


def _administration(ids: Mapping[str, str]) -> dict[tuple[str, str], Rule]:
    hook = ids["webhook"]
    changes: dict[tuple[str, str], Rule] = {
        ("GET", "/me"): Rule("signed"),
        ("PUT", "/me/password"): Rule("signed", "", {"json": {"old": "x", "new": "y"}}),
        ("GET", "/tokens"): Rule("signed"),
        ("POST", "/tokens"): Rule("some", "", {"json": {"label": "x", "scopes": ["read"]}}),
        ("DELETE", "/tokens/{identity}"): Rule("accounts", f"/tokens/{ids['token']}"),
        ("GET", "/accounts"): Rule("accounts"),
        ("POST", "/accounts"): Rule("accounts", "", {"json": {"name": "new"}}),
        ("POST", "/invitations"): Rule("accounts", "", {"json": {"role": "viewer"}}),
        ("PUT", "/accounts/{name}/active"): Rule("accounts", "/accounts/viewer/active", {"json": {"active": False}}),
        ("POST", "/accounts/{name}/grants"): Rule("accounts", "/accounts/viewer/grants", {"json": {"role": "editor"}}),
        ("DELETE", "/accounts/{name}/grants/{role}"): Rule("accounts", "/accounts/viewer/grants/editor"),
        ("GET", "/webhooks"): Rule("policy"),
        ("POST", "/webhooks"): Rule("policy", "", {"json": {"url": "https://8.8.8.8/x"}}),
        ("GET", "/webhooks/{identity}"): Rule("policy", f"/webhooks/{hook}"),
        ("PUT", "/webhooks/{identity}"): Rule("policy", f"/webhooks/{hook}", {"json": {"active": True}}),
        ("DELETE", "/webhooks/{identity}"): Rule("policy", f"/webhooks/{hook}"),
        ("POST", "/webhooks/{identity}/ping"): Rule("policy", f"/webhooks/{hook}/ping"),
        ("GET", "/webhooks/{identity}/deliveries"): Rule("policy", f"/webhooks/{hook}/deliveries"),
        ("POST", "/webhooks/{identity}/deliveries/{delivery}/again"): Rule(
            "policy", f"/webhooks/{hook}/deliveries/x/again"
        ),
    }
    return _under_api(changes)


def _console_api() -> dict[tuple[str, str], Rule]:
    lines = {"content": "{}", "headers": {"content-type": "application/x-ndjson"}}
    said = {"json": {"name": "x", "text": "hello"}}
    order = {"json": {"pipeline": "train", "profile": "smoke"}}
    taken = {"suite": "x", "turn": 1, "purpose": "evaluation"}
    timed = {"json": {"cron": "0 4 * * *", "order": {"pipeline": "train", "profile": "smoke"}}}
    told = {
        ("GET", "/canaries"): Rule("read"),
        ("POST", "/canaries"): Rule("move", "", {"json": {"namespace": "a", "name": "b", "spec": {}}}),
        ("GET", "/canaries/{namespace}/{name}"): Rule("read", "/canaries/a/b"),
        ("POST", "/canaries/{namespace}/{name}/{verb}"): Rule("rollback", "/canaries/a/b/pause"),
        ("GET", "/chat"): Rule("read"),
        ("POST", "/chat"): Rule("read", "", said),
        ("GET", "/compare/{a}/{b}"): Rule("read", f"/compare/{ONE}/{TWO}"),
        ("GET", "/evaluations"): Rule("read"),
        ("GET", "/evaluations/{ident}"): Rule("read", f"/evaluations/{ONE}"),
        ("POST", "/evaluations/{ident}/judge"): Rule("run", f"/evaluations/{ONE}/judge", {"json": {}}),
        ("GET", "/experiments"): Rule("read"),
        ("GET", "/experiments/{name}"): Rule("read", "/experiments/x"),
        ("POST", "/experiments/{name}/{verb}"): Rule("rollback", "/experiments/x/stop"),
        ("GET", "/live"): Rule("read"),
        ("GET", "/labels"): Rule("label"),
        ("POST", "/labels"): Rule("label", "", lines),
        ("GET", "/labels/{name}"): Rule("label", "/labels/x"),
        ("PUT", "/labels/{name}/rating"): Rule("label", "/labels/x/rating", {"json": {"item": "x", "labels": {}}}),
        ("POST", "/labels/{name}/ratings"): Rule("label", "/labels/x/ratings", lines),
        ("GET", "/labels/{name}/ratings"): Rule("label", "/labels/x/ratings"),
        ("GET", "/labels/{name}/task"): Rule("label", "/labels/x/task"),
        ("GET", "/pipelines"): Rule("read"),
        ("GET", "/pipelines/{name}/form"): Rule("read", "/pipelines/train/form"),
        ("GET", "/runs"): Rule("read"),
        ("POST", "/runs"): Rule("run", "", order),
        ("GET", "/runs/{a}/against/{b}"): Rule("read", "/runs/a/against/b"),
        ("GET", "/runs/{run}"): Rule("read", "/runs/a"),
        ("POST", "/runs/{run}/cancel"): Rule("run", "/runs/a/cancel"),
        ("GET", "/runs/{run}/curves"): Rule("read", "/runs/a/curves"),
        ("POST", "/runs/{run}/resume"): Rule("run", "/runs/a/resume", {"json": {}}),
        ("GET", "/runs/{run}/steps/{step}/log"): Rule("read", "/runs/a/steps/b/log"),
        ("GET", "/runs/{run}/steps/{step}/log/stream"): Rule("read", "/runs/a/steps/b/log/stream"),
        ("GET", "/runs/{run}/stream"): Rule("read", "/runs/a/stream"),
        ("GET", "/traces"): Rule("traces"),
        ("GET", "/suites"): Rule("traces"),
        ("GET", "/suites/{name}"): Rule("traces", "/suites/x"),
        ("POST", "/suites/{name}/remove"): Rule("traces", "/suites/x/remove", {"json": {"item": "i"}}),
        ("GET", "/traces/{ident:path}"): Rule("traces", "/traces/x"),
        ("POST", "/traces/{ident:path}/replay"): Rule("traces", "/traces/x/replay", {"json": {}}),
        ("POST", "/traces/{ident:path}/suite"): Rule("traces", "/traces/x/suite", {"json": taken}),
        ("PUT", "/schedules/{name}"): Rule("run", "/schedules/x", timed),
        ("DELETE", "/schedules/{name}"): Rule("run", "/schedules/x"),
    }
    return _under_api(told)


def _pages(ids: Mapping[str, str]) -> dict[tuple[str, str], Rule]:
    digest = ids["digest"]
    pages = {
        "some": ("/", "/harnesses", "/ledger", "/models", "/proposals", "/releases"),
        "read": (
            "/canaries",
            "/chat",
            "/evaluations",
            "/experiments",
            "/ledger/verify",
            "/live",
            "/pipelines",
            "/runs",
        ),
        "accounts": ("/accounts",),
        "policy": ("/webhooks",),
        "label": ("/label",),
        "signed": ("/settings",),
    }
    found = {("GET", path): Rule(needs) for needs, paths in pages.items() for path in paths}
    return found | {
        ("GET", "/compare"): Rule("public"),
        ("GET", "/diff"): Rule("public", f"/diff?a={digest}&b={digest}"),
        ("GET", "/diff/{a}/{b}"): Rule("some", f"/diff/{digest}/{digest}"),
        ("GET", "/compare/{a}/{b}"): Rule("read", f"/compare/{ONE}/{TWO}"),
        ("GET", "/evaluations/{ident}"): Rule("read", f"/evaluations/{ONE}"),
        ("GET", "/canaries/{namespace}/{name}"): Rule("read", "/canaries/a/b"),
        ("POST", "/canaries/{namespace}/{name}/{verb}"): Rule("rollback", "/canaries/a/b/pause"),
        ("GET", "/experiments/{name}"): Rule("read", "/experiments/x"),
        ("POST", "/experiments/{name}/{verb}"): Rule("rollback", "/experiments/x/stop"),
        ("POST", "/chat"): Rule("read", "", {"data": {"name": "x", "text": "hello"}}),
        ("GET", "/harnesses/{name}"): Rule("read", PAGE),
        ("GET", "/harnesses/{name}/diff/{a}/{b}"): Rule("read", f"{PAGE}/diff/{digest}/{digest}"),
        ("GET", "/harnesses/{name}/edit"): Rule("push", f"{PAGE}/edit?base={digest}"),
        ("POST", "/harnesses/{name}/edit"): Rule("push", f"{PAGE}/edit", {"data": {"base": digest, "message": "x"}}),
        ("POST", "/harnesses/{name}/edit/check"): Rule("push", f"{PAGE}/edit/check", {"data": {"base": digest}}),
        ("POST", "/harnesses/{name}/pointers/{pointer}/rollback"): Rule(
            "rollback", f"{PAGE}/pointers/staging/rollback", {"data": {"reason": "x"}}
        ),
        ("GET", "/harnesses/{name}/{selector}"): Rule("read", f"{PAGE}/{digest}"),
        ("GET", "/harnesses/{name}/{selector}/archive"): Rule("read", f"{PAGE}/{digest}/archive"),
    }


def _page_changes(ids: Mapping[str, str]) -> dict[tuple[str, str], Rule]:
    proposal, hook, digest = ids["proposal"], ids["webhook"], ids["digest"]
    propose = {"data": {"name": "react-baseline", "pointer": "production", "digest": digest, "reason": "x"}}
    lines = {"data": {"lines": "{}", "project": "x"}}
    taken = {"suite": "x", "turn": "1", "purpose": "evaluation"}
    return {
        ("POST", "/label"): Rule("label", "", lines),
        ("GET", "/label/{name}"): Rule("label", "/label/x"),
        ("POST", "/label/{name}"): Rule("label", "/label/x", {"data": {"label:a": "b", "item": "i"}}),
        ("POST", "/label/{name}/decide"): Rule("label", "/label/x/decide", {"data": {"item": "i"}}),
        ("GET", "/label/{name}/results"): Rule("label", "/label/x/results"),
        ("GET", "/models/{name}"): Rule("read", "/models/shop"),
        ("POST", "/mute"): Rule("mute", "", {"data": {"room": "r2"}}),
        ("POST", "/pipelines/schedules/{name}"): Rule("run", "/pipelines/schedules/x", {"data": {}}),
        ("POST", "/pipelines/{name}/new"): Rule("run", "/pipelines/train/new", {"data": {"profile": "smoke"}}),
        ("GET", "/pipelines/{name}/new"): Rule("read", "/pipelines/train/new"),
        ("POST", "/proposals"): Rule("propose", "", propose),
        ("GET", "/proposals/{identity}"): Rule("some", f"/proposals/{proposal}"),
        ("POST", "/proposals/{identity}/decision"): Rule(
            "approve", f"/proposals/{proposal}/decision", {"data": {"verdict": "approve"}}
        ),
        ("POST", "/proposals/{identity}/gates"): Rule("propose", f"/proposals/{proposal}/gates", {"data": {"x": "y"}}),
        ("POST", "/proposals/{identity}/comments"): Rule(
            "propose", f"/proposals/{proposal}/comments", {"data": {"text": "why?"}}
        ),
        ("POST", "/proposals/{identity}/promote"): Rule("move", f"/proposals/{proposal}/promote", {"data": {"x": "y"}}),
        ("GET", "/releases/{digest}"): Rule("some", f"/releases/{ids['release']}"),
        ("POST", "/releases/{digest}/rollback"): Rule(
            "rollback", f"/releases/{ids['release']}/rollback", {"data": {"reason": "x", "pointer": "staging"}}
        ),
        ("GET", "/runs/compare"): Rule("public", "/runs/compare?a=a&b=b"),
        ("GET", "/runs/{a}/against/{b}"): Rule("read", "/runs/a/against/b"),
        ("GET", "/runs/{run}"): Rule("read", "/runs/a"),
        ("POST", "/runs/{run}/cancel"): Rule("run", "/runs/a/cancel", {"data": {"x": "y"}}),
        ("GET", "/runs/{run}/live"): Rule("read", "/runs/a/live"),
        ("GET", "/runs/{run}/report"): Rule("traces", "/runs/a/report"),
        ("POST", "/evaluations/{ident}/judge"): Rule("run", f"/evaluations/{ONE}/judge", {"data": {"x": "y"}}),
        ("GET", "/suites"): Rule("traces"),
        ("GET", "/suites/{name}"): Rule("traces", "/suites/x"),
        ("POST", "/suites/{name}/remove"): Rule("traces", "/suites/x/remove", {"data": {"item": "i"}}),
        ("GET", "/traces"): Rule("traces"),
        ("GET", "/traces/{ident:path}"): Rule("traces", "/traces/x"),
        ("POST", "/traces/{ident:path}/replay"): Rule("traces", "/traces/x/replay", {"data": {"x": "y"}}),
        ("POST", "/traces/{ident:path}/suite"): Rule("traces", "/traces/x/suite", {"data": taken}),
        ("POST", "/runs/{run}/resume"): Rule("run", "/runs/a/resume", {"data": {"x": "y"}}),
        ("POST", "/settings/tokens"): Rule("some", "", {"data": {"label": "x", "scopes": "read"}}),
        ("POST", "/settings/tokens/{identity}/revoke"): Rule(
            "accounts", f"/settings/tokens/{ids['token']}/revoke", {"data": {"x": "y"}}
        ),
        ("POST", "/accounts"): Rule("accounts", "", {"data": {"name": "newer", "role": "viewer"}}),
        ("POST", "/accounts/invitations"): Rule("accounts", "", {"data": {"role": "viewer"}}),
        ("POST", "/accounts/{name}/role"): Rule("accounts", "/accounts/viewer/role", {"data": {"role": "editor"}}),
        ("POST", "/accounts/{name}/active"): Rule("accounts", "/accounts/viewer/active", {"data": {"active": "yes"}}),
        ("POST", "/settings/password"): Rule("signed", "", {"data": {"old": "x", "new": "y"}}),
        ("POST", "/webhooks"): Rule("policy", "", {"data": {"url": "https://8.8.8.8/y"}}),
        ("GET", "/webhooks/{identity}"): Rule("policy", f"/webhooks/{hook}"),
        ("POST", "/webhooks/{identity}/{what}"): Rule("policy", f"/webhooks/{hook}/ping", {"data": {"x": "y"}}),
    }
