"""A changed, removed, reordered or cut-off ledger row is found and named, in the database and in an export."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import delete, text, update

from hat_registry import clock, ledger
from hat_registry.errors import InvalidError, LedgerError
from hat_registry.store.tables import ledger as rows
from hat_registry.store.tables import ledger_head
from tests.registry.conftest import Place, push


def filled(place: Place) -> int:
    for number in range(5):
        push(place, f"text {number}")
    with place.database.read() as tx:
        return ledger.verify(tx, "default").rows


def test_an_honest_chain_verifies_and_its_export_too(place: Place) -> None:
    count = filled(place)
    with place.database.read() as tx:
        lines = list(ledger.export(tx, "default"))
        seen = ledger.verify(tx, "default")
    assert count == len(lines) == seen.rows
    assert ledger.verify_export(iter(lines)) == seen


@pytest.mark.parametrize("column", ["at", "actor", "kind", "subject", "body", "hash"])
def test_a_changed_column_is_named(place: Place, column: str) -> None:
    filled(place)
    with place.database.write() as tx:
        old = tx.execute(rows.select().where(rows.c.seq == 7)).one()._mapping[column]
        new = (
            old.replace('"seq":7', '"seq": 7')
            if column == "body"
            else ("sha256:" + "1" * 64 if column == "hash" else "push!")
        )
        tx.execute(update(rows).where(rows.c.seq == 7).values({column: new}))
    with place.database.read() as tx, pytest.raises(LedgerError, match="row 7"):
        ledger.verify(tx, "default")


def test_a_rewritten_row_with_a_fresh_digest_breaks_its_successor(place: Place) -> None:
    filled(place)
    with place.database.write() as tx:
        body = json.loads(tx.execute(rows.select().where(rows.c.seq == 7)).one().body)
        body["data"]["message"] = "another story"
        written = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        tx.execute(update(rows).where(rows.c.seq == 7).values(body=written, hash=ledger._digest(written)))
    with place.database.read() as tx, pytest.raises(LedgerError, match="row 8 does not follow row 7"):
        ledger.verify(tx, "default")


def test_a_removed_row_is_named(place: Place) -> None:
    filled(place)
    with place.database.write() as tx:
        tx.execute(delete(rows).where(rows.c.seq == 4))
    with place.database.read() as tx, pytest.raises(LedgerError, match="row 4 is missing"):
        ledger.verify(tx, "default")


def test_a_cut_off_tail_is_named(place: Place) -> None:
    count = filled(place)
    with place.database.write() as tx:
        tx.execute(delete(rows).where(rows.c.seq == count))
    with place.database.read() as tx, pytest.raises(LedgerError, match=f"row {count} is missing"):
        ledger.verify(tx, "default")


def test_swapped_rows_are_named(place: Place) -> None:
    filled(place)
    with place.database.write() as tx:
        for new, old in ((1000, 5), (5, 6), (6, 1000)):
            tx.execute(update(rows).where(rows.c.seq == old).values(seq=new))
    with place.database.read() as tx, pytest.raises(LedgerError, match="row 5"):
        ledger.verify(tx, "default")


def test_export_lines_cannot_be_dropped_or_edited(place: Place) -> None:
    filled(place)
    with place.database.read() as tx:
        lines = list(ledger.export(tx, "default"))
    with pytest.raises(LedgerError, match="row 3 is missing"):
        ledger.verify_export(iter(lines[:2] + lines[3:]))
    with pytest.raises(LedgerError, match="row 4 was changed"):
        ledger.verify_export(iter([*lines[:3], lines[3].replace('"actor":"', '"actor":"x'), *lines[4:]]))
    with pytest.raises(LedgerError, match="line 1 is not a ledger row"):
        ledger.verify_export(iter(["{"]))
    with pytest.raises(LedgerError, match="row 4"):
        ledger.verify_export(iter([*lines[:3], lines[4], lines[3], *lines[5:]]))
    with pytest.raises(LedgerError, match="row 2 stands a second time"):
        ledger.verify_export(iter([*lines[:3], lines[1], *lines[3:]]))


def test_an_export_that_a_tool_reformatted_still_verifies(place: Place) -> None:
    count = filled(place)
    with place.database.read() as tx:
        lines = [json.dumps(json.loads(line), sort_keys=True, indent=None) for line in ledger.export(tx, "default")]
    assert ledger.verify_export(iter(lines)).rows == count


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"prev": 1}', "\ud83d".encode("utf-8", "replace").decode()])
def test_a_body_that_is_no_row_is_named_even_with_its_own_digest(place: Place, body: str) -> None:
    filled(place)
    with place.database.write() as tx:
        tx.execute(update(rows).where(rows.c.seq == 5).values(body=body, hash=ledger._digest(body)))
    with place.database.read() as tx, pytest.raises(LedgerError, match="row 5 was changed"):
        ledger.verify(tx, "default")


def test_exchanged_contents_are_named(place: Place) -> None:
    filled(place)
    with place.database.write() as tx:
        five, six = tx.execute(rows.select().where(rows.c.seq.in_((5, 6))).order_by(rows.c.seq)).all()
        for seq, other in ((5, six), (6, five)):
            told = {key: value for key, value in other._mapping.items() if key not in {"workspace", "seq"}}
            tx.execute(update(rows).where(rows.c.seq == seq).values(told))
    with place.database.read() as tx, pytest.raises(LedgerError, match=r"row 5 does not follow row 4.*reordered"):
        ledger.verify(tx, "default")


def test_a_row_added_past_the_head_is_named(place: Place) -> None:
    count = filled(place)
    with place.database.write() as tx:
        head = ledger.Head(
            *tx.execute(ledger_head.select().with_only_columns(ledger_head.c.seq, ledger_head.c.hash)).one()
        )
        entry = ledger.Entry(clock.text(clock.now()), "mallory", "move", "harness:shop@production", {"to": "x"})
        tx.execute(rows.insert().values(**ledger.link("default", head, entry)))
    with place.database.read() as tx, pytest.raises(LedgerError, match=f"row {count + 1} was added past the head"):
        ledger.verify(tx, "default")


def test_rows_that_are_appended_meanwhile_are_no_fault(place: Place) -> None:
    count = filled(place)
    with place.database.snapshot() as tx:
        assert ledger.verify(tx, "default").rows == count
        push(place, "while somebody verifies")
        assert ledger.verify(tx, "default").rows == count
        assert sum(1 for _ in ledger.export(tx, "default")) == count
    with place.database.read() as tx:
        assert ledger.verify(tx, "default").rows == count + 1


def test_time_never_runs_back_along_the_chain(place: Place) -> None:
    with place.database.write() as tx:
        for at in ("2026-01-02T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z", "2026-01-03T00:00:00.000000Z"):
            ledger.append(tx, "clocks", "ada", "push", "harness:x", {}, at)
        times = [row.at[:10] for row in ledger.rows(tx, "clocks")]
        until = [row.seq for row in ledger.rows(tx, "clocks", until="2026-01-02T12:00:00.000000Z", newest_first=True)]
    assert times == ["2026-01-02", "2026-01-02", "2026-01-03"]
    assert until == [2, 1]


def test_a_failed_transaction_leaves_no_row(place: Place) -> None:
    count = filled(place)

    def fail_after_append() -> None:
        with place.database.write() as tx:
            ledger.append(tx, "default", "ada", "push", "harness:shop", {})
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        fail_after_append()
    with place.database.read() as tx:
        assert ledger.verify(tx, "default").rows == count
        assert tx.execute(ledger_head.select()).one().seq == count


def test_floats_and_unknown_kinds_are_refused(place: Place) -> None:
    with place.database.write() as tx:
        with pytest.raises(InvalidError, match="unknown ledger kind"):
            ledger.append(tx, "default", "ada", "party", "x", {})
        with pytest.raises(InvalidError, match="not plain JSON"):
            ledger.append(tx, "default", "ada", "push", "x", {"big": 2**60})


def test_workspaces_have_chains_of_their_own(place: Place) -> None:
    count = filled(place)
    with place.database.write() as tx:
        first = ledger.append(tx, "other", "ada", "push", "harness:x", {})
    assert first.seq == 1
    with place.database.read() as tx:
        assert ledger.verify(tx, "default").rows == count
        assert ledger.rows(tx, "other") == [first]
        assert tx.execute(text("select count(*) from ledger")).scalar_one() == count + 1
