"""The API server refuses rollouts that cannot work; preflight explains what the server cannot know."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_serving.canary import control, crd
from hat_serving.canary.errors import ClusterError, InvalidRolloutError
from hat_serving.canary.kube import Kube
from hat_serving.canary.preflight import preflight
from hat_serving.canary.spec import API_VERSION, KIND, RolloutSpec, read_spec
from hat_serving.canary.state import State, Tally, Window, from_status, to_status
from tests.cluster.controlplane.cluster import REPOSITORY, Cluster
from tests.cluster.helpers import runtime, service, until, until_serving
from tests.cluster.rollouts import rollout

CRD = REPOSITORY / "charts" / "hatstack" / "files" / "crds" / "canaryrollouts.yaml"
STEPS: list[dict[str, Any]] = [{"setWeight": 10}, {"pause": {}}]
METRIC = {"name": "errors", "threshold": {"query": "q", "success": {"atMost": 1}}}
PROMETHEUS = {"url": "http://prometheus"}
CANARY = {"name": "v2", "storageUri": "s3://m/v2"}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a step that is two": ({"steps": [{"setWeight": 1, "pause": {}}]}, "exactly one of"),
    "no step": ({"steps": []}, "at least 1|should have at least"),
    "no first weight": ({"steps": [{"pause": {}}]}, "first step sets a weight"),
    "a weight over 100": ({"steps": [{"setWeight": 101}]}, "less than or equal to 100"),
    "weights that fall": ({"steps": [{"setWeight": 20}, {"setWeight": 10}]}, "never go down"),
    "a duration in words": ({"steps": [{"setWeight": 1}, {"pause": {"duration": "soon"}}]}, "duration|should match"),
    "an analysis without metrics": ({"steps": [{"setWeight": 1}, {"analysis": {}}]}, "needs metrics"),
    "an unknown metric": (
        {"steps": [{"setWeight": 1}, {"analysis": {"metrics": ["x"]}}], "metrics": [METRIC], "prometheus": PROMETHEUS},
        "does not exist|no metric is called",
    ),
    "metrics without a server": ({"metrics": [METRIC]}, "prometheus.url"),
    "two metrics of one name": ({"metrics": [METRIC, METRIC], "prometheus": PROMETHEUS}, "[Dd]uplicate|same name"),
    "a metric of two kinds": (
        {"metrics": [{**METRIC, "sampleRatio": {"units": "u"}}], "prometheus": PROMETHEUS},
        "exactly one of threshold",
    ),
    "a bound without ends": (
        {"metrics": [{"name": "m", "threshold": {"query": "q", "success": {}}}], "prometheus": PROMETHEUS},
        "atLeast, atMost or both",
    ),
    "a sample that is not counted": (
        {"metrics": [{**METRIC, "minimumSample": 5}], "prometheus": PROMETHEUS},
        "sampleQuery",
    ),
    "an unknown backend": ({"target": {"backend": "magic"}}, "Unsupported value|does not match any"),
    "a service without a canary": ({"target": {"backend": "httproute", "inferenceService": "chat"}}, "canary"),
    "half a pair of services": (
        {"target": {"backend": "httproute", "route": "r", "stableService": "s"}},
        "canaryService",
    ),
    "an alias for a model": (
        {
            "target": {
                "backend": "httproute",
                "inferenceService": "chat",
                "canary": {"name": "v2", "storageUri": "best"},
            }
        },
        "should match",
    ),
    "an unknown field": ({"stepz": []}, "unknown field|Extra inputs"),
}


@pytest.fixture
def installed(controller: str) -> None:
    """The definition as the chart installs it."""


def test_the_chart_holds_the_definition_that_the_models_give() -> None:
    assert CRD.read_text() == crd.text(), "run python -m hat_serving.canary.crd"


@pytest.mark.parametrize("case", WRONG)
def test_the_models_refuse(case: str) -> None:
    change, message = WRONG[case]
    with pytest.raises(InvalidRolloutError, match=message):
        read_spec(rollout("any", **{"steps": STEPS, **change})["spec"])


@pytest.mark.cluster
@pytest.mark.usefixtures("installed")
def test_the_api_server_refuses_the_same(kube: Kube, namespace: str) -> None:
    taken = []
    for case, (change, message) in WRONG.items():
        try:
            kube.create(rollout(namespace, **{"steps": STEPS, **change}), dry_run=True)
        except ClusterError as error:
            if not re.search(message, str(error)):
                taken.append(f"{case}: {error}")
        else:
            taken.append(f"{case}: taken")
    assert taken == []


@pytest.mark.cluster
@pytest.mark.usefixtures("installed")
def test_a_rollout_cannot_be_changed_under_way(kube: Kube, namespace: str) -> None:
    manifest = rollout(namespace, steps=STEPS)
    assert control.start(kube, manifest)
    assert not control.start(kube, manifest)
    with pytest.raises(InvalidRolloutError, match="another spec"):
        control.start(kube, rollout(namespace, steps=[{"setWeight": 99}]))
    for change in (
        {"steps": [{"setWeight": 99}]},
        {"release": "other"},
        {"baseline": "new"},
        {"progressDeadline": None},
    ):
        with pytest.raises(ClusterError, match="cannot change once"):
            kube.patch(API_VERSION, KIND, "chat-v2", namespace, {"spec": change})
    assert control.pause(kube, namespace, "chat-v2")
    assert not control.pause(kube, namespace, "chat-v2")
    assert control.abort(kube, namespace, "chat-v2")
    with pytest.raises(ClusterError, match="cannot be taken back"):
        kube.patch(API_VERSION, KIND, "chat-v2", namespace, {"spec": {"abort": False}})


@pytest.mark.cluster
@pytest.mark.usefixtures("installed")
def test_the_status_keeps_every_field_of_the_state(kube: Kube, namespace: str) -> None:
    control.start(kube, rollout(namespace, steps=STEPS))
    tally = Tally(name="errors", successes=1, value=0.25, next_at=1.5, outcome="success", message="fine")
    state = State(
        phase="Degraded",  # ended, so that no controller touches it
        step=1,
        desired_weight=10,
        effective_weight=10,
        waiting_since=1.0,
        matched_since=2.0,
        clock_started=3.25,
        step_done=True,
        pause_reason="PauseStep",
        resume_seen="x",
        analysis=(tally,),
        background=(tally,),
        windows=(Window(step=0, weight=10, started=1.0, ended=2.0, metrics={"errors": 0.5}),),
        reason="PauseStep",
        message="waits",
        started_at=0.5,
        finished_at=9.0,
    )
    kube.patch(API_VERSION, KIND, "chat-v2", namespace, {"status": to_status(state)}, status=True)
    found = kube.get(API_VERSION, KIND, "chat-v2", namespace)
    assert found is not None
    assert from_status(found["status"]) == state
    ended = State(phase="Degraded")
    kube.patch(API_VERSION, KIND, "chat-v2", namespace, {"status": to_status(ended)}, status=True)
    assert control.status(kube, namespace, "chat-v2")[1] == ended


@given(
    moment=st.floats(0, 4e9, allow_nan=False).map(lambda value: round(value, 6)),
    value=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_states_survive_being_written_down(moment: float, value: float | None) -> None:
    state = State(clock_started=moment, analysis=(Tally(name="m", value=value, next_at=moment),))
    again = from_status(to_status(state))
    assert again.analysis[0].value == value
    assert abs((again.clock_started or 0) - moment) < 2e-6


def codes(spec: RolloutSpec, kube: Kube, namespace: str) -> set[str]:
    return {finding.code for finding in preflight(spec, kube, namespace, "chat-v2", None)}


def target(**changes: Any) -> RolloutSpec:
    release = "sha256:" + "2" * 64
    base = {"backend": "httproute", "inferenceService": "chat", "canary": CANARY, **changes}
    if base["canary"] is not None:
        base["canary"] = {"digest": release, **base["canary"]}
    return read_spec(rollout("any", steps=STEPS, release=release, target=base)["spec"])


@pytest.mark.cluster
@pytest.mark.usefixtures("installed")
def test_preflight_finds_what_would_fail_later(kube: Kube, cluster: Cluster, namespace: str) -> None:
    assert "NoService" in codes(target(), kube, namespace)
    plain = {"inferenceService": None, "canary": None, "route": "r", "stableService": "a", "canaryService": "b"}
    assert {"NoRoute", "NoService"} <= codes(target(**plain), kube, namespace)
    kube.apply(runtime())
    kube.apply(service(namespace))
    until_serving(kube, namespace)
    assert codes(target(), kube, namespace) == set()
    assert codes(target().model_copy(update={"release": "chat-v2"}), kube, namespace) == {"NoDigest"}
    assert codes(target(canary={**CANARY, "digest": ""}), kube, namespace) == {"WeightsNotCompared"}
    assert codes(target(canary={**CANARY, "replicas": 3}), kube, namespace) >= {"TooManyReplicas"}
    assert codes(target(canary={"name": "v1", "storageUri": "s3://models/v1"}), kube, namespace) >= {"SameVersion"}
    assert codes(target(canary={"name": "v2", "storageUri": "s3://models/v1"}), kube, namespace) == {
        "ConfigurationOnly"
    }
    assert codes(target(backend="isvc-canary"), kube, namespace) == {"NoWeights"}
    assert "WrongMode" in codes(target(backend="knative"), kube, namespace)
    control.start(kube, rollout(namespace, steps=STEPS, name="another", paused=True))
    assert codes(target(), kube, namespace) == {"AnotherRollout"}
    # The API server tells ages in whole seconds.
    pause = threading.Event()
    pause.wait(1.1)
    control.start(kube, rollout(namespace, steps=STEPS))
    assert codes(target(), kube, namespace) == {"AnotherRollout"}
    older = {finding.code for finding in preflight(target(), kube, namespace, "another", None)}
    assert older == set(), "of two that have not begun the older one goes first"


@pytest.mark.cluster
@pytest.mark.usefixtures("installed")
def test_preflight_counts_the_free_accelerators(kube: Kube, namespace: str) -> None:
    kube.apply(runtime())
    kube.apply(service(namespace, replicas=2))
    until_serving(kube, namespace)
    others = [pod for pod in kube.list("v1", "Pod") if pod["metadata"]["namespace"] != namespace]
    assert codes(target(), kube, namespace) == set()
    hog = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "hog", "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "command": ["sleep", "1000"],
                    "resources": {"limits": {"nvidia.com/gpu": "6"}},
                }
            ],
        },
    }
    kube.create(hog)
    until(
        lambda: (kube.get("v1", "Pod", "hog", namespace) or {})["spec"].get("nodeName"),
        f"a place for it beside {others}",
    )
    (finding,) = preflight(target(), kube, namespace, "chat-v2", None)
    assert finding.code == "NoCapacity"
    assert "1 of 1 pods with 1 nvidia.com/gpu find no place" in finding.message
