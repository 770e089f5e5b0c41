"""`hat ledger show|verify|export` and `hat release list|show`: what happened, and what was released."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer

from hatstack.cli.failure import ConflictError, InputError
from hatstack.cli.output import Output, emit, table
from hatstack.cli.remote import DEFAULT, LONG_S, RegistryUrl, Remote, part

app = typer.Typer(no_args_is_help=True, help="The ledger of releases and pointer moves.")
releases = typer.Typer(no_args_is_help=True, help="Releases: model, harness and serving profile with their evidence.")


@app.command("show")
def show(
    subject: Annotated[
        str | None, typer.Option("--subject", help="Only rows about this, e.g. harness:NAME@production.")
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only rows of this kind, e.g. move.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", help="Only what had happened by then; ISO 8601.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many rows, newest first.")] = 20,
    registry: RegistryUrl = DEFAULT,
    output: Output = None,
) -> None:
    """Show rows, newest first."""
    body = Remote(registry).get("/ledger", subject=subject, kind=kind, until=as_of, limit=limit)
    rows = [
        (
            row["seq"],
            row["at"][:19] + "Z",
            row["actor"],
            row["kind"],
            row["subject"],
            str(row["data"].get("to", ""))[7:19],
        )
        for row in body["items"]
    ]
    emit(body, lambda: table(("row", "when", "who", "what", "subject", "to"), rows) if rows else "no rows")


@app.command("verify")
def verify(
    export: Annotated[
        Path | None, typer.Argument(help="An exported file; without one the registry checks itself.")
    ] = None,
    registry: RegistryUrl = DEFAULT,
    output: Output = None,
) -> None:
    """Check the chain; exit code 1 names the first bad row."""
    if export is None:
        body = Remote(registry).send("GET", "/ledger/verify", timeout=LONG_S).json()
    else:
        from dataclasses import asdict

        from hat_registry.ledger import verify_export

        try:
            with export.open(encoding="utf-8", newline="\n") as lines:
                body = asdict(verify_export(iter(lines)))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the export: {error}", place=str(export), cure="check the path") from None
    emit(body, f"{body['rows']} rows, chain intact, head {body['head']}")


@app.command("export")
def export_rows(
    target: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    registry: RegistryUrl = DEFAULT,
    output: Output = None,
) -> None:
    """Write all rows as JSON lines, checked while they are written."""
    from hat_registry.ledger import verify_export

    if target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another file")
    temporary = target.with_name(f".{target.name}.new")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            seen = verify_export(_kept(Remote(registry).lines("/ledger/export"), file))
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    emit({"file": str(target), "rows": seen.rows, "head": seen.head}, f"{seen.rows} rows in {target}, head {seen.head}")


def _kept(lines: Iterator[str], file: TextIO) -> Iterator[str]:
    """The lines, written while they pass."""
    for line in lines:
        file.write(line + "\n")
        yield line


@releases.command("list")
def list_releases(
    name: Annotated[str | None, typer.Option("--name", help="Only releases of this name.")] = None,
    registry: RegistryUrl = DEFAULT,
    output: Output = None,
) -> None:
    """List releases, newest first."""
    body = Remote(registry).get("/releases", name=name, limit=100)
    rows = [
        (
            one["name"],
            one["digest"][7:19],
            one["model"][7:19],
            one["harness"][7:19],
            one["profile"][7:19],
            one["author"],
        )
        for one in body["items"]
    ]
    emit(
        body,
        lambda: (
            table(("release", "digest", "model", "harness", "profile", "author"), rows) if rows else "no release yet"
        ),
    )


@releases.command("show")
def show_release(
    digest: Annotated[str, typer.Argument(help="Digest of the release.")],
    registry: RegistryUrl = DEFAULT,
    output: Output = None,
) -> None:
    """Show a release with its evidence."""
    body = Remote(registry).get(f"/releases/{part(digest)}")
    rows = [(key, body[key]) for key in ("name", "digest", "model", "model_reference", "harness", "profile")]
    pieces = [(one["type"], one["digest"]) for one in body["evidence"]]
    emit(
        body,
        lambda: (
            table(("part", "value"), rows)
            + ("\n" + table(("evidence", "digest"), pieces) if pieces else "\nno evidence yet")
        ),
    )
