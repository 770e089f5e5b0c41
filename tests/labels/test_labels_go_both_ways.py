"""JSONL out and in: the same again, all or nothing, by pseudonym, in the judge's form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hat_components.evaluate.result import load_evaluation
from hat_components.judge.labels import read_labels
from hat_components.judge.spec import load_judge
from hat_components.judge.step import read_traces
from hat_components.judge.subject import subjects_of_evaluation
from hat_components.label.exchange import export, import_labels, read_tasks, tasks_lines
from hat_components.label.model import PREFERENCE
from hat_components.label.tasks import single_project, single_tasks
from hat_components.step import InputError
from tests.labels.conftest import Place, pairs


def rate(place: Place) -> None:
    project, tasks = pairs()
    place.store.create(place.ann, project, tasks)
    for actor, labels in ((place.ann, ("a", "tie", "b")), (place.ben, ("a", "b", "b"))):
        for task, label in zip(tasks, labels, strict=False):
            place.store.rate(actor, "duel", task.id, {PREFERENCE: label}, cause="tool_use")


def test_exported_ratings_import_as_the_same_without_account_names(place: Place) -> None:
    rate(place)
    lines = list(export(place.store, place.ann, "duel"))
    assert not any("ann" in line or "ben" in line for line in lines)
    project, tasks = pairs(name="again")
    place.store.create(place.ann, project, tasks)
    assert import_labels(place.store, place.cat, "again", lines) == len(lines) == 6
    assert sorted(export(place.store, place.ann, "again")) == sorted(lines)
    assert import_labels(place.store, place.cat, "again", lines) == 6
    assert sorted(export(place.store, place.ann, "again")) == sorted(lines)
    final = [json.loads(line) for line in export(place.store, place.ann, "duel", final=True)]
    assert [(one["pair"], one["winner"]) for one in final] == [("item-0#1", "a"), ("item-2#1", "b")]


def test_projects_with_tasks_read_back_as_they_were(tmp_path: Path) -> None:
    project, tasks = pairs()
    lines = list(tasks_lines(project, tasks))
    assert read_tasks([*lines, "", "  "]) == (project, tasks)
    with pytest.raises(InputError, match="there is no project"):
        read_tasks([])
    with pytest.raises(InputError) as bad:
        read_tasks([*lines[:3], '{"id": 3}'])
    assert bad.value.place == "tasks:4"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"pair": "item-9#9", "winner": "a"}', "no item 'item-9#9'"),
        ('{"pair": "item-1#1", "winner": "left"}', "no label of this project"),
        ('{"pair": "item-1#1", "winner": "a", "cause": "weather"}', "no cause"),
        ("the first one is much nicer", "Invalid JSON"),
        ('{"pair": "item-1#1"}', "winner"),
        ('{"subject": "item-1#1", "criterion": "preference", "label": "a"}', "pair"),
    ],
)
def test_one_bad_line_changes_nothing_and_is_named(place: Place, line: str, told: str) -> None:
    place.store.create(place.ann, *pairs())
    good = '{"pair": "item-0#1", "winner": "a", "cause": "tool_use", "rater": "kim"}'
    with pytest.raises(InputError, match=told):
        import_labels(place.store, place.ann, "duel", [good, "", line])
    assert place.store.ratings(place.ann, "duel") == []
    with pytest.raises(InputError, match="there is no label"):
        import_labels(place.store, place.ann, "duel", ["", " "])


def test_single_ratings_leave_in_the_form_that_the_judge_reads(
    place: Place, evaluated: dict[str, Path], tmp_path: Path
) -> None:
    rubric = load_judge("live-commerce").rubric
    folder = evaluated["live-commerce"]
    subjects = list(
        subjects_of_evaluation(load_evaluation(folder), read_traces(folder / "traces.jsonl"), "t1", rubric)
    )[:5]
    project, tasks = single_project("quality", rubric), list(single_tasks(subjects))
    place.store.create(place.ann, project, tasks)
    for task in tasks:
        place.store.rate(place.ann, "quality", task.id, {"accuracy": "right", "effectiveness": "unmet"})
    assert place.store.progress(place.ann, "quality").mine == 5
    file = tmp_path / "labels.jsonl"
    file.write_text("\n".join(export(place.store, place.ann, "quality")) + "\n")
    read = read_labels(file, rubric)
    assert {one.subject for one in read} == {one.id for one in subjects}
    assert {(one.criterion, one.label) for one in read} == {("accuracy", "right"), ("effectiveness", "unmet")}
    assert {one.rater for one in read} == {"rater-1"}
