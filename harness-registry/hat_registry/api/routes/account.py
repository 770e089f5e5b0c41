"""`/me`, `/accounts`, `/tokens`: who one is, roles, and tokens that are shown once."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from hat_registry import accounts, invitations
from hat_registry.api.access import CurrentActor, CurrentRegistry

router = APIRouter(tags=["account"])


class NewAccount(BaseModel):
    """Body that makes an account."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=128)
    display: str = Field(default="", max_length=256)
    password: str | None = Field(default=None, max_length=1024)


class NewGrant(BaseModel):
    """Body that gives a role."""

    model_config = ConfigDict(extra="forbid")
    role: accounts.Role
    harness: str = Field(default="*", min_length=1, max_length=128)


class NewToken(BaseModel):
    """Body that issues a token of one's own."""

    model_config = ConfigDict(extra="forbid")
    label: str = Field(min_length=1, max_length=256)
    scopes: list[accounts.Permission] = Field(min_length=1)
    days: Annotated[int, Field(ge=1, le=3650)] | None = 90


class NewInvitation(BaseModel):
    """Body that makes a one-time link."""

    model_config = ConfigDict(extra="forbid")
    role: accounts.Role
    hours: int = Field(default=invitations.HOURS, ge=1, le=24 * 30)


class Standing(BaseModel):
    """Body that shuts an account out or lets it in again."""

    model_config = ConfigDict(extra="forbid")
    active: bool


class NewPassword(BaseModel):
    """Body that changes one's own password."""

    model_config = ConfigDict(extra="forbid")
    old: str = Field(max_length=1024)
    new: str = Field(max_length=1024)


@router.get("/me")
async def me(actor: CurrentActor) -> dict[str, Any]:
    """The account that the credentials belong to, and what it may do."""
    permissions = sorted({held for roles in accounts.PERMISSIONS.values() for held in roles if actor.may(held)})
    grants = {harness: sorted(roles) for harness, roles in actor.grants.items()}
    return {"account": actor.account, "workspace": actor.workspace, "grants": grants, "permissions": permissions}


@router.get("/accounts")
async def list_accounts(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Accounts with their roles in this workspace."""
    with registry.database.read() as tx:
        return {"items": accounts.listing(tx, actor)}


@router.get("/tokens")
async def list_tokens(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """One's own tokens; never their secrets."""
    with registry.database.read() as tx:
        return {"items": accounts.tokens(tx, actor)}


@router.post("/accounts", status_code=201)
def create_account(body: NewAccount, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Make an account without any role."""
    with registry.database.write() as tx:
        accounts.create(tx, actor, body.name, display=body.display, password=body.password)
    return {"name": body.name}


@router.post("/accounts/{name}/grants", status_code=201)
def give_role(name: str, body: NewGrant, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Give a role; a repeated grant changes nothing."""
    with registry.database.write() as tx:
        accounts.give(tx, actor, name, body.role, body.harness)
    return {"account": name, **body.model_dump()}


@router.post("/invitations", status_code=201)
def invite(body: NewInvitation, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """A link that makes one account with a role; its secret is in this answer and nowhere else."""
    with registry.database.write() as tx:
        secret = invitations.invite(tx, actor, body.role, hours=body.hours)
    return {"role": body.role, "hours": body.hours, "link": f"/setup?link={secret}"}


@router.put("/accounts/{name}/active")
def set_standing(name: str, body: Standing, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Shut an account out, or let it in again: its sessions and tokens end at once."""
    with registry.database.write() as tx:
        changed = accounts.set_active(tx, actor, name, body.active)
    return {"account": name, "active": body.active, "changed": changed}


@router.put("/me/password")
def change_password(body: NewPassword, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Change one's own password; tokens cannot."""
    with registry.database.write() as tx:
        accounts.change_password(tx, actor, body.old, body.new)
    return {"account": actor.account, "changed": True}


@router.delete("/accounts/{name}/grants/{role}")
def take_role(
    name: str, role: accounts.Role, actor: CurrentActor, registry: CurrentRegistry, harness: str = "*"
) -> dict[str, Any]:
    """Take a role away; the last admin stays."""
    with registry.database.write() as tx:
        accounts.take(tx, actor, name, role, harness)
    return {"account": name, "role": role, "harness": harness}


@router.post("/tokens", status_code=201)
def issue_token(body: NewToken, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """A token; its secret is in this answer and nowhere else."""
    with registry.database.write() as tx:
        identity, secret = accounts.issue_token(tx, actor, label=body.label, scopes=body.scopes, days=body.days)
    return {"id": identity, "secret": secret}


@router.delete("/tokens/{identity}")
def revoke_token(identity: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Revoke a token; a second time changes nothing."""
    with registry.database.write() as tx:
        accounts.revoke_token(tx, actor, identity)
    return {"id": identity, "revoked": True}
