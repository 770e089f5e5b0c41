"""Turns that end together are committed together: each is stored or told so, and none takes another with it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from hat_registry.errors import ConflictError, StoreError
from hat_registry.store.database import Database
from hat_serving.errors import MovedError
from hat_serving.gateway.conversations import Conversations, Stored
from hat_serving.gateway.journal import Journal


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Conversations]:
    database = Database(f"sqlite:///{tmp_path}/gateway.db")
    yield Conversations(database)
    database.close()


def head(name: str) -> Stored:
    return Stored(name, "unit", "stable", "r", "sha256:" + "0" * 64, {"list": ["杯子"]}, 0, (("hi", "hello"),))


def events(number: int) -> list[Any]:
    return [(float(number), "ViewerMessage", {"texts": ["你好"], "big": 2**70})]


async def test_what_is_stored_in_a_group_is_what_one_by_one_stores(store: Conversations) -> None:
    journal = Journal(store)
    heads = [head(f"c{number}") for number in range(40)]
    for turn in range(1, 4):
        heads = list(await asyncio.gather(*(journal.append(one, events(turn)) for one in heads)))
        assert {one.turns for one in heads} == {turn}
    assert await journal.find("c7") == store.find("c7") == heads[7]
    assert await journal.find("nobody") is None
    assert [(turn[0][1], turn[0][2]) for _, turn in store.events("c7")] == [("ViewerMessage", events(1)[0][2])] * 3
    journal.close()


async def test_of_two_that_go_on_at_once_one_is_refused_and_the_others_of_its_group_are_stored(
    store: Conversations,
) -> None:
    one, other = Journal(store), Journal(store)
    begun = await one.append(head("c"), events(1))
    results = await asyncio.gather(
        one.append(begun, events(2)),
        other.append(begun, events(2)),
        one.append(head("c"), events(1)),
        *(one.append(head(f"d{number}"), events(1)) for number in range(20)),
        return_exceptions=True,
    )
    assert sorted(type(found).__name__ for found in results[:3]) == ["MovedError", "MovedError", "Stored"]
    assert all(isinstance(found, Stored) for found in results[3:])
    assert len(store.events("c")) == 2
    one.close()
    other.close()


async def test_rows_that_belong_to_a_turn_come_with_it_or_it_is_not_stored(store: Conversations) -> None:
    journal = Journal(store)
    with store.database.write() as tx:
        tx.execute(text("create table beside (name text primary key)"))

    def write(name: str) -> Any:
        return lambda tx: tx.execute(text("insert into beside values (:name)"), {"name": name})

    names = ["a", "b", "a", "c"]
    asked = [journal.append(head(f"c{number}"), events(1), write(name)) for number, name in enumerate(names)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(found, Stored) for found in results] == [True, True, False, True]
    assert isinstance(results[2], ConflictError)
    assert store.find("c2") is None
    with pytest.raises(ConflictError):
        await journal.append(head("alone"), events(1), write("a"))
    assert store.find("alone") is None
    assert (await journal.append(head("alone"), events(1), write("d"))).turns == 1
    journal.close()


async def test_a_turn_is_committed_when_append_returns_though_nobody_waits_for_it(
    store: Conversations, tmp_path: Path
) -> None:
    journal = Journal(store)
    await journal.append(head("c"), events(1))
    with sqlite3.connect(tmp_path / "gateway.db") as elsewhere:
        ((turns, room),) = elsewhere.execute("select turns, room from conversation").fetchall()
    assert (turns, json.loads(room)) == (1, {"list": ["杯子"]})
    task = asyncio.ensure_future(journal.append(replace(head("c"), turns=1), events(2)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    journal.close()
    assert store.find("c") == replace(head("c"), turns=2)


async def test_a_database_that_fails_is_told_to_every_turn_of_the_group(store: Conversations) -> None:
    journal = Journal(store)
    with store.database.write() as tx:
        tx.execute(text("alter table conversation_turn rename to gone"))
    asked = [journal.append(head(f"c{number}"), events(1)) for number in range(5)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(found, StoreError) for found in results), results
    assert store.find("c1") is None
    with store.database.write() as tx:
        tx.execute(text("alter table gone rename to conversation_turn"))
    assert (await journal.append(head("c1"), events(1))).turns == 1
    with pytest.raises(MovedError):
        await journal.append(head("c1"), events(1))
    journal.close()
