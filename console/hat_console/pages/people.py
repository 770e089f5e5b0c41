"""Accounts and roles, one's own tokens, language."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.messages import LANGUAGES
from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_console.pages.entrance import inside
from hat_registry import accounts
from hat_registry.api.routes import account as api
from hat_registry.errors import InvalidError

router = APIRouter()


@router.post("/language")
async def language(request: Request, form: Form) -> Response:
    """Switch the language of the pages."""
    chosen = form.get("language", "en")
    if chosen not in LANGUAGES:
        raise InvalidError(f"no language {chosen[:8]!r}", cure=", ".join(LANGUAGES))
    answer = RedirectResponse(inside(form.get("back", "/")), 303)
    answer.set_cookie("hatstack_language", chosen, max_age=365 * 86400, samesite="lax")
    return answer


@router.get("/accounts")
async def listing(request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Accounts and roles."""
    return view.page(
        request, "accounts.html", await api.list_accounts(actor, registry), roles=list(accounts.PERMISSIONS)
    )


@router.post("/accounts")
def create(form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Make an account and give it a role."""
    body = api.NewAccount(
        name=form.get("name", ""), display=form.get("display", ""), password=form.get("password") or None
    )
    api.create_account(body, actor, registry)
    if form.get("role"):
        api.give_role(body.name, api.NewGrant.model_validate({"role": form["role"]}), actor, registry)
    return RedirectResponse("/accounts", 303)


@router.get("/settings")
async def settings(request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """One's own tokens."""
    return view.page(request, "settings.html", await api.list_tokens(actor, registry), issued=None)


@router.post("/settings/tokens")
async def issue(request: Request, view: Page, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """A new token, shown this once."""
    scopes = form.get("scopes", "read").replace(",", " ").split()
    body = api.NewToken.model_validate(
        {"label": form.get("label", ""), "scopes": scopes, "days": int(form.get("days") or 90)}
    )
    issued = api.issue_token(body, actor, registry)
    return view.page(request, "settings.html", await api.list_tokens(actor, registry), issued=issued)


@router.post("/settings/tokens/{identity}/revoke")
def revoke(identity: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Revoke a token."""
    api.revoke_token(identity, actor, registry)
    return RedirectResponse("/settings", 303)
