"""Overview, harness list, history of a harness, one version, its editor, and differences."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from hat_console.pages import Body, CurrentActor, CurrentRegistry, Form, Page
from hat_console.pages.experiments import Known
from hat_harness.diff import words
from hat_harness.errors import LoadError
from hat_registry import archive, evidence, harnesses
from hat_registry.api.routes import harness as api
from hat_registry.api.routes import overview
from hat_registry.errors import InvalidError

router = APIRouter()
EDITABLE = (".md", ".yaml", ".json", ".txt")


@router.get("/")
async def home(
    request: Request,
    view: Page,
    actor: CurrentActor,
    registry: CurrentRegistry,
    upto: int | None = Query(None, ge=0, le=2**53),
) -> Response:
    """What runs now, what waits, what happened last; `upto`: as of a row of the ledger."""
    return view.page(request, "overview.html", await overview.overview(actor, registry, upto))


@router.get("/harnesses")
async def listing(
    request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry, search: str = "", after: str = ""
) -> Response:
    """All harnesses."""
    body = await api.list_harnesses(actor, registry, search, after, 50)
    return view.page(request, "harnesses.html", body, search=search)


@router.get("/harnesses/{name}")
async def history(
    request: Request, name: str, view: Page, actor: CurrentActor, registry: CurrentRegistry, before: int | None = None
) -> Response:
    """Versions of one harness with their pointers."""
    body = await api.get_harness(name, actor, registry, before, 50)
    at: dict[str, list[str]] = {}
    for stand in body["pointers"]:
        at.setdefault(stand["digest"], []).append(stand["pointer"])
    ways: dict[str, list[Body]] = {}
    if actor.may("rollback", name):
        for stand in body["pointers"]:
            told = await run_in_threadpool(api.get_ways_back, name, stand["pointer"], actor, registry)
            ways[stand["pointer"]] = told["ways"]
    with registry.database.read() as tx:
        badges = evidence.evaluations(tx, actor.workspace, [one["digest"] for one in body["items"]])
    told = {digest: _badge(suites) for digest, suites in badges.items()}
    return view.page(request, "harness.html", body, at=at, ways_of=ways, badges=told)


def _badge(suites: dict[str, Any]) -> str:
    """The first metric of the first suites, in a few signs."""
    parts = []
    for suite, metrics in list(suites.items())[:2]:
        first = next(((k, v) for k, v in metrics.items() if isinstance(v, int | float)), None) if metrics else None
        if first is not None:
            parts.append(f"{suite} {first[1]:.3g}")
    return " · ".join(parts)


@router.get("/harnesses/{name}/edit")
def editor(
    request: Request,
    name: str,
    view: Page,
    actor: CurrentActor,
    registry: CurrentRegistry,
    gateway: Known,
    base: str = Query("production"),
) -> Response:
    """The editor, on a version's files."""
    actor.require("push", name)
    version, harness = registry.load(actor.workspace, name, base)
    files = {
        path: text.decode()
        for path, text in harnesses.files_of(registry.blobs, version).items()
        if path.endswith(EDITABLE)
    }
    body: Body = {"name": name, "base": version.digest, "number": version.number, "files": files}
    return view.page(
        request, "edit.html", body, checked=overview.rendered(harness), problems=[], live=gateway is not None
    )


@router.post("/harnesses/{name}/edit/check")
def check(
    request: Request, name: str, view: Page, form: Form, actor: CurrentActor, registry: CurrentRegistry
) -> Response:
    """Validation and rendered prompt of what the editor holds now."""
    actor.require("push", name)
    problems: list[str] = []
    checked = None
    try:
        checked = overview.rendered(harnesses.parse(_edited(registry, actor.workspace, name, form)))
    except LoadError as error:
        problems = [str(one) for one in error.problems]
    return view.page(request, "checked.html", {"problems": problems}, checked=checked, problems=problems)


@router.post("/harnesses/{name}/edit")
def save(name: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Save what the editor holds as a new version."""
    actor.require("push", name)
    files = _edited(registry, actor.workspace, name, form)
    if (own := harnesses.parse(files).name) != name:
        raise InvalidError(f"the harness calls itself {own}, not {name}", cure="keep the name in harness.yaml")
    version, _ = registry.push(actor, files, message=form.get("message", ""), parent=form["base"])
    return RedirectResponse(f"/harnesses/{name}/{version.digest}", 303)


@router.get("/harnesses/{name}/{selector}")
def version(
    request: Request, name: str, selector: str, view: Page, actor: CurrentActor, registry: CurrentRegistry
) -> Response:
    """One version: parts, rendered prompt, cost, evidence, where it runs."""
    body = overview.get_content(name, selector, actor, registry)
    return view.page(request, "version.html", body)


@router.get("/harnesses/{name}/{selector}/archive")
def download(name: str, selector: str, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """The folder as a tar."""
    return api.get_archive(name, selector, actor, registry)


@router.get("/harnesses/{name}/diff/{a}/{b}")
def difference(
    request: Request, name: str, a: str, b: str, view: Page, actor: CurrentActor, registry: CurrentRegistry
) -> Response:
    """What changed between two versions: in meaning, then word by word."""
    return _compared(request, view, actor, registry, api.get_diff(name, actor, registry, a, b))


@router.get("/diff")
def choose(a: str = Query("", max_length=80), b: str = Query("", max_length=80)) -> Response:
    """From two digests in a form to their comparison."""
    if not re.fullmatch(r"(sha256:)?[0-9a-f]{8,64}", a) or not re.fullmatch(r"(sha256:)?[0-9a-f]{8,64}", b):
        raise InvalidError("two digests are compared", cure="at least eight hex digits of each")
    return RedirectResponse(f"/diff/{a}/{b}", 303)


@router.get("/diff/{a}/{b}")
def any_difference(
    request: Request, a: str, b: str, view: Page, actor: CurrentActor, registry: CurrentRegistry
) -> Response:
    """The same between any two versions or releases by digest."""
    return _compared(request, view, actor, registry, api.get_any_diff(a, b, actor, registry))


def _compared(request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry, body: Body) -> Response:
    before, after = (_texts(registry, actor.workspace, body[f"{side}_name"], body[side]) for side in ("a", "b"))
    texts = [
        {"path": path, "words": words(before.get(path, ""), after.get(path, ""))}
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]
    return view.page(request, "diff.html", body, texts=texts)


def _texts(registry: CurrentRegistry, workspace: str, name: str, selector: str) -> dict[str, str]:
    with registry.database.read() as tx:
        found = harnesses.get(tx, workspace, name, selector)
    return {path: data.decode(errors="replace") for path, data in harnesses.files_of(registry.blobs, found).items()}


def _edited(
    registry: CurrentRegistry, workspace: str, name: str, form: Annotated[dict[str, str], "posted fields"]
) -> dict[str, bytes]:
    """The base version's files with the posted ones in their place; an emptied file is removed."""
    with registry.database.read() as tx:
        base = harnesses.get(tx, workspace, name, form.get("base", ""))
    files = harnesses.files_of(registry.blobs, base)
    for field, text in form.items():
        if not field.startswith("file:"):
            continue
        path = archive.safe_path(field.removeprefix("file:"))
        content = text.replace("\r\n", "\n")
        if content.strip():
            files[path] = content.encode()
        else:
            files.pop(path, None)
    return files
