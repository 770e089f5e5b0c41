"""A changed, removed, reordered or cut-off ledger row is found and named, in the database and in an export."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import delete, text, update

from hat_registry import ledger
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
        ledger.verify_export(iter([*lines[:3], lines[3].replace('"actor": "', '"actor": "x'), *lines[4:]]))
    with pytest.raises(LedgerError, match="line 1 is not a ledger row"):
        ledger.verify_export(iter(["{"]))


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
