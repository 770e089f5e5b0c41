"""Writes docs/reference-cli.md from the application itself: `python -m hatstack.cli.reference > docs/reference-cli.md`.

Always holds: every command and every option stands in it, so a test that compares file and text finds one without a
doc. Not here: prose about how to use them (docs, one page per audience).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from hatstack.cli.failure import EXIT_CODES, INTERRUPTED
from hatstack.cli.main import build

HEAD = """\
# Command line

`hat <noun> <verb>`. Answers go to stdout, narration and errors to stderr. With `--output json` an answer is JSON and an
error is one object `{"kind", "message", "place", "cure"}` on stderr; a list of findings comes as `problems`. Every
command that changes something takes `--dry-run` where it can say what it would do, and says `changed: false` when there
was nothing to do. `HATSTACK_DEBUG=1` shows tracebacks. This page is written by `python -m hatstack.cli.reference`.

| exit code | meaning | kinds of error |
|---|---|---|
"""
MEANINGS = {
    0: "ok",
    1: "gate or check failed",
    2: "usage",
    3: "bad input",
    4: "conflict or not allowed",
    5: "unavailable",
    6: "out of resources",
    70: "a fault of hatstack itself; the message names a log",
    INTERRUPTED: "interrupted",
}


def reference() -> str:
    """The whole page."""
    rows = []
    for code, meaning in sorted(MEANINGS.items()):
        kinds = ", ".join(f"`{kind}`" for kind, number in EXIT_CODES.items() if number == code)
        rows.append(f"| {code} | {meaning} | {kinds or '–'} |")
    root = typer.main.get_command(build())
    parts = [HEAD + "\n".join(rows)]
    parts += [_section(path, command) for path, command in commands(root)]
    return "\n\n".join(parts) + "\n"


def commands(group: Any, path: str = "hat") -> Iterator[tuple[str, Any]]:
    """(full name, command) of every command that can be called, in order of name."""
    for name in sorted(group.commands):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _section(path: str, command: Any) -> str:
    context = typer.Context(command, info_name=path)
    usage = " ".join([path, *(piece for piece in command.collect_usage_pieces(context))])
    lines = [f"## {path}", "", (command.help or "").strip(), "", f"    {usage}"]
    rows = [row for parameter in command.params if (row := _row(parameter, context))]
    if rows:
        lines += ["", "| argument or option | meaning | default |", "|---|---|---|", *rows]
    return "\n".join(lines)


def _row(parameter: Any, context: Any) -> str | None:
    if parameter.name == "help":
        return None
    names = parameter.opts + parameter.secondary_opts
    if parameter.param_type_name == "argument":
        names = [parameter.metavar or parameter.name.upper()]
    help_text = " ".join((parameter.help or "").split())
    if parameter.envvar:
        help_text += f" Environment: `{parameter.envvar}`."
    choices = getattr(parameter.type_descriptor, "choices", None)
    if choices:
        told = [str(getattr(choice, "value", choice)) for choice in choices]
        help_text += " One of: " + ", ".join(f"`{one}`" for one in told) + "."
    return f"| {', '.join(f'`{name}`' for name in names)} | {help_text} | {_default(parameter)} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.default
    if value in (None, "", (), []) or callable(value):
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{getattr(value, 'value', value)}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
