"""Webhooks: what they are told of, and how that went."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_registry import ledger
from hat_registry.api.routes import webhook as api

router = APIRouter()


@router.get("/webhooks")
async def listing(request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """All webhooks of the workspace."""
    body = await api.list_webhooks(actor, registry)
    return view.page(request, "webhooks.html", body, kinds=sorted(ledger.KINDS), made=None)


@router.post("/webhooks")
async def add(request: Request, view: Page, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """A new one; its secret is shown this once."""
    new = api.NewWebhook(url=form.get("url", ""), kinds=form.get("kinds", "").replace(",", " ").split())
    made = api.add_webhook(request, new, actor, registry)
    body = await api.list_webhooks(actor, registry)
    return view.page(request, "webhooks.html", body, kinds=sorted(ledger.KINDS), made=made)


@router.get("/webhooks/{identity}")
async def one(request: Request, identity: str, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """One webhook with its deliveries."""
    return view.page(request, "webhook.html", await api.get_webhook(identity, actor, registry))


@router.post("/webhooks/{identity}/{what}")
def act(identity: str, what: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Pause, resume, ping, remove, or send a delivery again."""
    if what in {"pause", "resume"}:
        api.set_webhook(identity, api.Active(active=what == "resume"), actor, registry)
    elif what == "ping":
        api.ping_webhook(identity, actor, registry)
    elif what == "again":
        api.send_again(identity, form.get("delivery", ""), actor, registry)
    elif what == "remove":
        api.remove_webhook(identity, actor, registry)
        return RedirectResponse("/webhooks", 303)
    else:
        return RedirectResponse(f"/webhooks/{identity}", 303)
    return RedirectResponse(f"/webhooks/{identity}", 303)
