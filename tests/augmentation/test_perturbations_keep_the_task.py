"""Perturbations keep the canonical tools; faults follow from their seed and never repeat an effect."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hat_harness.augment import AsyncFaultyBackend, FaultPlan, FaultyBackend, apply
from hat_harness.augment.faults import KINDS, drifted, torn
from hat_harness.augment.operators import DistractorSkill, DistractorTool, TransitionFault
from hat_harness.augment.perturb import canonical_tools
from hat_harness.events import ToolRequest, ToolResult
from tests.augmentation.strategies import HELD_OUT, PERTURBATION, TRAINED, harnesses, make_harness, operators, seeds


@settings(max_examples=100, deadline=None)
@given(harnesses(), operators(PERTURBATION), seeds)
def test_the_canonical_tools_stay(harness, chosen, seed):
    made = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT).harness
    assert canonical_tools(made) == canonical_tools(harness) == tuple(sorted(tool.id for tool in harness.tools))
    kept = {tool.id: tool for tool in made.tools}
    assert all(kept[tool.id] == tool for tool in harness.tools)
    assert {skill.id for skill in harness.skills} <= {skill.id for skill in made.skills}


def test_distractors_are_counted_as_asked():
    harness = make_harness(Random(3))
    made = apply(harness, [DistractorSkill(counts=(2,)), DistractorTool(counts=(1,))], 1, TRAINED).harness
    assert len(made.skills) == len(harness.skills) + 2
    assert len(made.tools) == len(harness.tools) + 1
    again = apply(made, [DistractorTool(counts=(1,))], 2, TRAINED).harness
    assert sorted(tool.id for tool in again.tools if tool.id.startswith("distractor")) == [
        "distractor_0",
        "distractor_1",
    ]


# ---- faults ---------------------------------------------------------------------------------------------------


@dataclass
class Shop:
    """A backend that counts what it carried out."""

    done: list[str] = field(default_factory=list)

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        self.done.append(request.idempotency_key or request.name)
        return ToolResult(request.call_id, json.dumps({"item_price": len(self.done)}))


class AsyncShop(Shop):
    async def call(self, session_id: str, request: ToolRequest) -> ToolResult:  # type: ignore[override]
        return Shop.call(self, session_id, request)


def plan(seed: int = 1, in_a_row: int = 1, **rates: float) -> FaultPlan:
    return FaultPlan(seed=seed, rates=rates, most_in_a_row=in_a_row)


def request(number: int, key: str = "") -> ToolRequest:
    return ToolRequest(f"c{number}", "get", {}, key)


EVEN = dict.fromkeys(KINDS, 0.2)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_which_call_fails_does_not_depend_on_other_sessions(seed, order):
    together, alone = FaultyBackend(Shop(), plan(seed, 2, **EVEN)), {}
    seen: dict[str, list[str]] = {name: [] for name in "abc"}
    for number, name in enumerate(order):
        seen[name].append(together.call(name, request(number)).failure)
    for name in "abc":
        alone[name] = FaultyBackend(Shop(), plan(seed, 2, **EVEN))
        assert [alone[name].call(name, request(0)).failure for _ in range(order.count(name))] == seen[name]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_no_more_calls_fail_in_a_row_than_the_plan_allows(seed, most):
    backend = FaultyBackend(Shop(), plan(seed, most, timeout=0.5, server=0.5))
    failures = [bool(backend.call("s", request(number)).failure) for number in range(40)]
    runs = "".join("x" if failed else " " for failed in failures).split()
    assert max(map(len, runs), default=0) == most


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_an_effect_happens_once_although_its_answer_is_lost(seed):
    shop = Shop()
    backend = FaultyBackend(shop, plan(seed, 8, **EVEN))
    results = [backend.call("s", request(number, key=f"k{number // 10}")) for number in range(60)]
    assert len(set(shop.done)) == len(shop.done) <= 6
    for index in range(6):
        clean = {result.content for result in results[index * 10 : index * 10 + 10] if not result.failure}
        assert len({json.dumps(flat(content)) for content in clean}) <= 1


def flat(content: str) -> Any:
    """The values that a result holds, whatever its shape."""
    value = json.loads(content)
    while isinstance(value, dict):
        value = next(iter(value.values()))
    return value


def test_some_time_outs_happen_after_the_effect():
    after = before = 0
    for seed in range(200):
        shop = Shop()
        result = FaultyBackend(shop, plan(seed, 1, timeout=1.0)).call("s", request(0, key="k"))
        assert result.failure == "timeout"
        after, before = after + bool(shop.done), before + (not shop.done)
    assert after > 60
    assert before > 60


def test_reads_that_time_out_never_reach_the_backend():
    shop = Shop()
    backend = FaultyBackend(shop, plan(3, 8, timeout=1.0))
    assert {backend.call("s", request(number)).failure for number in range(8)} == {"timeout"}
    assert shop.done == []


def test_rates_are_kept_within_the_binomial_spread():
    backend = FaultyBackend(
        Shop(), plan(5, 8, timeout=0.1, rate_limit=0.1, server=0.1, malformed=0.1, schema_drift=0.1)
    )
    kinds = [backend.call(f"s{number}", request(number)) for number in range(3000)]
    for kind in ("timeout", "rate_limit", "server", "malformed"):
        assert abs(sum(result.failure == kind for result in kinds) / 3000 - 0.1) < 0.02
    plain = sum(result.content.startswith('{"item_price"') and not result.failure for result in kinds)
    assert abs(plain / 3000 - 0.5) < 0.03


def test_the_async_wrapper_shows_the_same_faults():
    async def run() -> list[ToolResult]:
        backend = AsyncFaultyBackend(AsyncShop(), plan(7, 2, **EVEN))
        return [await backend.call("s", request(number, key=f"k{number // 3}")) for number in range(30)]

    backend = FaultyBackend(Shop(), plan(7, 2, **EVEN))
    assert asyncio.run(run()) == [backend.call("s", request(number, key=f"k{number // 3}")) for number in range(30)]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers() | st.text(), max_size=4), seeds)
def test_drift_keeps_the_values_and_tearing_keeps_a_prefix(value, seed):
    content = json.dumps(value, ensure_ascii=False)
    loaded = json.loads(drifted(content, Random(seed)))
    inner = (
        next(iter(loaded.values())) if len(loaded) == 1 and isinstance(next(iter(loaded.values())), dict) else loaded
    )
    assert len(inner) <= len(value)
    assert set(map(str, inner.values())) <= set(map(str, value.values()))
    cut = torn(content, Random(seed)).removesuffix("\ufffd")
    assert content.startswith(cut)
    assert len(cut) < len(content)


def test_text_results_drift_too():
    assert "price 40" in drifted("price 40", Random(1))
    assert drifted("price 40", Random(1)) != "price 40"


def test_rates_above_one_are_refused():
    with pytest.raises(ValidationError, match="more than 1"):
        plan(1, 1, timeout=0.7, server=0.7)
    with pytest.raises(ValidationError, match="more than 1"):
        TransitionFault(rates={"timeout": 0.7, "server": 0.7})


def test_a_state_carries_its_fault_plan():
    harness = make_harness(Random(3))
    state = apply(harness, [TransitionFault(rates={"server": 0.5}, most_in_a_row=2)], 1, TRAINED)
    assert state.harness == harness
    assert state.faults is not None
    assert state.faults.rates == {"server": 0.5}
    assert state.faults.most_in_a_row == 2
    assert apply(harness, [], 1, TRAINED).faults is None
