"""Raters see no arm and no truth; ratings are checked, replaced, counted, adjudicated; workspaces are apart."""

from __future__ import annotations

import json

import pytest

from hat_components.label.model import PREFERENCE, Project, Task
from hat_components.label.preference import agreement, preference
from hat_components.label.store import flipped, settled, winner
from hat_components.step import InputError
from hat_harness.errors import PlatformError
from hat_registry.errors import ConflictError, ForbiddenError, NotFoundError
from tests.labels.conftest import Place, pairs, person


def test_sides_are_drawn_per_rater_and_lead_back_to_the_arm(place: Place) -> None:
    project, _ = pairs()
    seen = [flipped(project, "ann", f"item-{k}") for k in range(400)]
    assert 150 < sum(seen) < 250
    for account in ("ann", "ben"):
        for item in ("x", "y", "z"):
            sides = {winner(project, account, item, side) for side in ("first", "second")}
            assert sides == {"a", "b"}
            assert winner(project, account, item, "tie") == "tie"
            assert winner(project, account, item, "first") == ("b" if flipped(project, account, item) else "a")


def test_a_rating_by_side_is_kept_by_arm_and_a_second_one_takes_its_place(place: Place) -> None:
    project, tasks = pairs()
    place.store.create(place.ann, project, tasks)
    place.store.rate(place.ann, "duel", "item-0#1", {PREFERENCE: "first"}, cause="reliability")
    kept = place.store.ratings(place.ann, "duel")
    assert [(one.label, one.cause) for one in kept] == [(winner(project, "ann", "item-0#1", "first"), "reliability")]
    place.store.rate(place.ann, "duel", "item-0#1", {PREFERENCE: "tie"}, cause="reliability")
    kept = place.store.ratings(place.ann, "duel")
    assert [(one.label, one.cause) for one in kept] == [("tie", "")]
    assert place.store.progress(place.ann, "duel").mine == 1


def test_tasks_go_to_as_many_raters_as_are_wanted_each_in_an_order_of_his_own(place: Place) -> None:
    project, tasks = pairs(8)
    place.store.create(place.ann, project, tasks)
    orders = {}
    for actor in (place.ann, place.ben):
        seen = []
        while (task := place.store.next(actor, "duel")) is not None:
            seen.append(task.id)
            place.store.rate(actor, "duel", task.id, {PREFERENCE: "tie"})
        orders[actor.account] = seen
    assert sorted(orders["ann"]) == sorted(orders["ben"]) == sorted(task.id for task in tasks)
    assert orders["ann"] != orders["ben"]
    assert place.store.next(place.cat, "duel") is None
    first = orders["ann"][0]
    after = place.store.next(place.ann, "duel", after=first)
    assert after is not None
    assert after.id == orders["ann"][1]
    back = place.store.next(place.ann, "duel", after=after.id, back=True)
    assert back is not None
    assert back.id == first
    assert place.store.next(place.ann, "duel", after=orders["ann"][-1]) is None


@pytest.mark.parametrize(
    ("item", "labels", "cause", "told"),
    [
        ("nowhere", {PREFERENCE: "a"}, "", "no item nowhere"),
        ("item-0#1", {PREFERENCE: "left"}, "", "no label"),
        ("item-0#1", {"beauty": "a"}, "", "no criterion"),
        ("item-0#1", {PREFERENCE: "a"}, "weather", "no cause"),
    ],
)
def test_what_is_no_label_of_the_project_is_refused_and_nothing_is_kept(
    place: Place, item: str, labels: dict[str, str], cause: str, told: str
) -> None:
    place.store.create(place.ann, *pairs())
    with pytest.raises(PlatformError, match=told) as refused:
        place.store.rate(place.ann, "duel", item, labels, cause=cause)
    assert refused.value.kind == "invalid_input"
    assert place.store.ratings(place.ann, "duel") == []


def test_disputes_are_adjudicated_once_raters_differ_and_the_decision_stands(place: Place) -> None:
    project, tasks = pairs()
    place.store.create(place.ann, project, tasks)
    for actor, label in ((place.ann, "a"), (place.ben, "b")):
        place.store.rate(actor, "duel", "item-0#1", {PREFERENCE: label}, cause="tool_use")
        place.store.rate(actor, "duel", "item-1#1", {PREFERENCE: "a"})
    assert place.store.progress(place.ann, "duel").disputed == 1
    ratings = place.store.ratings(place.ann, "duel")
    assert ("item-0#1", PREFERENCE) not in settled(ratings, [])
    with pytest.raises(ConflictError, match="nobody disagrees"):
        place.store.decide(place.cat, "duel", "item-1#1", PREFERENCE, "b")
    place.store.decide(place.cat, "duel", "item-0#1", PREFERENCE, "b", cause="reply_quality", reason="read it again")
    decisions = place.store.decisions(place.cat, "duel")
    assert [(one.label, one.by) for one in decisions] == [("b", "cat")]
    assert settled(ratings, decisions)["item-0#1", PREFERENCE] == ("b", "reply_quality")
    progress = place.store.progress(place.ann, "duel")
    assert (progress.disputed, progress.decided) == (0, 1)


def test_kappa_and_alpha_of_equal_labels_are_undefined_not_perfect(place: Place) -> None:
    project, tasks = pairs()
    place.store.create(place.ann, project, tasks)
    for actor in (place.ann, place.ben):
        for task in tasks:
            place.store.rate(actor, "duel", task.id, {PREFERENCE: "tie"})
    ratings = place.store.ratings(place.ann, "duel")
    found = agreement(project, ratings, PREFERENCE)
    assert found.kappa is not None
    assert (found.kappa.value, found.kappa.state) == (None, "one_class")
    assert found.alpha.value is None
    made = preference(project, tasks, ratings)
    assert (made.a.count, made.tie.count, made.b.count, made.p) == (0, 6, 0, 1.0)
    assert made.share_a.share is None
    assert (made.share_a.low, made.share_a.high) == (0.0, 1.0)


def test_workspaces_and_roles_are_apart(place: Place) -> None:
    place.store.create(place.ann, *pairs())
    elsewhere = person("ann", workspace="other")
    assert place.store.projects(elsewhere) == []
    with pytest.raises(NotFoundError, match="projects: none"):
        place.store.next(elsewhere, "duel")
    with pytest.raises(ForbiddenError, match="may not label"):
        place.store.next(person("eve", "viewer"), "duel")
    with pytest.raises(ConflictError, match="exists"):
        place.store.create(place.ben, *pairs())


def test_projects_without_items_or_with_doubled_ones_are_refused(place: Place) -> None:
    project, tasks = pairs()
    with pytest.raises(InputError, match="no items"):
        place.store.create(place.ann, project, [])
    with pytest.raises(InputError, match="stands twice"):
        place.store.create(place.ann, project, [*tasks, tasks[0]])
    assert place.store.projects(place.ann) == []


def test_erasing_an_item_takes_everything_that_was_said_of_it(place: Place) -> None:
    project, tasks = pairs()
    place.store.create(place.ann, project, tasks)
    for actor, label in ((place.ann, "a"), (place.ben, "b")):
        place.store.rate(actor, "duel", "item-0#1", {PREFERENCE: label}, comment="robin said so")
    place.store.decide(place.cat, "duel", "item-0#1", PREFERENCE, "a", reason="robin")
    assert place.store.erase(place.ann, ["item-0#1", "unknown"]) == 1
    assert place.store.ratings(place.ann, "duel") == place.store.decisions(place.ann, "duel") == []
    assert "item-0#1" not in {task.id for task in place.store.tasks(place.ann, "duel")}


def test_projects_and_tasks_survive_their_json() -> None:
    project, tasks = pairs()
    assert Project.model_validate(json.loads(project.model_dump_json())) == project
    assert [Task.model_validate_json(task.model_dump_json()) for task in tasks] == tasks
