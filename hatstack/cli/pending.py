"""Commands that the command line has a place for and that are not built yet. The list only ever gets shorter.

Each says so in one line and ends with exit code 5. A test pins the list: whoever builds one removes it here.
"""

from __future__ import annotations

import typer

from hat_harness.errors import Kind, PlatformError

PENDING: dict[str, str] = {
}


class NotBuiltError(PlatformError):
    """The command has a name and no body yet."""

    kind: Kind = "unavailable"


def not_built(command: str) -> NotBuiltError:
    """The error that a pending command ends with."""
    return NotBuiltError(f"`hat {command}` ({PENDING[command]}) is not built yet", cure="hat --help lists what is")


def add_pending(app: typer.Typer, nouns: dict[str, typer.Typer]) -> None:
    """Give every pending command its place; `nouns` maps a noun to its sub-application and gains the missing ones."""
    for command, help_text in PENDING.items():
        noun, _, verb = command.partition(" ")
        if verb and noun not in nouns:
            nouns[noun] = typer.Typer(no_args_is_help=True, help=NOUNS[noun])
            app.add_typer(nouns[noun], name=noun)
        parent = nouns[noun] if verb else app
        _add(parent, verb or noun, command, f"{help_text[0].upper()}{help_text[1:]} (not built yet).")


NOUNS: dict[str, str] = {
    "train": "Training jobs.",
    "release": "Releases: model, harness and serving profile with their evidence.",
}


def _add(parent: typer.Typer, name: str, command: str, help_text: str) -> None:
    @parent.command(name, help=help_text, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def pending() -> None:
        raise not_built(command)
