"""Pairwise comparison: consistent wins, ties, position bias, missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hat_components.judge.evidence import Evidence
from hat_components.judge.pairwise import Pair, Preference, compare_all, summarise
from hat_components.judge.panel import open_panel
from hat_components.judge.subject import Subject
from hat_components.step import InputError
from tests.judge.conftest import Endpoint, code_of, endpoint_member, said, toy_judge

Serve = Callable[[Callable[[dict[str, Any], int], Any]], Endpoint]


def pairs(subjects: Sequence[Subject], count: int) -> list[Pair]:
    return [Pair(id=str(k), a=subjects[2 * k], b=subjects[2 * k + 1]) for k in range(count)]


def choose(body: dict[str, Any], winner: str) -> Any:
    return said(json.dumps({"case": code_of(body), "rationale": "why", "winner": winner}))


def places(body: dict[str, Any]) -> tuple[str, str]:
    """The first and the second reply as they were shown."""
    text = body["messages"][1]["content"]
    first, second = text.index("<<first reply"), text.index("<<second reply")
    return text[first:second], text[second:]


def run(url: str, found: Sequence[Pair], **settings: Any) -> list[Preference]:
    with open_panel(toy_judge([endpoint_member(url, **settings)]), sleep=lambda seconds: None) as panel:
        return list(compare_all(panel, found))


def test_a_member_that_knows_what_it_prefers_wins_in_both_orders(serve: Serve, subjects: list[Subject]) -> None:
    found = pairs(subjects, 6)
    better = {pair.id: Evidence(pair.a).fence for pair in found}

    def prefers_a(body: dict[str, Any], number: int) -> Any:
        first, _ = places(body)
        return choose(body, "first" if any(fence in first for fence in better.values()) else "second")

    endpoint = serve(prefers_a)
    seen = run(endpoint.url, found)
    assert [one.winner for one in seen] == ["a"] * 6
    assert len(endpoint.bodies) == 12
    assert seen[0].rationales == ("why", "why")
    swapped = [pair.model_copy(update={"a": pair.b, "b": pair.a}) for pair in found]
    assert [one.winner for one in run(endpoint.url, swapped)] == ["b"] * 6


def test_naming_the_same_place_twice_is_a_tie_and_counted_as_bias(serve: Serve, subjects: list[Subject]) -> None:
    endpoint = serve(lambda body, number: choose(body, "first"))
    seen = run(endpoint.url, pairs(subjects, 5))
    assert [(one.winner, one.swayed) for one in seen] == [("tie", 1)] * 5
    total = summarise(seen)
    assert (total.a, total.b, total.tie, total.swayed) == (0, 0, 5, 1.0)
    assert (total.share_a, total.p) == (None, 1.0)


def test_a_tie_in_one_order_is_a_tie(serve: Serve, subjects: list[Subject]) -> None:
    endpoint = serve(lambda body, number: choose(body, "tie" if number % 2 else "first"))
    seen = run(endpoint.url, pairs(subjects, 2), parallel=1)
    assert [(one.winner, one.swayed) for one in seen] == [("tie", 0)] * 2


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("I prefer the first.", "prose"), ('{"case": "x", "winner": "first"}', "no_case_code"), ("", "empty")],
)
def test_what_cannot_be_read_is_missing(serve: Serve, subjects: list[Subject], reply: str, reason: str) -> None:
    endpoint = serve(lambda body, number: said(reply))
    seen = run(endpoint.url, pairs(subjects, 2))
    assert [(one.winner, one.reason) for one in seen] == [("", reason)] * 2
    total = summarise(seen)
    assert total.missing == {reason: 2}
    assert (total.low, total.high) == pytest.approx((0.0, 1.0))


def test_an_unknown_winner_and_a_dead_server_are_missing(serve: Serve, subjects: list[Subject]) -> None:
    odd = serve(lambda body, number: choose(body, "both"))
    assert run(odd.url, pairs(subjects, 1))[0].reason == "unknown_label"
    dead = serve(lambda body, number: (500, {}, {}))
    assert run(dead.url, pairs(subjects, 1), attempts=1)[0].reason == "server"


def test_summary_counts_wins_with_interval_and_sign_test() -> None:
    rows = [Preference(id=str(k), winner=w, votes={"m": w}) for k, w in enumerate("a" * 35 + "b" + "t" * 64)
            for w in [{"a": "a", "b": "b", "t": "tie"}[w]]]  # fmt: skip
    total = summarise(rows)
    assert (total.a, total.b, total.tie) == (35, 1, 64)
    assert total.share_a == pytest.approx(35 / 36)
    assert total.low > 0.8
    assert total.p == pytest.approx(2 * 37 / 2**36, rel=1e-6)
    with_missing = summarise([*rows, *(Preference(id=f"x{k}", reason="prose") for k in range(20))])
    assert with_missing.low < total.low - 0.2


def test_a_judge_of_oracles_cannot_compare(subjects: list[Subject]) -> None:
    with open_panel(toy_judge([{"type": "oracle", "name": "o"}])) as panel, pytest.raises(InputError, match="compare"):
        list(compare_all(panel, pairs(subjects, 1)))
