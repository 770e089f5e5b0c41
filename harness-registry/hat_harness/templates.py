"""Layout templates: `str.format` strings over named fields and nothing else.

Always holds: a template that `compile_template` accepted renders without error for any texts, since it has no
positional field, attribute, index, conversion or format spec. Not here: what is rendered (render).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from string import Formatter

Pieces = tuple[tuple[str, str], ...]
"""(literal, field) pairs; the field of the last pair may be empty."""


class TemplateError(ValueError):
    """A template that is not a plain `str.format` string over its fields; the message says why."""


@lru_cache(maxsize=4096)
def compile_template(template: str, fields: tuple[str, ...]) -> Pieces:
    """The template as (literal, field) pairs. TemplateError for anything but `{field}` with a known field."""
    pieces: list[tuple[str, str]] = []
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise TemplateError(f"{error}; a brace that is text is written twice") from None
    for literal, field, spec, conversion in parsed:
        if field is not None and (field not in fields or spec or conversion):
            known = ", ".join(f"{{{name}}}" for name in fields)
            raise TemplateError(f"{{{field}}} is not one of its fields {known}")
        pieces.append((literal, field or ""))
    return tuple(pieces)


def fill(pieces: Pieces, values: Mapping[str, str]) -> str:
    """The template's text with each field replaced by its value."""
    return "".join([literal + (values[field] if field else "") for literal, field in pieces])


def fill_core(pieces: Pieces, values: Mapping[str, str]) -> str:
    """The same from the first field to the last one, without the literals before and after."""
    where = [index for index, (_, field) in enumerate(pieces) if field]
    if not where:
        return ""
    first, last = where[0], where[-1]
    return values[pieces[first][1]] + fill(pieces[first + 1 : last + 1], values)


def render_template(template: str, fields: Sequence[str], values: Mapping[str, str]) -> str:
    """Compile (cached) and fill."""
    return fill(compile_template(template, tuple(fields)), values)
