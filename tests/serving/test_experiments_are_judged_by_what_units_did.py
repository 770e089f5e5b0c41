"""An experiment splits units by hash, counts each by its assigned arm, reads late and negative events, and says what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from hat_registry.store.database import Database
from hat_serving.experiment import expiry, records
from hat_serving.experiment.assignment import Arm, Split
from hat_serving.experiment.events import Event, Events
from hat_serving.gateway.app import pseudonym
from hat_serving.gateway.erase import erase_viewer
from hat_serving.gateway.live import Deployment, live_arm
from hat_serving.gateway.retention import Retention, expire
from tests.serving.conftest import KEY, World, by_the_book, shop

PLAN = {"name": "closing-words", "deployment": "shop", "arms": [{"name": "warm", "harness": "candidate"}]}


@pytest.fixture
def two(world: World) -> World:
    for name, gate in (("candidate", "farewell"), ("react-baseline", "plain")):
        arm = live_arm("stable", shop(gate, name))
        world.source.set(Deployment(name, Split(name, (Arm("stable", 100),)), {"stable": arm}))
    return world


def begun(world: World, **more: Any) -> dict[str, Any]:
    made = world.admin("POST", "/experiments", {**PLAN, **more})
    assert made.status_code == 201, made.text
    started = world.admin("POST", f"/experiments/{made.json()['name']}/start")
    assert started.status_code == 200, started.text
    told: dict[str, Any] = started.json()
    return told


def told(world: World, name: str = "closing-words") -> dict[str, Any]:
    answer = world.admin("GET", f"/experiments/{name}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def visit(world: World, viewer: str, text: str = "hi", room: str = "r") -> str:
    with world.client() as client:
        body = {"model": "shop", "viewer": viewer, "text": text}
        said = client.post(f"/v1/rooms/{room}/messages", json=body)
    assert said.status_code == 200, said.text
    return str(said.json()["arm"])


def tell(world: World, *events: dict[str, Any]) -> httpx.Response:
    with world.client() as client:
        return client.post("/v1/events", json={"events": list(events)})


def confirmed(viewer: str, order: str, value: int = 1000) -> dict[str, Any]:
    return {"key": f"c-{order}", "type": "order_confirmed", "viewer": viewer, "order": order, "value": value}


# ---- over a real gateway ----------------------------------------------------------------------------------------------


def test_units_split_and_are_counted_by_assigned_arm_zeros_included(two: World) -> None:
    assert visit(two, "early") == "stable"
    begun(two)
    arms = {f"v{number}": visit(two, f"v{number}") for number in range(30)}
    assert set(arms.values()) == {"control", "warm"}
    assert visit(two, "early") == "stable"
    result = told(two)["result"]
    counted = {arm["name"]: arm["units"] for arm in result["arms"]}
    assert counted == {name: list(arms.values()).count(name) for name in ("control", "warm")}
    assert result["units"] == 30
    assert all(arm["orders"] == 0 for arm in result["arms"])
    assert result["decision"]["kind"] == "go_on"


def test_events_count_once_late_and_negative(two: World) -> None:
    begun(two, metric="revenue")
    arms = {f"v{number}": visit(two, f"v{number}") for number in range(10)}
    buyer = next(viewer for viewer, arm in arms.items() if arm == "warm")
    order = confirmed(buyer, "o1")
    assert tell(two, order).json()["items"] == [{"key": "c-o1", "outcome": "stored"}]
    assert tell(two, order).json()["items"] == [{"key": "c-o1", "outcome": "repeated"}]
    other = tell(two, {**order, "value": 5})
    assert (other.status_code, other.json()["items"][0]["outcome"]) == (409, "conflict")
    units = list(arms.values()).count("warm")

    def revenue() -> float:
        return float(next(arm for arm in told(two)["result"]["arms"] if arm["name"] == "warm")["revenue"])

    assert revenue() == pytest.approx(1000 / units)
    two.admin("POST", "/experiments/closing-words/stop", {"reason": "enough"})
    refund = {"key": "r1", "type": "refund", "viewer": buyer, "order": "o1", "value": -400, "at": time.time() + 86400}
    assert tell(two, refund).status_code == 200
    assert revenue() == pytest.approx(600 / units)
    assert tell(two, {**refund, "key": "r2", "order": "of another shop"}).status_code == 200
    assert revenue() == pytest.approx(600 / units)


@pytest.mark.parametrize(
    ("event", "place"),
    [
        ({"type": "refund", "value": 5, "order": "o"}, "refund"),
        ({"type": "thumbs", "value": 3}, "thumb"),
        ({"type": "order_confirmed", "value": 5}, "order"),
        ({"type": "order_placed", "value": -5}, "refund"),
        ({"type": "item_view"}, "item"),
        ({"type": "stolen"}, "type"),
        ({"type": "thumbs", "value": 1, "key": ""}, "key"),
    ],
)
def test_events_that_mean_nothing_are_refused(two: World, event: dict[str, Any], place: str) -> None:
    answer = tell(two, {"key": "k", "viewer": "v", **event})
    assert answer.status_code == 400
    assert place in answer.text


def test_no_raw_viewer_is_kept(two: World) -> None:
    begun(two, overrides={"somebody-known": "warm"})
    visit(two, "somebody-known")
    tell(two, confirmed("somebody-known", "o1"))
    stored = b"".join(path.read_bytes() for path in two.folder.glob("gateway.db*"))
    assert b"somebody-known" not in stored


def test_an_erased_viewer_is_gone_from_experiments_too(two: World) -> None:
    begun(two)
    for viewer in ("anna", "bert"):
        visit(two, viewer)
        tell(two, confirmed(viewer, f"o-{viewer}"))
    erase_viewer(two.folder, "anna", KEY)
    result = told(two)["result"]
    assert result["units"] == 1
    assert sum((arm["orders"] or 0) * arm["units"] for arm in result["arms"]) == 1
    assert tell(two, confirmed("anna", "o-anna")).json()["items"][0]["outcome"] == "stored"


def test_rows_of_units_go_after_their_days_and_totals_stay(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "BATCH", 3)
    day = 86_400.0
    begun(two)
    viewers = [f"v{number}" for number in range(8)]
    for viewer in viewers:
        visit(two, viewer)
    tell(two, *(confirmed(viewer, viewer) for viewer in viewers[:5]))
    assert two.admin("POST", "/experiments/closing-words/stop", {"reason": "enough"}).status_code == 200
    before = told(two)
    begun(two, name="second-try")
    for viewer in viewers:
        visit(two, viewer, room="other")

    def expired(days: float, dry_run: bool = False) -> tuple[int, int, int]:
        now = datetime.fromtimestamp(time.time() + days * day, UTC)
        gone = expire(two.folder, Retention(3650, 3650, 180), now=now, dry_run=dry_run)
        return astuple(gone.experiments)

    assert expired(179) == (0, 0, 0)
    counts = expired(181, dry_run=True)
    assert counts[0] == 8
    assert expired(181) == counts
    assert (told(two)["result"], told(two)["state"]) == (before["result"], "stopped")
    assert told(two, "second-try")["result"]["units"] == 8, "of what runs nothing goes"
    tell(two, {"key": "late", "type": "refund", "viewer": "v0", "order": "v0", "value": -1000})
    assert told(two)["result"] == before["result"], "what is written down does not change any more"
    assert two.admin("POST", "/experiments/second-try/stop", {"reason": "enough"}).status_code == 200
    assert expired(181)[:2] == (8, 16)
    assert told(two, "second-try")["result"]["units"] == 8
    assert expired(181) == (0, 0, 0)


def test_overrides_get_their_arm_and_are_not_counted(two: World) -> None:
    begun(two, overrides={"boss": "warm"})
    assert visit(two, "boss") == "warm"
    assert told(two)["result"]["units"] == 0


def test_the_control_is_what_stands_now_or_the_plain_baseline(two: World) -> None:
    assert begun(two)["arms"][0]["harness"] == two.source.deployment("shop").control.digest
    two.admin("POST", "/experiments/closing-words/stop", {})
    own = begun(two, name="is-it-good", arms=[{"name": "live", "harness": "shop"}])
    assert own["arms"][0]["harness"] == two.source.deployment("react-baseline").control.digest


def test_after_the_stop_everyone_is_back_and_the_kept_arm_ends_its_talks(two: World) -> None:
    for keep, gate in (("", "bye"), ("warm", "farewell")):
        name = f"exp{len(keep)}"
        begun(two, name=name, arms=[{"name": "warm", "harness": "candidate", "weight": 99}])
        viewer = next(f"{name}-{number}" for number in range(50) if visit(two, f"{name}-{number}") == "warm")
        two.admin("POST", f"/experiments/{name}/stop", {"keep": keep})
        with two.client() as client:
            said = client.post("/v1/rooms/r/messages", json={"model": "shop", "viewer": viewer, "text": "on"}).json()
        assert said["text"].endswith(gate)
        assert visit(two, f"{name}-new") == "stable"


def test_a_rollout_and_an_experiment_exclude_each_other(two: World) -> None:
    begun(two)
    refused = two.admin("PUT", "/deployments/shop/arms/canary", {"harness": "candidate"})
    assert (refused.status_code, "is running" in refused.text) == (409, True)
    two.admin("POST", "/experiments/closing-words/stop", {})
    assert two.admin("PUT", "/deployments/shop/arms/canary", {"harness": "candidate"}).status_code == 200
    two.admin("POST", "/experiments", {**PLAN, "name": "second"})
    assert two.admin("POST", "/experiments/second/start").status_code == 409


def test_a_shadow_answers_unseen_and_has_no_effects(two: World) -> None:
    begun(two, shadows=[{"name": "ghost", "harness": "candidate", "percent": 100}])
    viewers = [f"v{number}" for number in range(12)]
    arms = [visit(two, viewer, "buy it") for viewer in viewers]
    assert "ghost" not in arms
    metrics = httpx.get(two.url + "/metrics").text
    deadline = time.monotonic() + 10
    while 'shadow_turns_total{arm="ghost"' not in metrics:
        assert time.monotonic() < deadline
        metrics = httpx.get(two.url + "/metrics").text
    assert len(two.tool_calls) == len(viewers)


def test_an_arm_whose_engine_is_down_is_answered_by_the_controls(two: World) -> None:
    begun(two, arms=[{"name": "fresh", "harness": "candidate", "engine": "second", "weight": 99}])

    async def down(body: dict[str, Any], request: Any) -> Any:
        if body["model"] == "second":
            from aiohttp import web

            return web.Response(status=503)
        return await by_the_book(body, request)

    two.script = down
    with two.client() as client:
        for number in range(8):
            body = {"model": "shop", "viewer": f"v{number}", "text": "hi"}
            said = client.post("/v1/rooms/r/messages", json=body).json()
            assert said["outcome"] == "reply"
    assert 'hatstack_gateway_arm_fallbacks_total{arm="fresh"' in httpx.get(two.url + "/metrics").text


def test_a_ramp_goes_on_and_harm_stops_it_by_themselves(two: World) -> None:
    ramp = [{"percent": 10, "hold_s": 0}, {"percent": 100, "hold_s": 0}]
    begun(two, ramp=ramp)
    assert two.trials is not None
    two.trials.tend()
    assert [stage["percent"] for stage in told(two)["stages"]] == [10, 100]
    at = time.time()
    rows = [
        {"workspace": "default", "subject": "experiment:closing-words", "unit": f"u{n}", "assigned": "warm"}
        | {"served": "warm", "at": at}
        for n in range(400)
    ]
    with two.trials._database.write() as tx:
        tx.execute(insert(records.exposure), rows)
    two.trials._due.clear()
    two.trials.tend()
    stopped = told(two)
    assert stopped["state"] == "stopped"
    assert "promised shares" in stopped["reason"]
    changes = two.admin("GET", "/deployments/shop/changes").json()["items"]
    assert [one["actor"] for one in changes[:2]] == ["gateway", "gateway"]


@pytest.mark.parametrize("unit", ["viewer", "conversation", "room"])
def test_any_unit_is_followed_by_its_events(two: World, unit: str) -> None:
    begun(two, unit=unit, arms=[{"name": "warm", "harness": "candidate", "weight": 99}])
    for number in range(4):
        visit(two, f"v{number}", room=f"room{number}")
        sold = {
            "key": f"k{number}",
            "type": "order_confirmed",
            "viewer": f"v{number}",
            "order": f"o{number}",
            "value": 5,
        }
        assert tell(two, {**sold, "room": f"room{number}"}).status_code == 200
    result = told(two)["result"]
    assert result["units"] == 4
    assert sum((arm["revenue"] or 0) * arm["units"] for arm in result["arms"]) == pytest.approx(20)


# ---- events: laws -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def events(tmp_path: Path) -> Iterator[Events]:
    database = Database(f"sqlite:///{tmp_path}/e.db")
    yield Events(database, lambda identity: pseudonym(KEY, identity))
    database.close()


def test_a_batch_answers_for_each_and_repeats_are_harmless(events: Events) -> None:
    batch = [Event.model_validate({**confirmed("v", f"o{n}"), "value": n}) for n in range(5)]
    assert events.add(batch) == ["stored"] * 5
    assert events.add(list(reversed(batch))) == ["repeated"] * 5
    assert events.forget(pseudonym(KEY, "v")) == 5
    assert events.add(batch[:1]) == ["stored"]
