"""Items of the catalogue: what each shows, what runs it needs, what has been published of it.

Always holds: `render` gives a section for every known id, made or not; an item that is not made names every run that it
lacks with the command that makes it. Not here: the items themselves (items_*), the page (page).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from hat_components.paper.sources import Sources
from hat_components.report.view import Section, Table
from hat_components.step import InputError

PAPER = "arXiv 2608.15763"


@dataclass(frozen=True)
class Need:
    """A run that an item is made of."""

    what: str
    """What is missing, in words."""
    how: str
    """Command that makes it."""


@dataclass(frozen=True)
class Made:
    """What a builder makes of the runs: tables and plots, or what it still lacks."""

    tables: tuple[Table, ...] = ()
    plots: tuple[str, ...] = ()
    lead: str = ""
    missing: tuple[Need, ...] = ()
    """Runs that would make it whole; with no table, the item is missing."""


Builder = Callable[[Sources], Made]


@dataclass(frozen=True)
class Item:
    """One item of the catalogue."""

    id: str
    title: str
    columns: tuple[str, ...]
    needs: tuple[Need, ...]
    build: Builder
    published: Table | None = None
    """The paper's own figures, shown apart."""


@dataclass(frozen=True)
class Rendered:
    """One item made from runs."""

    id: str
    title: str
    state: Literal["made", "missing"]
    section: Section
    missing: tuple[Need, ...]
    columns: tuple[str, ...]
    broken: dict[str, str] = field(default_factory=dict)
    """Files that could not be read."""

    @property
    def rows(self) -> list[dict[str, str]]:
        """Rows of the item's own tables by column; published figures are not among them."""
        own = [table for table in self.section.tables if not table.caption.startswith(PUBLISHED)]
        return [dict(zip(table.head, row, strict=True)) for table in own for row in table.rows]


PUBLISHED = f"Published figures ({PAPER})"
_REGISTERED: dict[str, Item] = {}


def item(
    ident: str,
    title: str,
    columns: tuple[str, ...],
    *needs: Need,
    published: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None = None,
) -> Callable[[Builder], Builder]:
    """Register a builder as a catalogue item; `published` is (head, rows) of the paper's figures."""

    def add(build: Builder) -> Builder:
        shown = Table(PUBLISHED, *published, note="not measured here") if published else None
        _REGISTERED[ident] = Item(ident, title, columns, needs, build, shown)
        return build

    return add


@cache
def items() -> dict[str, Item]:
    """Every item by id, in the catalogue's order: figures after the tables of the same number."""
    package = importlib.import_module("hat_components.paper")
    for module in sorted(one.name for one in pkgutil.iter_modules(package.__path__) if one.name.startswith("items_")):
        importlib.import_module(f"hat_components.paper.{module}")
    return {ident: _REGISTERED[ident] for ident in sorted(_REGISTERED, key=lambda one: (one[0] != "t", int(one[1:])))}


def render(ident: str, sources: Sources) -> Rendered:
    """An item from the runs that there are; InputError for an unknown one."""
    known = items()
    if ident not in known:
        raise InputError(f"there is no report item {ident!r}", place="--item", cure=f"items: {', '.join(known)}")
    one = known[ident]
    made = one.build(sources)
    tables = made.tables + ((one.published,) if one.published is not None else ())
    missing = made.missing if made.tables or made.missing else one.needs
    section = Section(one.id, f"{one.id.upper()} · {one.title}", made.lead, tables, made.plots)
    state: Literal["made", "missing"] = "made" if made.tables else "missing"
    return Rendered(one.id, one.title, state, section, missing, one.columns, dict(sources.broken))


def points(value: float | None, *, sign: bool = False) -> str:
    """A share in percent with one decimal, "—" for none; signed with a true minus."""
    if value is None:
        return "—"
    shown = round(100 * value, 1) + 0.0  # a negative zero is none
    text = f"{shown:+.1f}" if sign and shown else f"{shown:.1f}"
    return text.replace("-", "−")


def span(low: float, high: float, *, sign: bool = False) -> str:
    """An interval of shares in percent."""
    return f"[{points(low, sign=sign)}, {points(high, sign=sign)}]"
