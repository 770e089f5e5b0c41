"""A model folder, an endpoint and the scripted expert act under the same edits; what a session says is who acted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_components.data import digest_path
from hat_components.evolve.config import EndpointPolicy, ModelPolicy
from hat_components.evolve.faults import Fault, FaultyExpert, read_faults, told_to_model
from hat_components.evolve.result import Evolution
from hat_components.sessions import read_harness
from hat_components.step import InputError, NullProgress
from hat_harness.trace import turns
from hat_scenarios.live_commerce import LiveCommerce
from hat_scenarios.play import play
from tests.evaluation.conftest import micro
from tests.evolution.conftest import HARNESSES, HEEDING
from tests.judge.conftest import said, serve

__all__ = ["micro", "serve"]
Evolve = Callable[..., Evolution]


def test_models_and_endpoints_are_measured_beside_the_expert(
    inputs: dict[str, Path], micro: Path, evolve: Evolve, serve: Callable[..., Any]
) -> None:
    endpoint = serve(lambda body, number: said("no idea"))
    chosen = {name: path for name, path in inputs.items() if name in ("harness", "items", "candidate-evolution-1")}
    policies = (HEEDING, ModelPolicy(name="own"), EndpointPolicy(name="served", url=endpoint.url, model="tiny"))
    found = evolve({**chosen, "model": micro}, policies=policies, items=1, batch=1)
    assert found.policies["own"] == digest_path(micro)
    assert found.policies["served"] == "tiny"
    for stage in found.stages:
        assert set(stage.measured) == {"heeding", "own", "served"}
        assert all(one.turns == 3 for one in stage.measured.values())
    assert found.stages[0].measured["own"].errors == found.stages[0].measured["served"].errors == 3
    assert {body["model"] for body in endpoint.bodies} == {"tiny"}


def test_a_model_that_is_no_folder_is_refused(inputs: dict[str, Path], tmp_path: Path, evolve: Evolve) -> None:
    file = tmp_path / "model"
    file.write_text("weights")
    with pytest.raises(InputError, match="a model is a folder"):
        evolve({**inputs, "model": file}, NullProgress(), policies=(ModelPolicy(),))


def played(harness_name: str, *faults: Fault) -> list[Any]:
    scenario = LiveCommerce()
    harness = read_harness(HARNESSES / harness_name)
    cases = [(harness, item) for item in scenario.items(3, "evolve", 30, turns=1)]
    traces = play(scenario, cases, FaultyExpert(scenario.expert(), cases, faults, seed=1))
    return [turns(trace)[0] for trace in traces]


def test_faults_happen_where_the_harness_brings_them_about_and_end_when_sent_back() -> None:
    always = Fault(name="x", kind="wrong_number", rate=1.0)
    sent_back = [turn for turn in played("live-commerce", always) if turn.rounds]
    assert sent_back
    assert all(turn.outcome == "reply" for turn in sent_back)
    stubborn = always.model_copy(update={"stubborn": 1.0})
    assert any(turn.outcome == "safe" for turn in played("live-commerce", stubborn))
    words = always.model_copy(update={"when": "no such words"})
    assert not any(turn.rounds for turn in played("live-commerce", words))
    heeded = always.model_copy(update={"unless": "numbers come from tools"})
    assert not any(turn.rounds for turn in played("live-commerce", heeded))
    assert played("live-commerce", always) == played("live-commerce", always)


def test_a_policy_that_refuses_uses_the_tool_where_the_harness_has_it() -> None:
    refuses = Fault(name="x", kind="refuses", rate=1.0, text="dear , let us keep to the products . thanks for watching")
    with_tool = played("evolution-1", refuses)
    assert {turn.outcome for turn in with_tool} == {"refuse"}
    without = played("live-commerce", refuses)
    assert {turn.outcome for turn in without} == {"reply"}
    assert all("keep to the products" in turn.reply for turn in (*with_tool, *without))


@pytest.mark.parametrize("name", ["heeding", "ignoring"])
def test_shipped_faults_refer_to_words_that_shipped_harnesses_have(name: str) -> None:
    told = "\n".join(told_to_model(read_harness(HARNESSES / f"evolution-{number}")) for number in (1, 2, 3, 4))
    for fault in read_faults(name):
        for words in (fault.when, fault.unless):
            assert words in told, fault.name
