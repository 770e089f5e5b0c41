"""Reads what a comparison needs of an evaluation and nothing more, so that 100,000 items fit into little memory.

Always holds: the file is decoded item by item, and of each only id, scores and families are kept, ids and families once
for all suites that share them. What stands there must be a hatstack.evaluation/1; a part that is missing or of another
type is an `InputError` with its place. Not here: whole evaluations with their turns (result), the statistics (compare).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any

from hat_components.step import InputError

FORMAT = "hatstack.evaluation/1"
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_HEAD = ("format", "arm", "policy", "model", "harness", "dataset", "seeds")


@dataclass
class LeanSuite:
    """A suite's scores in columns."""

    id: str = ""
    title: str = ""
    kind: str = ""
    headline: str = ""
    paired_with: str = ""
    items: list[str] = field(default_factory=list)
    scores: dict[str, array[float]] = field(default_factory=dict)
    """Metric → score by place in `items`; NaN where an item lacks it."""
    families: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric of its items."""
        return tuple(self.scores)

    @property
    def family_names(self) -> tuple[str, ...]:
        """Rewrite families of its states, by name."""
        return tuple(sorted({family for row in self.families for family in row}))

    def members(self, family: str) -> frozenset[str]:
        """Items whose state has a rewrite of the family."""
        return frozenset(item for item, row in zip(self.items, self.families, strict=True) if family in row)

    def values(self, metric: str) -> Mapping[str, float]:
        """Item id → score, of the items that have the metric."""
        column = self.scores.get(metric, array("d"))
        return {item: value for item, value in zip(self.items, column, strict=False) if value == value}

    def add(self, item: Mapping[str, Any], known: dict[tuple[str, ...], tuple[str, ...]]) -> None:
        """Take over one decoded item."""
        families = tuple(str(one) for one in item.get("families", ()))
        self.families.append(known.setdefault(families, families))
        self.items.append(intern(str(item["item"])))
        for metric, value in item["values"].items():
            column = self.scores.get(metric)
            if column is None:
                column = self.scores[metric] = array("d")
            column.extend([float("nan")] * (len(self.items) - 1 - len(column)))
            column.append(float(value))


@dataclass
class LeanEvaluation:
    """What a comparison reads of an evaluation."""

    arm: str = ""
    policy: str = ""
    model: str = ""
    harness: str = ""
    dataset: str = ""
    seeds: str = ""
    suites: list[LeanSuite] = field(default_factory=list)

    def suite(self, ident: str) -> LeanSuite | None:
        """The suite called `ident`, or None."""
        return next((suite for suite in self.suites if suite.id == ident), None)


def read_lean(path: Path) -> LeanEvaluation:
    """Read an evaluation from its file or the folder that holds it; raises `InputError` when it is not one."""
    file = path / "evaluation.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError("there is no evaluation", place=str(file), cure="run the evaluate step first")
    try:
        reader = _Reader(file.read_text(encoding="utf-8"))
        found, head = LeanEvaluation(), {}
        for key in reader.fields():
            if key == "suites":
                found.suites = [_suite(reader) for _ in reader.entries()]
            else:
                head[key] = reader.value()
        if head.get("format") != FORMAT:
            raise ValueError(f"its format is {str(head.get('format'))[:40]!r}")
        for name in _HEAD[1:]:
            setattr(found, name, str(head.get(name, "")))
        if not found.arm or not found.suites or not all(one.id and one.headline and one.items for one in found.suites):
            raise ValueError("arm, suites or items are missing")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        told = str(error) or type(error).__name__
        raise InputError(f"this is not a {FORMAT}: {told[:160]}", place=str(file), cure="evaluate again") from error
    return found


def _suite(reader: _Reader) -> LeanSuite:
    made = LeanSuite()
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for key in reader.fields():
        if key == "items":
            for _ in reader.entries():
                made.add(reader.value(), known)
        elif key in ("id", "title", "kind", "headline", "paired_with"):
            setattr(made, key, str(reader.value()))
        else:
            reader.value()
    return made


class _Reader:
    """A place in a JSON text; objects and arrays are walked, anything else is decoded whole."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Any:
        """Decode the value that stands here."""
        self._skip()
        found, self._at = _DECODER.raw_decode(self._text, self._at)
        return found

    def fields(self) -> Iterator[str]:
        """Walk an object: each key, after which its value must be taken."""
        self._expect("{")
        if self._take("}"):
            return
        while True:
            key = self.value()
            self._expect(":")
            yield str(key)
            if self._take("}"):
                return
            self._expect(",")

    def entries(self) -> Iterator[None]:
        """Walk an array: once per entry, which must then be taken."""
        self._expect("[")
        if self._take("]"):
            return
        while True:
            yield None
            if self._take("]"):
                return
            self._expect(",")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _take(self, mark: str) -> bool:
        self._skip()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise ValueError(f"{mark!r} expected at character {self._at}")
