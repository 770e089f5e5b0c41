"""Arms, weights, promotion and abort through the admin API mean what the contract says, on every replica; all is counted."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_serving.canary import control
from hat_serving.canary.backends import TrafficBackend
from hat_serving.canary.backends.gateway import connect
from hat_serving.canary.controller import Controller, Settings
from hat_serving.canary.errors import BackendError
from hat_serving.canary.folder import Folder
from hat_serving.canary.spec import read_spec
from hat_serving.canary.state import TERMINAL, State
from hat_serving.canary.watch import once
from hat_serving.errors import SteeringError
from hat_serving.experiment import steering
from hat_serving.experiment.assignment import Arm, Split
from hat_serving.experiment.model import ArmPlan
from hat_serving.experiment.steering import Former, Steering
from hat_serving.gateway.live import Deployment, live_arm
from tests.serving.conftest import ADMIN, World, deploy, replica, shop


def text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.fixture
def two(world: World) -> World:
    """`shop` is live; `candidate` is a harness that the source knows too."""
    arm = live_arm("stable", shop("farewell", "candidate"))
    world.source.set(Deployment("candidate", Split("candidate", (Arm("stable", 100),)), {"stable": arm}))
    return world


def shown(world: World) -> dict[str, Any]:
    answer = world.admin("GET", "/deployments/shop")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def weigh(world: World, percent: float) -> dict[str, Any]:
    answer = world.admin("PUT", "/deployments/shop/weights", {"weights": {"canary": percent}})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def begin(world: World, percent: float) -> dict[str, Any]:
    made = world.admin("PUT", "/deployments/shop/arms/canary", {"harness": "candidate", "release": "r2"})
    assert made.status_code == 200, made.text
    return weigh(world, percent)


def test_only_an_admin_token_steers(two: World) -> None:
    for token in ("none", "wrong"):
        for method, path in (("GET", "/deployments/shop"), ("POST", "/drain"), ("PUT", "/rooms/r/mute")):
            assert two.admin(method, path, token=token).status_code == 401
    assert two.admin("GET", "/deployments/shop").status_code == 200


def test_new_conversations_split_and_running_ones_stay(two: World) -> None:
    running = [f"old{number}" for number in range(6)]
    for name in running:
        assert text(two.say("hi", name)) == "hello number 1 bye"
    told = begin(two, 50)
    assert told["effective"] == {"stable": 50, "canary": 50}
    arms = [two.say("hi", f"new{number}").headers["x-hatstack-arm"] for number in range(40)]
    assert {"stable", "canary"} == set(arms)
    assert all(text(two.say("again", name)).endswith(" bye") for name in running)
    again = [two.say("again", f"new{number}").headers["x-hatstack-arm"] for number in range(40)]
    assert again == arms
    told = shown(two)
    assert told["observed_units"] == {name: arms.count(name) for name in ("stable", "canary")}
    assert told["moves"] == {}


def test_an_abort_moves_everyone_at_the_next_message_and_is_counted(two: World) -> None:
    begin(two, 100)
    for number in range(5):
        assert text(two.say("hi", f"c{number}")) == "hello number 1 farewell"
    assert two.admin("POST", "/deployments/shop/arms/canary/abort").status_code == 200
    for number in range(5):
        assert text(two.say("hi", f"c{number}")) == "hello number 2 bye"
        assert text(two.say("hi", f"c{number}")) == "hello number 3 bye"
    assert text(two.say("hi", "fresh")) == "hello number 1 bye"
    assert shown(two)["moves"] == {"abort": 5}
    assert two.admin("DELETE", "/deployments/shop/arms/canary").status_code == 200
    metrics = httpx.get(two.url + "/metrics").text
    assert 'hatstack_gateway_arm_moves_total{arm="stable"' in metrics
    assert 'reason="abort"' in metrics


def test_promotion_comes_at_the_next_conversation_and_keeps_running_ones(two: World) -> None:
    assert text(two.say("hi", "old")) == "hello number 1 bye"
    begin(two, 50)
    refused = two.admin("POST", "/deployments/shop/arms/canary/promote")
    assert (refused.status_code, refused.json()["error"]["kind"]) == (409, "conflict")
    weigh(two, 100)
    assert text(two.say("hi", "mid")) == "hello number 1 farewell"
    promoted = two.admin("POST", "/deployments/shop/arms/canary/promote")
    assert promoted.json()["promoted"]["release"] == "r2"
    assert text(two.say("hi", "old")) == "hello number 2 bye"
    went_on = two.say("hi", "mid")
    assert (text(went_on), went_on.headers["x-hatstack-arm"]) == ("hello number 2 farewell", "stable")
    assert text(two.say("hi", "new")) == "hello number 1 farewell"
    assert shown(two)["moves"] == {"promoted": 1}
    changes = two.admin("GET", "/deployments/shop/changes").json()["items"]
    assert [one["what"] for one in changes] == ["promote", "weights", "weights", "arm"]
    assert all(one["actor"].startswith("token:") for one in changes)


def test_an_urgent_promotion_comes_at_the_next_message(two: World) -> None:
    text(two.say("hi", "old"))
    begin(two, 100)
    assert two.admin("POST", "/deployments/shop/arms/canary/promote", {"urgent": True}).status_code == 200
    assert text(two.say("hi", "old")) == "hello number 2 farewell"
    assert shown(two)["moves"] == {"urgent": 1}


def test_the_source_has_the_word_again_once_its_own_version_moves(two: World) -> None:
    begin(two, 100)
    two.admin("POST", "/deployments/shop/arms/canary/promote")
    two.source.set(deploy(shop("tada")))
    assert text(two.say("hi", "new")) == "hello number 1 tada"


def test_an_arm_may_have_an_engine_of_its_own(two: World) -> None:
    assert two.admin("PUT", "/deployments/shop/arms/canary", {"engine": "third"}).status_code == 400
    assert two.admin("PUT", "/deployments/shop/arms/canary", {"engine": "second"}).status_code == 200
    weigh(two, 100)
    assert text(two.say("hi", "c")) == "hello number 1 bye"
    assert two.asked[-1]["model"] == "second"


def test_an_override_pins_a_viewer(two: World) -> None:
    begin(two, 0)
    assert two.admin("PUT", "/deployments/shop/overrides", {"viewer": "anna", "arm": "canary"}).status_code == 200
    with two.client() as client:
        said = client.post("/v1/rooms/shop/messages", json={"viewer": "anna", "text": "hi"}).json()
        other = client.post("/v1/rooms/shop/messages", json={"viewer": "bert", "text": "hi"}).json()
    assert (said["arm"], other["arm"]) == ("canary", "stable")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/deployments/nobody", None, 400),
        ("PUT", "/deployments/shop/arms/canary", {"harness": "nobody"}, 400),
        ("PUT", "/deployments/shop/arms/stable", {"harness": "candidate"}, 409),
        ("PUT", "/deployments/shop/arms/No Name", {"harness": "candidate"}, 400),
        ("PUT", "/deployments/shop/weights", {"weights": {"canary": 10}}, 409),
        ("PUT", "/deployments/shop/weights", {"weight": 10}, 400),
        ("PUT", "/deployments/shop/weights", {"weights": "all"}, 400),
        ("POST", "/deployments/shop/arms/canary/abort", None, 409),
    ],
)
def test_what_cannot_be_is_refused_in_words(two: World, method: str, path: str, body: Any, status: int) -> None:
    answer = two.admin(method, path, body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


def test_a_room_is_muted_and_speaks_again(two: World) -> None:
    room = {"viewer": "anna", "text": "hi"}
    with two.client() as client:
        for silenced in ("shop", "*"):
            assert two.admin("PUT", f"/rooms/{silenced}/mute").json() == {"muted": True, "changed": True}
            assert client.post("/v1/rooms/shop/messages", json=room).status_code == 204
            two.admin("DELETE", f"/rooms/{silenced}/mute")
            assert client.post("/v1/rooms/shop/messages", json=room).status_code == 200


def test_a_draining_replica_takes_no_turn(two: World) -> None:
    assert two.admin("POST", "/drain").json()["draining"]
    assert two.say("hi").status_code == 429
    assert httpx.get(two.url + "/readyz").status_code == 503
    two.admin("DELETE", "/drain")
    assert two.say("hi").status_code == 200


def until(check: Any) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.02)


def test_a_split_is_effective_once_every_replica_obeys(two: World) -> None:
    with replica(two) as other:
        assert other.control is not None
        frozen, other.control.sync = other.control.sync, lambda: None  # type: ignore[method-assign]  # it hangs
        until(lambda: len(shown(two)["replicas"]) == 2)
        told = begin(two, 30)
        assert told["effective"] is None
        assert told["waits_for"] == [other.control.id]
        other.control.sync = frozen  # type: ignore[method-assign]  # it goes on
        until(lambda: shown(two)["effective"] == {"stable": 70, "canary": 30})
        arms = [two.say("hi", f"c{number}").headers["x-hatstack-arm"] for number in range(20)]
        assert [other.say("on", f"c{number}").headers["x-hatstack-arm"] for number in range(20)] == arms
    assert len(shown(two)["replicas"]) == 1


@pytest.fixture
def backend(two: World, monkeypatch: pytest.MonkeyPatch) -> TrafficBackend:
    monkeypatch.setenv("HATSTACK_GATEWAY_TOKEN", ADMIN)
    return connect(two.url, "shop", harness="candidate", release="r2")


def test_the_backend_tells_what_is_in_force(two: World, backend: TrafficBackend) -> None:
    assert (backend.read().effective, backend.read().ready) == (0, False)
    backend.prepare()
    assert (backend.read().effective, backend.read().ready) == (0, True)
    backend.set_weight(20)
    assert backend.read().effective == 20
    with pytest.raises(BackendError, match="still gets traffic"):
        backend.retire()
    backend.set_weight(0)
    backend.set_weight(0)
    assert backend.read().effective == 0
    backend.retire()
    assert backend.read().retired
    stranger = connect(two.url, "shop", token="wrong")
    with pytest.raises(BackendError, match="admin token"):
        stranger.read()


STEPS = [{"setWeight": 10}, {"setWeight": 50}, {"pause": {}}]


def rollout(world: World, root: Path) -> Folder:
    target = {"backend": "gateway", "url": world.url, "deployment": "shop", "harness": "candidate"}
    folder = Folder(root)
    spec = read_spec({"release": "r2", "steps": STEPS, "target": target})
    assert control.start(folder, control.render("r2", "default", spec))
    return folder


def look(root: Path) -> State:
    """One look by a process that knows nothing but the folder."""
    folder = Folder(root)
    once(Controller(folder, Settings()), folder)
    return control.status(folder, "default", "r2")[1]


@pytest.mark.usefixtures("backend")
def test_a_rollout_runs_to_its_end_without_a_cluster(two: World, tmp_path: Path) -> None:
    folder = rollout(two, tmp_path / "rollouts")
    weights = []
    for number in range(30):
        state = look(tmp_path / "rollouts")
        weights.append(state.effective_weight)
        text(two.say("hi", f"c{number}"))
        if state.phase == "Paused":
            control.resume(folder, "default", "r2")
        if state.phase in TERMINAL:
            break
    assert state.phase == "Healthy"
    assert list(dict.fromkeys(weights)) == [0, 10, 50, 100]
    assert text(two.say("hi", "new")) == "hello number 1 farewell"
    assert set(shown(two)["moves"]) <= {"promoted"}


@pytest.mark.usefixtures("backend")
def test_an_aborted_rollout_leaves_nothing_behind(two: World, tmp_path: Path) -> None:
    folder = rollout(two, tmp_path / "rollouts")
    for _ in range(6):
        state = look(tmp_path / "rollouts")
    assert state.effective_weight == 50
    text(two.say("hi", "talk", user="anna"))
    control.abort(folder, "default", "r2")
    for _ in range(5):
        state = look(tmp_path / "rollouts")
    assert (state.phase, shown(two)["arms"][1:]) == ("Degraded", [])
    assert text(two.say("hi", "fresh")) == "hello number 1 bye"


# ---- laws of the steering itself --------------------------------------------------------------------------------------

WISHES = st.lists(
    st.tuples(
        st.sampled_from(["add", "weigh", "abort", "remove", "promote"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 100),
    ),
    max_size=12,
)


@given(WISHES)
def test_no_order_of_wishes_breaks_the_rules(wishes: list[tuple[str, str, int]]) -> None:
    now = Steering(name="shop")
    stable = Former(arm="stable", digest="d0", release="", state="replaced")
    for what, name, number in wishes:
        before = now
        made = {
            "add": lambda now, name=name, number=number: steering.add(
                now, ArmPlan(name=name, harness="h", digest=f"d{number % 3}"), "stable"
            ),
            "weigh": lambda now, name=name, number=number: steering.weigh(now, {name: number}),
            "abort": lambda now, name=name: steering.abort(now, name),
            "remove": lambda now, name=name: steering.remove(now, name),
            "promote": lambda now, name=name: steering.promote(now, name, stable, "d0"),
        }[what]
        # Whatever is not allowed is refused with this error, and nothing has changed then.
        with suppress(SteeringError):
            now = made(now)
        assert sum(arm.weight for arm in now.arms) <= 100
        assert all(not arm.weight for arm in now.arms if arm.aborted)
        gone = {arm.name: arm for arm in before.arms if arm.name not in {one.name for one in now.arms}}
        assert all(not arm.weight or arm.weight == 100 for arm in gone.values()) or what == "promote"
        assert now.revision in (before.revision, before.revision + 1)
        assert (now.revision == before.revision) == (now is before)
        assert len(now.former) <= steering.KEPT
