"""Labels as JSONL, both ways: projects with their tasks, ratings by pseudonym, settled labels.

Always holds: what was exported imports as the same; an import with one bad line changes nothing and names the line; no
account name leaves the store. Single ratings have the form that the judge reads (`hat_components.judge.labels.Label`).
Not here: keeping labels (store).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from hat_components.judge.labels import Label
from hat_components.judge.rubric import Record
from hat_components.label.model import PREFERENCE, Project, Rating, Task
from hat_components.label.store import LabelStore, settled
from hat_components.step import InputError
from hat_registry.accounts import Actor

IMPORTED = "import:"
"""Before the account of a rater who came with a file."""


class PairLabel(Record):
    """What one person said of one pair. One line of a file."""

    pair: str
    winner: str
    """a, tie or b."""
    cause: str = ""
    rater: str = ""
    """Pseudonym; "" for the settled label."""


def tasks_lines(project: Project, tasks: Iterable[Task]) -> Iterator[str]:
    """The project, then one task per line."""
    yield project.model_dump_json()
    yield from (task.model_dump_json() for task in tasks)


def read_tasks(lines: Iterable[str | bytes], place: str = "tasks") -> tuple[Project, list[Task]]:
    """A project and its tasks; InputError names the first line that is neither."""
    project, tasks = None, []
    for number, line in _numbered(lines):
        try:
            if project is None:
                project = Project.model_validate_json(line)
            else:
                tasks.append(Task.model_validate_json(line))
        except ValidationError as error:
            raise _bad(error, place, number) from error
    if project is None:
        raise InputError("there is no project", place=place, cure="the first line is the project")
    return project, tasks


def export(store: LabelStore, actor: Actor, name: str, *, final: bool = False) -> Iterator[str]:
    """Ratings one per line, by pseudonym; `final`: one settled label per item and criterion instead."""
    project = store.project(actor, name)
    ratings = store.ratings(actor, name)
    if final:
        found = settled(ratings, store.decisions(actor, name))
        for (item, criterion), (label, cause) in sorted(found.items()):
            yield _line(project, item, criterion, label, cause, "")
        return
    names = store.pseudonyms(actor, name)
    for one in ratings:
        yield _line(project, one.item, one.criterion, one.label, one.cause, names[one.account])


def import_labels(store: LabelStore, actor: Actor, name: str, lines: Iterable[str | bytes]) -> int:
    """Take over ratings from lines as `export` writes them: all, or none with the line that is wrong."""
    project = store.project(actor, name)
    ratings: list[Rating] = []
    known = {task.id for task in store.tasks(actor, name)}
    for number, line in _numbered(lines):
        one = _rating(project, line, number)
        if one.item not in known:
            raise InputError(
                f"there is no item {one.item[:80]!r}", place=f"labels:{number}", cure="import its tasks first"
            )
        criterion = project.criterion(one.criterion)
        if criterion is None or one.label not in criterion.labels:
            cure = ", ".join(criterion.labels if criterion else (c.name for c in project.criteria))
            raise InputError(
                f"{one.criterion}: {one.label!r} is no label of this project", place=f"labels:{number}", cure=cure
            )
        ratings.append(one)
    if not ratings:
        raise InputError("there is no label", place="labels", cure="one label a line")
    pseudonyms = {one.account: one.account.removeprefix(IMPORTED) for one in ratings}
    return store.put_all(actor, name, ratings, pseudonyms)


def _rating(project: Project, line: str | bytes, number: int) -> Rating:
    try:
        if project.kind == "pair":
            pair = PairLabel.model_validate_json(line)
            said = {"item": pair.pair, "criterion": PREFERENCE, "label": pair.winner, "cause": pair.cause}
            rater = pair.rater
        else:
            label = Label.model_validate_json(line)
            said = {"item": label.subject, "criterion": label.criterion, "label": label.label}
            rater = label.rater
        return Rating.model_validate({**said, "account": IMPORTED + (rater or "file")})
    except ValidationError as error:
        raise _bad(error, "labels", number) from error


def _line(project: Project, item: str, criterion: str, label: str, cause: str, rater: str) -> str:
    if project.kind == "pair":
        return PairLabel(pair=item, winner=label, cause=cause, rater=rater).model_dump_json()
    return Label(subject=item, criterion=criterion, label=label, rater=rater).model_dump_json()


def _numbered(lines: Iterable[str | bytes]) -> Iterator[tuple[int, str | bytes]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _bad(error: ValidationError, place: str, number: int) -> InputError:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return InputError(
        f"{where}: {first['msg']}" if where else str(first["msg"]), place=f"{place}:{number}", cure="one record a line"
    )


def split_lines(text: str) -> Sequence[str]:
    """Lines of a posted text; only real line ends count, since JSON strings may hold others."""
    return text.replace("\r\n", "\n").split("\n")


def first_record(text: str) -> dict[str, Any]:
    """The first line as JSON, {} where it is none: to tell a project from ratings."""
    try:
        found = json.loads(next((line for line in split_lines(text) if line.strip()), "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
