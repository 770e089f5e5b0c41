"""What commands print and the options that all of them share.

A command gives its answer once, as data; `emit` writes it as JSON, or has it written for people. `say` narrates on
stderr. Not here: errors (failure).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Form(StrEnum):
    """How answers are written."""

    TEXT = "text"
    JSON = "json"


class _State:
    form = Form.TEXT


def _set_form(value: Form | None) -> Form | None:
    if value is not None:
        _State.form = value
    return value


Output = Annotated[
    Form | None,
    typer.Option("--output", help="Write the answer as text or as JSON.", callback=_set_form, show_default="text"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen and change nothing.")]
RunsDir = Annotated[
    Path | None,
    typer.Option(
        "--runs-dir", help="Where runs lie.", envvar="HATSTACK_RUNS_DIR", show_envvar=True, show_default="runs"
    ),
]
ProfileName = Annotated[str, typer.Option("--profile", help="Name of a shipped profile, or a file.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a key of the profile: a.b=c; may be repeated.")]


def reset() -> None:
    """Forget the form of an earlier command of this process."""
    _State.form = Form.TEXT


def as_json() -> bool:
    """Whether JSON was asked for."""
    return _State.form is Form.JSON


def emit(data: Any, text: Callable[[], str] | str) -> None:
    """Write an answer to stdout: `data` as JSON, or what `text` says."""
    told = text if isinstance(text, str) or as_json() else text()
    body = json.dumps(data, indent=2, ensure_ascii=False) if as_json() else str(told)
    if body:
        sys.stdout.write(body.rstrip("\n") + "\n")


def say(text: str) -> None:
    """Narrate on stderr."""
    sys.stderr.write(text.rstrip("\n") + "\n")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain table; numbers to the right, columns two spaces apart."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(heads), *cells]) for i in range(len(heads))]
    right = [all(isinstance(row[i], int | float | None) for row in rows) and bool(rows) for i in range(len(heads))]
    lines = [list(heads), *cells]
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in lines
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
