"""What people, or the simulation, say of judged turns: the truth that a judge is held against.

Always holds: where several people labelled an item the majority counts, and an item they tied on has no truth. Not here:
collecting labels (hat_registry, console), measuring the judge (calibration).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from hat_components.judge.rubric import Record, Rubric
from hat_components.judge.subject import Subject
from hat_components.step import InputError


class Label(Record):
    """What one person said of one criterion of one subject. One line of a labels file."""

    subject: str
    criterion: str
    label: str
    rater: str = ""
    """Pseudonym; "" where the simulation is the rater."""


def labels_of(subjects: Iterable[Subject]) -> list[Label]:
    """The computed truth of simulated subjects as labels."""
    return [
        Label(subject=one.id, criterion=criterion, label=label)
        for one in subjects
        for criterion, label in sorted(one.truth.items())
    ]


def read_labels(path: Path, rubric: Rubric) -> list[Label]:
    """A labels file (JSONL); InputError lists the first line that is no label of this rubric."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            label = Label.model_validate_json(line)
        except ValidationError as error:
            raise InputError(
                str(error.errors()[0]["msg"]), place=f"{path}:{number}", cure="one label a line"
            ) from error
        understood = rubric.criterion(label.criterion).understand(label.label)
        if understood is None:
            known = ", ".join(rubric.criterion(label.criterion).labels)
            raise InputError(f"{label.label!r} is no label of {label.criterion}", place=f"{path}:{number}", cure=known)
        found.append(label.model_copy(update={"label": understood[0]}))
    return found


def settle(
    rubric: Rubric, labels: Sequence[Label]
) -> tuple[dict[str, dict[str, str]], Counter[str], dict[str, dict[str, dict[str, str]]]]:
    """Subject → criterion → majority label; items that people tied on, by criterion; criterion → rater → subject → label."""
    votes: dict[tuple[str, str], list[str]] = defaultdict(list)
    raters: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for one in labels:
        if one.label not in rubric.criterion(one.criterion).labels:
            raise InputError(f"{one.label!r} is no label of {one.criterion}", place=one.subject)
        votes[(one.subject, one.criterion)].append(one.label)
        raters[one.criterion][one.rater][one.subject] = one.label
    truth: dict[str, dict[str, str]] = defaultdict(dict)
    disputed: Counter[str] = Counter()
    for (subject, criterion), said in votes.items():
        label, count = Counter(said).most_common(1)[0]
        if 2 * count > len(said):
            truth[subject][criterion] = label
        else:
            disputed[criterion] += 1
    return dict(truth), disputed, raters
