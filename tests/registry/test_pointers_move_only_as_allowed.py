"""A protected pointer moves by proposal, gates and another account's approval; of two movers one wins."""

from __future__ import annotations

import threading

import pytest

from hat_registry import accounts, clock, evidence, gates, ledger, pointers, proposals
from hat_registry.errors import ConflictError, ForbiddenError, GateError, InvalidError, NotFoundError
from tests.registry.conftest import Place, push


def promoted(place: Place, digest: str, reason: str = "better") -> pointers.Position:
    with place.database.write() as tx:
        opened = proposals.propose(tx, place.ada, "harness", "shop", "production", digest, reason=reason)
        proposals.decide(tx, place.bo, opened.id, "approve")
        return proposals.promote(tx, place.ada, opened.id)


def test_a_protected_pointer_cannot_be_moved_directly(place: Place) -> None:
    digest = push(place, "one")
    with place.database.write() as tx, pytest.raises(ForbiddenError, match="protected"):
        pointers.move_free(tx, place.ada, "harness", "shop", "production", digest)


def test_a_free_pointer_moves_at_once_and_again_changes_nothing(place: Place) -> None:
    digest = push(place, "one")
    with place.database.write() as tx:
        first = pointers.move_free(tx, place.ada, "harness", "shop", "staging", digest)
        again = pointers.move_free(tx, place.ada, "harness", "shop", "staging", digest)
    assert first == again
    assert first.revision == 1


@pytest.mark.parametrize("name", ["latest", "Production", "", "a/b", "x" * 80])
def test_there_is_no_pointer_called_latest_nor_a_malformed_one(place: Place, name: str) -> None:
    digest = push(place, "one")
    with place.database.write() as tx, pytest.raises(InvalidError):
        pointers.move_free(tx, place.ada, "harness", "shop", name, digest)


def test_the_author_cannot_approve_and_an_unapproved_proposal_does_not_move(place: Place) -> None:
    digest = push(place, "one")
    with place.database.write() as tx:
        opened = proposals.propose(tx, place.ada, "harness", "shop", "production", digest, reason="first")
        with pytest.raises(ForbiddenError, match="author"):
            proposals.decide(tx, place.ada, opened.id, "approve")
        with pytest.raises(ForbiddenError, match="0 of 1 approvals"):
            proposals.promote(tx, place.ada, opened.id)
        with pytest.raises(ForbiddenError, match="eve may not approve"):
            proposals.decide(tx, place.eve, opened.id, "approve")


def test_gates_hold_until_their_evidence_is_there_and_good(place: Place) -> None:
    digest = push(place, "one")
    gate = gates.Gate(id="t2", title="T2 accuracy", observed="suites.T2.accuracy", threshold=0.9)
    with place.database.write() as tx:
        pointers.set_policy(tx, accounts.SYSTEM, "harness", "production", 1, [gate])
        opened = proposals.propose(tx, place.ada, "harness", "shop", "production", digest, reason="first")
        proposals.decide(tx, place.bo, opened.id, "approve")
        assert [one.outcome for one in proposals.run_gates(tx, place.ada, opened.id)] == ["missing"]
        with pytest.raises(GateError, match="T2 accuracy"):
            proposals.promote(tx, place.ada, opened.id)
        low = evidence.Evidence(subject=digest, type="evaluation", content={"suites": {"T2": {"accuracy": 0.5}}})
        evidence.add(tx, place.ada, low)
        with pytest.raises(GateError, match=r"0\.5, needs >= 0\.9"):
            proposals.promote(tx, place.ada, opened.id)
        high = evidence.Evidence(subject=digest, type="evaluation", content={"suites": {"T2": {"accuracy": 0.93}}})
        evidence.add(tx, place.ada, high)
        assert proposals.promote(tx, place.ada, opened.id).digest == digest
        assert proposals.get(tx, "default", opened.id).state == "moved"


def test_the_later_of_two_proposals_learns_who_moved_first(place: Place) -> None:
    one, two = push(place, "one"), push(place, "two")
    with place.database.write() as tx:
        first = proposals.propose(tx, place.ada, "harness", "shop", "production", one, reason="a")
        second = proposals.propose(tx, place.bo, "harness", "shop", "production", two, reason="b")
        proposals.decide(tx, place.bo, first.id, "approve")
        proposals.decide(tx, place.ada, second.id, "approve")
        proposals.promote(tx, place.ada, first.id)
        with pytest.raises(ConflictError, match="superseded"):
            proposals.promote(tx, place.bo, second.id)
        with pytest.raises(ConflictError, match=f"ada moved it to {one}"):
            pointers.move(tx, place.bo, "harness", "shop", "production", two, revision=0)


def test_of_many_concurrent_moves_exactly_one_wins(place: Place) -> None:
    start = push(place, "zero")
    promoted(place, start)
    digests = [push(place, f"text {number}") for number in range(6)]
    outcomes: list[str] = []
    losers: list[str] = []
    gate = threading.Barrier(len(digests))

    def mover(digest: str) -> None:
        gate.wait(timeout=20)
        try:
            with place.database.write() as tx:
                pointers.move(tx, place.ada, "harness", "shop", "production", digest, revision=1)
            outcomes.append(digest)
        except ConflictError as error:
            losers.append(str(error))

    threads = [threading.Thread(target=mover, args=(digest,)) for digest in digests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(outcomes) == 1
    assert len(losers) == len(digests) - 1
    assert all("moved it to" in told for told in losers)
    with place.database.read() as tx:
        assert pointers.resolve(tx, "default", "harness", "shop", "production").digest == outcomes[0]
        ledger.verify(tx, "default")


def test_rollback_is_one_action_to_any_past_position_with_a_reason(place: Place) -> None:
    one, two, three = (push(place, word) for word in ("one", "two", "three"))
    promoted(place, one)
    promoted(place, two)
    with place.database.write() as tx:
        with pytest.raises(InvalidError, match="reason"):
            pointers.rollback(tx, place.bo, "harness", "shop", "production", reason=" ")
        back = pointers.rollback(tx, place.bo, "harness", "shop", "production", reason="prices are wrong")
        assert back.digest == one
        assert back.urgent
        with pytest.raises(InvalidError, match="was never at"):
            pointers.rollback(tx, place.bo, "harness", "shop", "production", to=three, reason="no")
        assert pointers.rollback(tx, place.bo, "harness", "shop", "production", to=two, reason="ok").digest == two
        newest = ledger.rows(tx, "default", newest_first=True, limit=1)[0]
    assert newest.kind == "rollback"
    assert newest.data["reason"] == "ok"


def test_rollback_without_a_past_is_refused(place: Place) -> None:
    promoted(place, push(place, "one"))
    with place.database.write() as tx, pytest.raises(ConflictError, match="no earlier position"):
        pointers.rollback(tx, place.bo, "harness", "shop", "production", reason="bad")


def test_what_ran_at_a_time_is_a_query(place: Place) -> None:
    one, two = push(place, "one"), push(place, "two")
    before = clock.text(clock.now())
    promoted(place, one)
    between = clock.text(clock.now())
    promoted(place, two)
    with place.database.read() as tx:
        seen = [
            pointers.as_of(tx, "default", "harness", "shop", "production", at)
            for at in (before, between, clock.text(clock.now()))
        ]
    assert seen == [None, one, two]


def test_a_pointer_to_an_unknown_digest_is_refused(place: Place) -> None:
    push(place, "one")
    with place.database.write() as tx, pytest.raises(NotFoundError):
        pointers.move_free(tx, place.ada, "harness", "shop", "staging", "sha256:" + "0" * 64)


@pytest.mark.parametrize("expression", ["suites.T2.", "nothing.T2 > 1", "'a' + 1", ""])
def test_a_gate_that_does_not_type_check_is_refused_when_it_is_made(expression: str) -> None:
    with pytest.raises(Exception, match=r"gate expression|string"):
        gates.Gate(id="bad", observed=expression, threshold=1)


@pytest.mark.parametrize(
    ("observed", "outcome"),
    [
        ("suites.T2.accuracy", "passed"),
        ("suites.T9.accuracy", "missing"),
        ("1.0 / 0.0 * 0.0", "missing"),
        ("suites.T2", "missing"),
        ("suites.T2.accuracy - baseline.T2.accuracy", "failed"),
        ("approvals", "passed"),
        ("diff.changed_tools == 0", "failed"),
    ],
)
def test_only_a_number_that_meets_its_threshold_passes(observed: str, outcome: str) -> None:
    context = {
        "suites": {"T2": {"accuracy": 0.95}},
        "baseline": {"T2": {"accuracy": 0.9}},
        "approvals": 1,
        "diff": {"changed_tools": 2},
    }
    assert gates.evaluate(gates.Gate(id="g", observed=observed, threshold=0.9), context).outcome == outcome
