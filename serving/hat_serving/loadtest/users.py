"""The viewers as Locust users: the file that Locust runs, in a process of its own (`python -m locust -f users.py`).

HATSTACK_LOADTEST_PLAN holds the plan as JSON, HATSTACK_LOADTEST_TURNS the file that every turn is appended to. Beside the
requests, Locust's pages and statistics get `ttft` and `between pieces` as entries of their own. Always holds: a
viewer says one thing at a time and waits for the answer; a turn is written when it is over, whatever became of it.
Not here: what is said (viewers), the request (ask), reading the turns back (measured).
"""

from __future__ import annotations

import os
import random
import time
from itertools import count
from pathlib import Path
from typing import Any

import gevent
import gevent.event
from locust import LoadTestShape, User, events, task

from hat_serving.loadtest.ask import Asker, TurnRecord
from hat_serving.loadtest.plan import LoadPlan
from hat_serving.loadtest.shapes import viewers_at
from hat_serving.loadtest.viewers import asked_of, conversation, on_sale

PLAN = LoadPlan.model_validate_json(os.environ["HATSTACK_LOADTEST_PLAN"])
TURNS = Path(os.environ["HATSTACK_LOADTEST_TURNS"]).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - for the process's life
_NUMBERS = count()


class _Sale:
    """Sales so far; `wake` is set anew for each."""

    number = 0
    wake = gevent.event.Event()


class Viewers(LoadTestShape):  # type: ignore[misc]  # Locust ships no types
    """The plan's shape."""

    def tick(self) -> tuple[int, float] | None:
        """Viewers wanted now and how many may come in a second."""
        wanted = viewers_at(PLAN, self.get_run_time())
        return None if wanted is None else (wanted, PLAN.spawn_rate)


class Viewer(User):  # type: ignore[misc]  # as above
    """One viewer: conversations of some turns each, with think time, woken by sales."""

    host = PLAN.url

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.number = next(_NUMBERS)
        self.rng = random.Random(f"loadtest/{PLAN.seed}/{self.number}/think")
        self.asker = Asker(PLAN.url, PLAN.model, PLAN.timeout_s)
        self.began = 0
        self.sales = _Sale.number

    def on_stop(self) -> None:
        """Hang up."""
        self.asker.close()

    @task  # type: ignore[untyped-decorator]  # as above
    def talk(self) -> None:
        """One conversation."""
        self.began += 1
        name = f"load-{PLAN.seed}-{self.number}-{self.began}"
        said = 0
        for turn in conversation(PLAN, self.number, self.began):
            self.think()
            record = TurnRecord(self.number, name, said + 1, turn.intent, 0.0)
            texts = turn.texts
            if self.sales != _Sale.number:
                self.sales = _Sale.number
                texts, record.intent = (asked_of(PLAN, self.number, self.sales),), "on_sale"
            self.told(self.say(record, texts, turn.event, turn.data))
            said += record.ok

    def say(self, record: TurnRecord, texts: tuple[str, ...], event: str, data: dict[str, Any]) -> TurnRecord:
        """A comment, or an event that the room has with this viewer."""
        viewer, room = f"viewer-{PLAN.seed}-{self.number}", f"room-{self.number % PLAN.rooms}"
        if not texts:
            if PLAN.route == "chat":  # a room's conversation is not the one of the viewer's chat
                record.conversation = f"{room}/{record.conversation}"
            return self.asker.room(record, room, {"viewer": record.conversation, "event": event, "data": data})
        if PLAN.route == "chat":
            return self.asker.chat(record, texts, viewer, stream=PLAN.stream)
        return self.asker.room(record, room, {"viewer": record.conversation, "texts": list(texts)})

    def think(self) -> None:
        """Wait; a sale ends the wait of the plan's share of the viewers."""
        seconds = self.rng.expovariate(1 / PLAN.think_s) if PLAN.think_s else 0.0
        if self.rng.random() < PLAN.burst_share:
            _Sale.wake.wait(seconds)
        else:
            self.sales = _Sale.number
            gevent.sleep(seconds)

    def told(self, record: TurnRecord) -> None:
        """Write the turn and tell Locust."""
        TURNS.write(record.line() + "\n")
        fault = RuntimeError(record.error) if record.error else None
        shown: dict[str, Any] = {"request_type": PLAN.route, "context": {}}
        fire = self.environment.events.request.fire
        fire(
            name=record.intent,
            response_time=1000 * record.wall,
            response_length=record.tokens_out,
            exception=fault,
            **shown,
        )
        if record.ok and record.ttft:
            fire(name="ttft", response_time=1000 * record.ttft, response_length=0, exception=None, **shown)
        for gap in record.gaps:
            fire(name="between pieces", response_time=1000 * gap, response_length=0, exception=None, **shown)


@events.test_start.add_listener  # type: ignore[untyped-decorator]  # as above
def _begin(environment: Any, **_: Any) -> None:
    if PLAN.burst_every_s:
        environment.hatstack_sales = gevent.spawn(_sell)


@events.test_stop.add_listener  # type: ignore[untyped-decorator]  # as above
def _end(environment: Any, **_: Any) -> None:
    sales = getattr(environment, "hatstack_sales", None)
    if sales is not None:
        sales.kill()


def _sell() -> None:
    """Put an item on sale every so often: tell the rooms, then wake the viewers."""
    asker = Asker(PLAN.url, PLAN.model, PLAN.timeout_s)
    while True:
        gevent.sleep(PLAN.burst_every_s)
        _Sale.number += 1
        for room in range(PLAN.rooms):
            told = TurnRecord(-1, f"host-{room}", _Sale.number, "item_on_sale", time.time())
            data = {"item": on_sale(PLAN, _Sale.number)}
            asker.room(told, f"room-{room}", {"viewer": "host", "event": "item_on_sale", "data": data})
            TURNS.write(told.line() + "\n")
        woken, _Sale.wake = _Sale.wake, gevent.event.Event()
        woken.set()
