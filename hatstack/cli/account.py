"""`hat account list|create|grant|revoke|invite|close|reopen|token|me`: accounts, roles and tokens."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hatstack.cli.failure import UsageError
from hatstack.cli.output import DryRun, Output, emit, table
from hatstack.cli.remote import DEFAULT, RegistryUrl, Remote, part

app = typer.Typer(no_args_is_help=True, help="Accounts, roles and tokens.")
Name = Annotated[str, typer.Argument(help="Name of the account.")]
RoleOption = Annotated[str, typer.Argument(help="viewer, editor, approver, reviewer or admin.")]
On = Annotated[str, typer.Option("--harness", help="Only on this harness; * for all.")]


@app.command("list")
def listing(registry: RegistryUrl = DEFAULT, output: Output = None) -> None:
    """List accounts with their roles in the workspace."""
    body = Remote(registry).get("/accounts")
    rows = [(one["name"], ", ".join(one["roles"]) or "-", "yes" if one["active"] else "no") for one in body["items"]]
    emit(body, lambda: table(("account", "roles", "active"), rows) if rows else "no accounts: the registry is open")


@app.command("create")
def create(
    name: Name,
    role: Annotated[str, typer.Option("--role", help="First role.")] = "viewer",
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Make an account; the password is read from HATSTACK_NEW_PASSWORD or asked for."""
    if dry_run:
        emit({"name": name, "role": role, "changed": False}, f"would make {name} a {role}")
        return
    password = os.environ.get("HATSTACK_NEW_PASSWORD") or typer.prompt(
        "password", hide_input=True, confirmation_prompt=True
    )
    if len(password) < 12:
        raise UsageError("the password is too short", place="password", cure="at least 12 characters")
    remote = Remote(registry)
    remote.post("/accounts", {"name": name, "password": password})
    remote.post(f"/accounts/{part(name)}/grants", {"role": role})
    emit({"name": name, "role": role, "changed": True}, f"made {name}, {role}")


@app.command("grant")
def grant(
    name: Name,
    role: RoleOption,
    harness: On = "*",
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Give a role; a repeated grant changes nothing."""
    if dry_run:
        emit(
            {"account": name, "role": role, "harness": harness, "changed": False},
            f"would make {name} {role} on {harness}",
        )
        return
    made = Remote(registry).post(f"/accounts/{part(name)}/grants", {"role": role, "harness": harness})
    emit(made, f"{name} is {role} on {harness}")


@app.command("revoke")
def revoke(
    name: Name,
    role: RoleOption,
    harness: On = "*",
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Take a role away; the last admin stays."""
    if dry_run:
        emit({"account": name, "role": role, "harness": harness, "changed": False}, f"would take {role} from {name}")
        return
    made = Remote(registry).delete(f"/accounts/{part(name)}/grants/{part(role)}", harness=harness)
    emit(made, f"{name} is no longer {role} on {harness}")


@app.command("invite")
def invite(
    role: RoleOption,
    hours: Annotated[int, typer.Option("--hours", min=1, max=720, help="How long the link works.")] = 72,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Make a link with which one person makes their own account, once."""
    if dry_run:
        emit({"role": role, "changed": False}, f"would invite one {role}")
        return
    remote = Remote(registry)
    made = remote.post("/invitations", {"role": role, "hours": hours})
    emit(made, f"{remote.url}{made['link']}\nworks once, for {hours} hours")


@app.command("close")
def close(name: Name, registry: RegistryUrl = DEFAULT, dry_run: DryRun = False, output: Output = None) -> None:
    """Shut an account out: its sessions and tokens end at once."""
    _stand(name, registry, dry_run, active=False)


@app.command("reopen")
def reopen(name: Name, registry: RegistryUrl = DEFAULT, dry_run: DryRun = False, output: Output = None) -> None:
    """Let an account in again."""
    _stand(name, registry, dry_run, active=True)


def _stand(name: str, registry: str, dry_run: bool, *, active: bool) -> None:
    if dry_run:
        emit({"account": name, "changed": False}, f"would {'let in' if active else 'shut out'} {name}")
        return
    made = Remote(registry).put(f"/accounts/{part(name)}/active", {"active": active})
    emit(made, f"{name} is {'in' if active else 'out'}")


@app.command("token")
def token(
    label: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[list[str] | None, typer.Option("--scope", help="A permission; may be repeated.")] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long it lives.")] = 90,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Issue a token of one's own; its secret is printed this once."""
    if dry_run:
        emit({"label": label, "scopes": scope or ["read"], "changed": False}, f"would issue a token for {label}")
        return
    made = Remote(registry).post("/tokens", {"label": label, "scopes": scope or ["read"], "days": days})
    emit(made, f"{made['secret']}\nid {made['id']}; the secret is not kept: export HATSTACK_TOKEN now")


@app.command("me")
def me(registry: RegistryUrl = DEFAULT, output: Output = None) -> None:
    """Show whose credentials these are and what they may do."""
    body = Remote(registry).get("/me")
    emit(body, f"{body['account']} in {body['workspace']}: {', '.join(body['permissions'])}")
