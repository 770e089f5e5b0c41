"""`hat webhook list|add|show|ping|pause|resume|remove|again`: addresses that are told of changes."""

from __future__ import annotations

from typing import Annotated

import typer

from hatstack.cli.output import DryRun, Output, emit, table
from hatstack.cli.remote import DEFAULT, RegistryUrl, Remote, part

app = typer.Typer(no_args_is_help=True, help="Webhooks: other systems are told of changes.")
Identity = Annotated[str, typer.Argument(help="Id of the webhook.")]


@app.command("list")
def listing(registry: RegistryUrl = DEFAULT, output: Output = None) -> None:
    """List webhooks with how their deliveries stand."""
    body = Remote(registry).get("/webhooks")
    rows = [
        (
            one["id"],
            one["url"],
            ", ".join(one["kinds"]) or "all",
            "active" if one["active"] else "paused",
            ", ".join(f"{number} {state}" for state, number in sorted(one["deliveries"].items())) or "-",
        )
        for one in body["items"]
    ]
    emit(body, lambda: table(("id", "address", "kinds", "state", "deliveries"), rows) if rows else "no webhooks")


@app.command("add")
def add(
    url: Annotated[str, typer.Argument(help="Address, https://…")],
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Ledger kind; may be repeated; all without.")] = None,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Add a webhook; its signing secret is printed this once."""
    if dry_run:
        emit({"url": url, "kinds": kind or [], "changed": False}, f"would tell {url} of {', '.join(kind or ['all'])}")
        return
    made = Remote(registry).post("/webhooks", {"url": url, "kinds": kind or []})
    emit(made, f"{made['id']}\nsecret {made['secret']}\nthe secret is not shown again: give it to the receiver now")


@app.command("show")
def show(identity: Identity, registry: RegistryUrl = DEFAULT, output: Output = None) -> None:
    """Show a webhook with the newest of its deliveries."""
    body = Remote(registry).get(f"/webhooks/{part(identity)}")
    rows = [
        (one["seq"], one["state"], one["attempts"], one["status"] or "-", one["error"] or "-", one["id"])
        for one in body["deliveries"]
    ]
    head = f"{body['url']} ({'active' if body['active'] else 'paused'})"
    columns = ("row", "state", "attempts", "status", "error", "delivery")
    emit(body, lambda: f"{head}\n" + (table(columns, rows) if rows else "nothing was sent yet"))


@app.command("ping")
def ping(identity: Identity, registry: RegistryUrl = DEFAULT, dry_run: DryRun = False, output: Output = None) -> None:
    """Send a test."""
    if dry_run:
        emit({"id": identity, "changed": False}, f"would send a test to {identity}")
        return
    emit(Remote(registry).post(f"/webhooks/{part(identity)}/ping"), f"{identity} will be told within a second")


@app.command("pause")
def pause(identity: Identity, registry: RegistryUrl = DEFAULT, dry_run: DryRun = False, output: Output = None) -> None:
    """Tell it nothing for a while; what happens meanwhile is not told later."""
    _switch(identity, registry, dry_run, active=False)


@app.command("resume")
def resume(identity: Identity, registry: RegistryUrl = DEFAULT, dry_run: DryRun = False, output: Output = None) -> None:
    """Tell it of changes again, from now on."""
    _switch(identity, registry, dry_run, active=True)


@app.command("remove")
def remove(identity: Identity, registry: RegistryUrl = DEFAULT, dry_run: DryRun = False, output: Output = None) -> None:
    """Forget a webhook and its deliveries."""
    if dry_run:
        emit({"id": identity, "changed": False}, f"would remove {identity}")
        return
    emit(Remote(registry).delete(f"/webhooks/{part(identity)}"), f"removed {identity}")


@app.command("again")
def again(
    identity: Identity,
    delivery: Annotated[str, typer.Argument(help="Id of the delivery.")],
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Send a delivery once more."""
    if dry_run:
        emit({"id": delivery, "changed": False}, f"would send {delivery} again")
        return
    made = Remote(registry).post(f"/webhooks/{part(identity)}/deliveries/{part(delivery)}/again")
    emit(made, f"{delivery} will be sent again")


def _switch(identity: str, registry: str, dry_run: bool, *, active: bool) -> None:
    if dry_run:
        emit({"id": identity, "changed": False}, f"would {'resume' if active else 'pause'} {identity}")
        return
    made = Remote(registry).put(f"/webhooks/{part(identity)}", {"active": active})
    emit(made, f"{identity} is {'active' if active else 'paused'}")
