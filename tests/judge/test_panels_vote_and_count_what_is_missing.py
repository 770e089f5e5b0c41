"""Votes, quorum, checks, order, budget; and the judge as a versioned object."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_components.judge.chat import Budget
from hat_components.judge.checks import CHECKS
from hat_components.judge.evidence import Evidence
from hat_components.judge.panel import counted, open_panel
from hat_components.judge.rubric import parse_rubric
from hat_components.judge.spec import BUILT_IN, Judge, build_judge, load_judge
from hat_components.judge.subject import Subject
from hat_components.step import InputError
from tests.judge.conftest import RUBRIC, Endpoint, endpoint_member, said, toy_judge, verdict

Serve = Callable[[Callable[[dict[str, Any], int], Any]], Endpoint]


def says(label: str, name: str) -> dict[str, Any]:
    """An oracle that always gives one accuracy."""
    row = {label: 1.0}
    return {"type": "oracle", "name": name, "confusion": {"accuracy": {"right": row, "wrong": row}}}


def silent(name: str) -> dict[str, Any]:
    return {"type": "oracle", "name": name, "missing": 1.0}


def ruling(members: list[dict[str, Any]], subject: Subject, **voting: Any) -> tuple[str, str]:
    with open_panel(toy_judge(members, voting=voting)) as panel:
        found = next(panel.judge_all([subject])).rulings["accuracy"]
    assert (found.score is None) == (found.label == "")
    return found.label, found.reason


@pytest.mark.parametrize(
    ("votes", "voting", "expected"),
    [
        ("rrw", {}, ("right", "")),
        ("rww", {}, ("wrong", "")),
        ("rw", {}, ("", "tie")),
        ("rrw", {"rule": "unanimous"}, ("", "split")),
        ("rrr", {"rule": "unanimous"}, ("right", "")),
        ("rw", {"rule": "median"}, ("wrong", "")),
        ("rrw", {"rule": "median"}, ("right", "")),
        ("r--", {"quorum": 2}, ("", "no_quorum")),
        ("r--", {"quorum": 1}, ("right", "")),
        ("---", {}, ("", "no_answer")),
    ],
)
def test_votes_become_one_ruling(
    votes: str, voting: dict[str, Any], expected: tuple[str, str], subjects: list[Subject]
) -> None:
    kinds = {"r": lambda n: says("right", n), "w": lambda n: says("wrong", n), "-": silent}
    members = [kinds[vote](f"m{k}") for k, vote in enumerate(votes)]
    assert ruling(members, subjects[0], **voting) == expected


def test_judgements_come_in_order_whatever_is_judged_side_by_side(serve: Serve, subjects: list[Subject]) -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        text = body["messages"][1]["content"]
        return said(verdict(body, "right" if len(text) % 2 else "wrong"))

    endpoint = serve(answer)
    found = []
    for parallel in (1, 7):
        with open_panel(toy_judge([endpoint_member(endpoint.url, parallel=parallel)])) as panel:
            found.append(list(panel.judge_all(subjects[:25])))
    assert found[0] == found[1]
    assert [one.subject for one in found[0]] == [one.id for one in subjects[:25]]
    assert len({one.rulings["accuracy"].label for one in found[0]}) == 2


def test_a_spent_budget_leaves_the_rest_missing(serve: Serve, subjects: list[Subject]) -> None:
    endpoint = serve(lambda body, number: said(verdict(body)))
    judge = toy_judge([endpoint_member(endpoint.url, parallel=1)])
    with open_panel(judge, budget=Budget(requests=4)) as panel:
        found = list(panel.judge_all(subjects[:10]))
    assert [bool(one.rulings["accuracy"].label) for one in found] == [True] * 4 + [False] * 6
    assert counted(found)["accuracy"] == {"budget": 6}


def test_one_member_that_is_down_does_not_stop_the_others(serve: Serve, subjects: list[Subject]) -> None:
    up = serve(lambda body, number: said(verdict(body)))
    down = serve(lambda body, number: (500, {}, {}))
    members = [endpoint_member(up.url, "up"), endpoint_member(down.url, "down", attempts=1)]
    with open_panel(toy_judge(members), sleep=lambda seconds: None) as panel:
        found = next(panel.judge_all(subjects[:1]))
        assert panel.usage["down"].requests == 1
    assert found.rulings["accuracy"].label == "right"
    assert [(vote.by, vote.reason) for vote in found.rulings["accuracy"].votes] == [("up", ""), ("down", "server")]


def altered(subject: Subject, **changes: Any) -> Subject:
    """The subject with the note that ends its turn changed."""
    entries = []
    for entry in subject.trace.entries:
        if entry.kind == "note" and entry.type == "end" and entry.turn == subject.turn:
            entry = entry.model_copy(update={"data": {**entry.data, **changes}})
        entries.append(entry)
    return subject.model_copy(update={"trace": subject.trace.model_copy(update={"entries": tuple(entries)})})


def test_no_check_refutes_the_scripted_expert(subjects: list[Subject]) -> None:
    wrong = {
        name: [found for subject in subjects if (found := check(Evidence(subject)))] for name, check in CHECKS.items()
    }
    assert wrong == {name: [] for name in CHECKS}


def test_checks_find_what_they_are_for(subjects: list[Subject]) -> None:
    subject = next(one for one in subjects if Evidence(one).judged.outcome == "reply")
    instructions = Evidence(subject).instructions()
    cases = {
        "ended": altered(subject, outcome="safe"),
        "replied": altered(subject, text=" , . "),
        "numbers_have_a_source": altered(subject, text="only 98765 yuan"),
        "instructions_not_leaked": altered(subject, text=f"sure : {instructions[:200]}"),
    }
    for name, broken in cases.items():
        assert CHECKS[name](Evidence(broken)), name
    assert not CHECKS["numbers_have_a_source"](Evidence(altered(subject, text="no number here")))
    reason = CHECKS["numbers_have_a_source"](Evidence(cases["numbers_have_a_source"]))
    assert reason == "no source for 98765"


def test_what_a_check_refutes_is_not_asked(serve: Serve, subjects: list[Subject]) -> None:
    endpoint = serve(lambda body, number: said(verdict(body)))
    uses = [
        {"check": "numbers_have_a_source", "criterion": "accuracy", "label": "wrong"},
        {"check": "ended", "criterion": "effectiveness", "label": "unmet"},
    ]
    judge = toy_judge([endpoint_member(endpoint.url)], checks=uses)
    one = altered(subjects[0], text="98765")
    both = altered(subjects[0], text="98765", outcome="safe")
    with open_panel(judge) as panel:
        half, none = panel.judge_all([one, both])
    assert half.rulings["accuracy"].votes[0].by == "check:numbers_have_a_source"
    assert half.rulings["effectiveness"].label == "met"
    assert none.rulings["effectiveness"].label == "unmet"
    assert len(endpoint.bodies) == 1
    asked = endpoint.bodies[0]["response_format"]["json_schema"]["schema"]["properties"]["verdicts"]["properties"]
    assert list(asked) == ["effectiveness"]


# ---- the judge as an object -----------------------------------------------------------------------------------


def test_every_judge_that_ships_is_valid() -> None:
    for folder in BUILT_IN.iterdir():
        assert load_judge(folder.name).digest == load_judge(folder).digest


def test_the_digest_is_of_what_can_change_a_verdict() -> None:
    base = toy_judge([endpoint_member("http://a/v1")])
    same = [
        toy_judge([endpoint_member("http://b/v1", parallel=9, prompt_price=3.0)]),
        toy_judge([endpoint_member("http://a/v1")], revision=7, note="moved"),
    ]
    other = [
        toy_judge([endpoint_member("http://a/v1", temperature=0.5)]),
        toy_judge([endpoint_member("http://a/v1", evidence="tools")]),
        toy_judge([endpoint_member("http://a/v1", ask_again=0)]),
        toy_judge([endpoint_member("http://a/v1")], voting={"rule": "median"}),
        base.at("http://a/v1", "another-model"),
        base.model_copy(update={"rubric": parse_rubric(RUBRIC.replace("Is it true?", "Is it really true?"))}),
    ]
    assert {one.digest for one in same} == {base.digest}
    digests = [one.digest for one in other]
    assert len({base.digest, *digests}) == 1 + len(other)
    assert base.at("http://elsewhere/v1").digest == base.digest


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"members": []}, "members"),
        ({"members": [says("right", "x"), says("right", "x")]}, "two members are called x"),
        ({"voting": {"quorum": 3}}, "quorum of 3"),
        ({"checks": [{"check": "nope", "criterion": "accuracy", "label": "wrong"}]}, "no check 'nope'"),
        ({"checks": [{"check": "ended", "criterion": "accuracy", "label": "maybe"}]}, "no accuracy: maybe"),
        (
            {"members": [{"type": "oracle", "name": "o", "confusion": {"accuracy": {"right": {"right": 0.7}}}}]},
            "add up to 1",
        ),
        ({"members": [{"type": "seer", "name": "o"}]}, "members"),
        ({"surprise": 1}, "surprise"),
        ({"members": [endpoint_member("ftp://x")]}, "url"),
    ],
)
def test_a_judge_that_does_not_fit_together_is_refused(fields: dict[str, Any], fault: str) -> None:
    good: dict[str, Any] = {"name": "toy", "rubric": parse_rubric(RUBRIC), "members": [says("right", "x")]}
    with pytest.raises(InputError, match=fault):
        build_judge({**good, **fields})


def test_a_missing_or_broken_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no judge at"):
        load_judge("nobody")
    for text, fault in (("[1", "not YAML"), ("- 1", "a mapping")):
        (tmp_path / "judge.yaml").write_text(text)
        with pytest.raises(InputError, match=fault):
            load_judge(tmp_path)


def test_a_judge_survives_being_written_down(subjects: list[Subject]) -> None:
    judge = toy_judge([says("right", "x"), endpoint_member("http://a/v1")])
    assert Judge.model_validate(json.loads(judge.model_dump_json())).digest == judge.digest
