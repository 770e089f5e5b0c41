"""`hat harness push|pull|list|log|propose|approve|promote|rollback`: versions and pointers in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hatstack import paths
from hatstack.cli import prompts
from hatstack.cli.failure import ConflictError
from hatstack.cli.output import DryRun, Output, emit, table
from hatstack.cli.remote import DEFAULT, RegistryUrl, Remote, part

Name = Annotated[str, typer.Argument(help="Name of the harness.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; stands in the ledger.")]
Pointer = Annotated[str, typer.Option("--pointer", help="The pointer that moves.")]


def add(app: typer.Typer) -> None:
    """Give the noun its registry verbs."""
    for name, command in (
        ("push", push),
        ("pull", pull),
        ("list", listing),
        ("log", log),
        ("propose", propose),
        ("approve", approve),
        ("promote", promote),
        ("rollback", rollback),
    ):
        app.command(name)(command)
    prompts.add(app)


def push(
    harness: Annotated[str, typer.Argument(help="Folder, or the name of a shipped harness.")],
    message: Annotated[str, typer.Option("--message", "-m", help="What the version does.")],
    parent: Annotated[str | None, typer.Option("--parent", help="Digest of the version it was made from.")] = None,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Store a version; the same content again changes nothing."""
    from hat_harness.digest import harness_digest
    from hat_registry.archive import read_folder, write_tar
    from hat_registry.harnesses import parse

    files = read_folder(paths.harness(harness))
    loaded = parse(files)
    if dry_run:
        digest = harness_digest(loaded)
        emit({"name": loaded.name, "digest": digest, "changed": False}, f"would push {loaded.name} {digest}")
        return
    made = (
        Remote(registry)
        .send(
            "POST",
            "/harnesses",
            params={"message": message, "parent": parent},
            content=write_tar(files),
        )
        .json()
    )
    told = f"{'pushed' if made['changed'] else 'known already:'} {made['name']} v{made['number']} {made['digest']}"
    emit(made, f"{told}\nnext  hat harness propose {made['name']} {made['digest']} --reason TEXT")


def pull(
    name: Name,
    target: Annotated[Path, typer.Argument(help="Folder to make; it must not exist.")],
    version: Annotated[str, typer.Option("--version", help="Digest, number or pointer.")] = "production",
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Fetch a version into a folder; the content is checked against its digest."""
    from hat_harness.digest import harness_digest
    from hat_harness.errors import DigestError
    from hat_registry.archive import read_tar
    from hat_registry.harnesses import parse

    if target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another folder")
    remote = Remote(registry)
    found = remote.get(f"/harnesses/{part(name)}/versions/{part(version)}")
    content = remote.send("GET", f"/harnesses/{part(name)}/versions/{part(found['digest'])}/archive").content
    files = read_tar(content)
    if harness_digest(parse(files)) != found["digest"]:
        raise DigestError(f"the registry sent other content than {found['digest']}", place=registry)
    if not dry_run:
        write_files(files, target)
    keys = ("name", "number", "digest", "author", "message", "created_at")
    emit(
        {key: found[key] for key in keys} | {"folder": str(target), "changed": not dry_run},
        f"{name} {found['digest']} in {target}",
    )


def listing(
    search: Annotated[str, typer.Option("--search", help="In names, messages, digests.")] = "",
    registry: RegistryUrl = DEFAULT,
    output: Output = None,
) -> None:
    """List harnesses."""
    body = Remote(registry).get("/harnesses", search=search or None, limit=500)
    rows = [(one["name"], one["versions"], one["updated_at"]) for one in body["items"]]
    emit(
        body,
        lambda: (
            table(("harness", "versions", "changed"), rows) if rows else "no harness yet: hat harness push PATH -m TEXT"
        ),
    )


def log(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="How many versions.")] = 20,
    registry: RegistryUrl = DEFAULT,
    output: Output = None,
) -> None:
    """Show versions and pointers of a harness, newest first."""
    body = Remote(registry).get(f"/harnesses/{part(name)}", limit=limit)
    at: dict[str, list[str]] = {}
    for one in body["pointers"]:
        at.setdefault(one["digest"], []).append(one["pointer"])
    rows = [
        (f"v{one['number']}", one["digest"][7:19], " ".join(at.get(one["digest"], [])), one["author"], one["message"])
        for one in body["items"]
    ]
    emit(body, lambda: table(("version", "digest", "pointers", "author", "message"), rows))


def propose(
    name: Name,
    version: Annotated[str, typer.Argument(help="Digest, number or pointer of the version that should go live.")],
    reason: Reason,
    pointer: Pointer = "production",
    urgent: Annotated[
        bool, typer.Option("--urgent", help="Running conversations change over at their next message.")
    ] = False,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Propose to move a protected pointer."""
    remote = Remote(registry)
    digest = remote.get(f"/harnesses/{part(name)}/versions/{part(version)}")["digest"]
    body = {"name": name, "pointer": pointer, "digest": digest, "reason": reason, "urgent": urgent}
    if dry_run:
        emit({**body, "changed": False}, f"would propose {pointer} of {name} -> {digest}")
        return
    made = remote.post("/proposals", body)
    emit(
        made,
        f"proposal {made['id']}: {pointer} of {name} -> {digest}\nnext  somebody else: hat harness approve {made['id']}",
    )


def approve(
    proposal: Annotated[str, typer.Argument(help="Id of the proposal.")],
    comment: Annotated[str, typer.Option("--comment", help="What the author should know.")] = "",
    reject: Annotated[bool, typer.Option("--reject", help="Reject instead.")] = False,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Approve or reject a proposal of another account."""
    remote = Remote(registry)
    if dry_run:
        found = remote.get(f"/proposals/{part(proposal)}")
        emit({**found, "changed": False}, f"would {'reject' if reject else 'approve'} {_line(found)}")
        return
    body = {"verdict": "reject" if reject else "approve", "comment": comment}
    made = remote.post(f"/proposals/{part(proposal)}/decision", body)
    emit(made, f"{_line(made)} is {made['state']}\nnext  hat harness promote {proposal}")


def promote(
    proposal: Annotated[str, typer.Argument(help="Id of the proposal.")],
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Move the pointer as proposed, if it is approved and the gates pass; exit code 1 when a gate does not."""
    remote = Remote(registry)
    found = remote.get(f"/proposals/{part(proposal)}")
    gates = [(one["title"], one["observed"] or "-", one["threshold"], one["outcome"]) for one in found["gates"]]
    shown = table(("gate", "observed", "threshold", "outcome"), gates) + "\n" if gates else ""
    if dry_run:
        emit({**found, "changed": False}, f"{shown}would promote {_line(found)}")
        return
    moved = remote.post(f"/proposals/{part(proposal)}/promote")
    back = f"way back  hat harness rollback {moved['name']} --reason TEXT"
    emit(moved, f"{shown}{moved['pointer']} of {moved['name']} is {moved['digest']}\n{back}")


def rollback(
    name: Name,
    reason: Reason,
    pointer: Pointer = "production",
    to: Annotated[str | None, typer.Option("--to", help="A past digest; by default the previous one.")] = None,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Move a pointer back to an earlier position."""
    remote = Remote(registry)
    path = f"/harnesses/{part(name)}/pointers/{part(pointer)}"
    if dry_run:
        told = f"would roll {pointer} of {name} back to {to or 'its previous version'}"
        emit({**remote.get(path), "changed": False}, told)
        return
    moved = remote.post(f"{path}/rollback", {"reason": reason, "to": to})
    emit(moved, f"{pointer} of {name} is back at {moved['digest']}")


def _line(found: dict[str, Any]) -> str:
    return f"{found['pointer']} of {found['name']} -> {found['to_digest'][7:19]}"


def write_files(files: dict[str, bytes], target: Path) -> None:
    """A folder with `files`, whole or not at all."""
    import tempfile

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pull-") as folder:
        root = Path(folder) / "harness"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        root.rename(target)
