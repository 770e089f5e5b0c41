"""A rubric: what is asked of a reply, as Markdown with anchored levels.

    ---
    name: live-commerce
    language: en
    ---
    What the judge should know of the scene.

    # accuracy
    The question that this criterion asks.

    - **right** (1): what a reply of this level looks like. [正确]
    - **wrong** (0): what a reply of this level looks like. [错误, incorrect]

A level is a label, a score in [0, 1], an anchor and, in brackets, other words for the label that are accepted.
Always holds: a rubric has at least one criterion, each at least two levels of distinct labels, words and scores; all
faults of a file are reported at once with their lines. Not here: who applies it (spec, members).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.step import InputError
from hat_harness.digest import decimals, digest_json

_LEVEL = re.compile(r"^- \*\*(?P<label>[^*]+)\*\* \((?P<score>[0-9.]+)\): (?P<anchor>.+?)(?: \[(?P<words>[^\]]+)\])?$")
_NAME = re.compile(r"^[a-z][a-z0-9_]*$")


class Record(BaseModel):
    """Base of the records here: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Level(Record):
    """One answer that a criterion allows."""

    label: str
    score: float = Field(ge=0, le=1)
    anchor: str
    """What a reply of this level looks like."""
    words: tuple[str, ...] = ()
    """Further words for the label that are understood, such as other languages."""


class Criterion(Record):
    """One question with its levels, best first."""

    name: str = Field(pattern=_NAME.pattern)
    question: str
    levels: tuple[Level, ...] = Field(min_length=2)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels from the lowest score to the highest."""
        return tuple(level.label for level in sorted(self.levels, key=lambda level: level.score))

    def score(self, label: str) -> float:
        """Score of a label; KeyError for one that the criterion does not have."""
        return {level.label: level.score for level in self.levels}[label]

    def label_of(self, value: float) -> str:
        """The label of a computed score: the highest level that it reaches, else the lowest."""
        reached = [level for level in self.levels if level.score <= value + 1e-9]
        chosen = max(reached, key=lambda level: level.score) if reached else min(self.levels, key=lambda one: one.score)
        return chosen.label

    def understand(self, word: str) -> tuple[str, bool] | None:
        """(label, said in its own words) of what a member wrote, or None."""
        said = word.strip().casefold()
        for level in self.levels:
            if said == level.label.casefold():
                return level.label, True
        for level in self.levels:
            if said in (other.casefold() for other in level.words):
                return level.label, False
        return None


class Rubric(Record):
    """A whole rubric."""

    name: str
    language: Literal["en", "zh"] = "en"
    scene: str = ""
    """What every criterion presupposes."""
    criteria: tuple[Criterion, ...] = Field(min_length=1)

    @property
    def digest(self) -> str:
        """Digest of what is asked, not of how the file is laid out."""
        return digest_json(decimals(self.model_dump(mode="json")))

    def criterion(self, name: str) -> Criterion:
        """The criterion `name`; InputError where there is none."""
        found = next((one for one in self.criteria if one.name == name), None)
        if found is None:
            known = ", ".join(one.name for one in self.criteria)
            raise InputError(f"the rubric has no criterion {name!r}", place=self.name, cure=f"criteria: {known}")
        return found


def load_rubric(path: Path) -> Rubric:
    """Read a rubric file; InputError lists every fault with its line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the rubric cannot be read: {error}", place=str(path)) from error
    return parse_rubric(text, str(path))


def parse_rubric(text: str, place: str = "rubric") -> Rubric:
    """A rubric from its Markdown; InputError lists every fault with its line."""
    lines = text.splitlines()
    head, start, faults = _front_matter(lines)
    scene, sections = _sections(lines, start)
    criteria = [_criterion(name, number, body, faults) for name, number, body in sections]
    if not sections:
        faults.append((len(lines), "no criterion: write one as `# name`"))
    names = [name for name, _, _ in sections]
    for name, number, _ in sections:
        if names.count(name) > 1 and names.index(name) != [n for _, n, _ in sections].index(number):
            faults.append((number, f"criterion {name!r} stands twice"))
    if faults:
        listed = "; ".join(f"line {number}: {fault}" for number, fault in sorted(faults))
        raise InputError(listed, place=place, cure="see hat_components.judge.rubric for the form")
    try:
        return Rubric.model_validate({**head, "scene": scene, "criteria": criteria})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", place=place) from error


def _front_matter(lines: list[str]) -> tuple[dict[str, object], int, list[tuple[int, str]]]:
    """(fields, index of the first line after it, faults)."""
    if not lines or lines[0].strip() != "---":
        return {}, 0, [(1, "no front matter: begin with --- and a name")]
    end = next((k for k, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        return {}, len(lines), [(1, "the front matter does not end with ---")]
    try:
        head = yaml.safe_load("\n".join(lines[1:end])) or {}
    except yaml.YAMLError as error:
        return {}, end + 1, [(1, f"the front matter is not YAML: {str(error).splitlines()[0]}")]
    if not isinstance(head, dict) or not isinstance(head.get("name"), str):
        return {}, end + 1, [(1, "the front matter has no name")]
    unknown = sorted(set(head) - {"name", "language"})
    return head, end + 1, [(1, f"unknown key {key!r} in the front matter") for key in unknown]


def _sections(lines: list[str], start: int) -> tuple[str, list[tuple[str, int, list[tuple[int, str]]]]]:
    """The text before the first heading, and (name, line, body lines with numbers) of every criterion."""
    scene: list[str] = []
    sections: list[tuple[str, int, list[tuple[int, str]]]] = []
    for number, line in enumerate(lines[start:], start + 1):
        if line.startswith("# "):
            sections.append((line[2:].strip(), number, []))
        elif sections:
            sections[-1][2].append((number, line))
        else:
            scene.append(line)
    return "\n".join(scene).strip(), sections


def _criterion(name: str, number: int, body: list[tuple[int, str]], faults: list[tuple[int, str]]) -> Criterion | None:
    """One criterion, or None after adding what is wrong with it."""
    before = len(faults)
    if not _NAME.match(name):
        faults.append((number, f"{name!r} is no name: lower case letters, digits, underscores"))
    levels: list[Level] = []
    question: list[str] = []
    for at, line in body:
        match = _LEVEL.match(line.rstrip())
        if match is None and line.startswith("- "):
            faults.append((at, "a level is written `- **label** (score): anchor [other words]`"))
        elif match is None:
            question.append(line)
        else:
            levels.append(_level(match, at, faults))
    if len(levels) < 2:
        faults.append((number, f"{name!r} has {len(levels)} levels, two are the least"))
    words = [word.casefold() for level in levels for word in (level.label, *level.words)]
    faults.extend(
        (number, f"{word!r} stands for two levels") for word in sorted({w for w in words if words.count(w) > 1})
    )
    if len({level.score for level in levels}) < len(levels):
        faults.append((number, "two levels have one score"))
    if len(faults) > before:
        return None
    return Criterion(name=name, question="\n".join(question).strip(), levels=tuple(levels))


def _level(match: re.Match[str], at: int, faults: list[tuple[int, str]]) -> Level:
    try:
        score = float(match["score"])
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:
        faults.append((at, f"the score {match['score']} is not in [0, 1]"))
        score = 0.0
    words = tuple(word.strip() for word in (match["words"] or "").split(",") if word.strip())
    return Level(label=match["label"].strip(), score=score, anchor=match["anchor"].strip(), words=words)
