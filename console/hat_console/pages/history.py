"""The ledger with filters and as-of, and mute."""

from __future__ import annotations

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_registry.api.routes import history as api

router = APIRouter()


@router.get("/ledger")
async def rows(
    request: Request,
    view: Page,
    actor: CurrentActor,
    registry: CurrentRegistry,
    kind: str = "",
    subject: str = "",
    account: str = "",
    until: str = "",
    after: int = Query(0, ge=0, le=api.MOST),
    upto: int | None = Query(None, ge=0, le=api.MOST),
) -> Response:
    """Rows, newest first, and what stood after row `upto` or at the time `until`."""
    body = await api.list_rows(
        actor, registry, kind or None, subject or None, account or None, until or None, after, 100, True, upto
    )
    filters = {"kind": kind, "subject": subject, "account": account, "until": until}
    stood = await api.state(actor, registry, upto, until or None)
    return view.page(request, "ledger.html", body, filters=filters, stood=stood)


@router.get("/ledger/verify")
def verify(request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """The state of the chain, as a fragment."""
    return view.page(request, "verified.html", api.verify(actor, registry))


@router.post("/mute")
def mute(form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Silence or unsilence a room, or all, from any page."""
    room = form.get("room", "*") or "*"
    if form.get("muted") == "yes":
        api.unmute(room, actor, registry)
    else:
        api.mute(room, actor, registry)
    back = form.get("back", "/")
    return RedirectResponse(back if back.startswith("/") and not back.startswith("//") else "/", 303)
