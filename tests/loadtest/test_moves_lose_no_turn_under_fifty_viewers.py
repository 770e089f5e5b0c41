"""Promotion, abort and urgent rollback under 50 viewers: nothing fails, nothing is lost, only what may move does."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench._gateway_world import upstream
from bench.gateway_moves import Admin, gateway, under_load
from bench.gateway_turn import harness
from hat_serving.loadtest.ask import TurnRecord
from hat_serving.loadtest.measured import summed
from hat_serving.loadtest.moves import Operation, Verdict, judged
from hat_serving.loadtest.plan import LoadPlan

PLAN = LoadPlan(url="http://127.0.0.1:1", route="chat")


def test_the_real_gateway_keeps_the_contract_under_load(tmp_path: Path) -> None:
    with ExitStack() as stack:
        up = stack.enter_context(upstream())
        running = gateway(stack, tmp_path, up.url, harness(), up.url + "/tools/{tool}")
        admin = Admin(running.url, (tmp_path / "data" / "admin.token").read_text().strip(), "shop")
        mix = {"product_qa": 0.8, "chat": 0.2}
        plan = LoadPlan(
            url=running.url, model="shop", users=50, duration_s=240, think_s=0.6, route="room", mix=mix, turns=6
        )
        result, verdict = under_load(admin, plan, tmp_path / "load", each=150)
        told = admin.send("GET", "")["moves"]
    assert verdict.failed == 0, result.errors
    assert verdict.lost == 0
    assert verdict.violations == ()
    assert verdict.turns > 1000
    assert set(verdict.moves) == {"promote", "abort", "urgent"}, verdict.moves
    assert verdict.moves["abort"] == told["abort"], (verdict.moves, told)


def turn(
    at: float, arm: str = "stable", harness: str = "h" * 20, conversation: str = "c", viewer: int = 1, **more: Any
) -> TurnRecord:
    made = TurnRecord(viewer, conversation, 1, "chat", at, wall=0.5, status=200, arm=arm, harness=harness)
    return replace(made, **more)


def verdict(turns: list[TurnRecord], *operations: Operation) -> Verdict:
    return judged(summed(PLAN, turns), list(operations))


def test_a_move_that_nothing_allows_is_a_violation() -> None:
    assert verdict([turn(1), turn(2)]).clean
    assert len(verdict([turn(1), turn(2, "canary")]).violations) == 1
    assert len(verdict([turn(1), turn(2, harness="g" * 20)]).violations) == 1
    grown = Operation("weights", "canary", 1.2, 1.4)
    assert len(verdict([turn(1), turn(2, "canary")], grown).violations) == 1
    between = [turn(1), turn(2, "canary", conversation="d")]
    assert verdict(between, grown).clean
    assert judged(summed(PLAN.model_copy(update={"route": "room"}), between), []).clean  # two units of assignment
    silent_first = [turn(1, arm=""), turn(1.6), turn(2, "canary", conversation="d")]  # begun before the arm grew
    assert verdict(silent_first, grown).clean
    assert len(verdict(between).violations) == 1
    back = [turn(1, "canary"), turn(2, conversation="d")]
    assert len(verdict(back, grown).violations) == 1


def test_an_abort_allows_its_arms_moves_and_nobody_stays() -> None:
    abort = Operation("abort", "canary", 1.2, 1.4)
    assert verdict([turn(1, "canary"), turn(2)], abort).moves == {"abort": 1}
    assert len(verdict([turn(1, "canary"), turn(2, "canary")], abort).violations) == 1
    assert len(verdict([turn(1), turn(2, "canary")], abort).violations) >= 1
    assert verdict([turn(1, "canary"), turn(1.3, "canary"), turn(3)], abort).clean


def test_a_promotion_renames_and_only_an_urgent_one_changes_the_harness() -> None:
    promoted, urgent = Operation("promote", "canary", 1.2, 1.4), Operation("urgent", "canary", 1.2, 1.4)
    assert verdict([turn(1, "canary"), turn(2)], promoted).moves == {"promote": 1}
    assert len(verdict([turn(1), turn(2, harness="g" * 20)], promoted).violations) == 1
    assert verdict([turn(1), turn(2, harness="g" * 20)], urgent).moves == {"urgent": 1}
    assert len(verdict([turn(2), turn(3, harness="g" * 20)], urgent).violations) == 1
