"""Accounts and roles, one's own tokens, language."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.messages import LANGUAGES
from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_console.pages.entrance import inside
from hat_registry import accounts
from hat_registry.api.routes import account as api
from hat_registry.errors import InvalidError

router = APIRouter()
_SHOWN: dict[str, Any] = {"roles": list(accounts.PERMISSIONS), "made": None, "base": ""}


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
    return view.page(request, "accounts.html", await api.list_accounts(actor, registry), **_SHOWN)


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


@router.post("/accounts/invitations")
async def invite(request: Request, view: Page, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """A one-time link, shown this once."""
    made = api.invite(api.NewInvitation.model_validate({"role": form.get("role", "")}), actor, registry)
    body = await api.list_accounts(actor, registry)
    base = str(request.base_url).rstrip("/")
    return view.page(request, "accounts.html", body, **{**_SHOWN, "made": made, "base": base})


@router.post("/accounts/{name}/role")
def change_role(name: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Give or take a role."""
    grant = api.NewGrant.model_validate({"role": form.get("role", ""), "harness": form.get("harness") or "*"})
    if form.get("do") == "take":
        api.take_role(name, grant.role, actor, registry, grant.harness)
    else:
        api.give_role(name, grant, actor, registry)
    return RedirectResponse("/accounts", 303)


@router.post("/accounts/{name}/active")
def change_standing(name: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Shut an account out, or let it in again."""
    api.set_standing(name, api.Standing(active=form.get("active") == "yes"), actor, registry)
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


@router.post("/settings/password")
def password(form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Change one's own password."""
    api.change_password(api.NewPassword(old=form.get("old", ""), new=form.get("new", "")), actor, registry)
    return RedirectResponse("/settings", 303)


@router.post("/settings/tokens/{identity}/revoke")
def revoke(identity: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Revoke a token."""
    api.revoke_token(identity, actor, registry)
    return RedirectResponse("/settings", 303)
