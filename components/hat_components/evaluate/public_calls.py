"""Suite T5: the held-out half of BFCL, as it is or with every entry's tools rewritten, scored by BFCL's own rules.

Always holds: entries and their order follow from the package's data alone, states from the suite's seed and the entry's
id; a call under a rewritten entry is led back to the original names before it is scored; an answer that could not be made
scores 0. A model that was trained on held-out entries is refused, one trained on the other half is tagged. Not here: the
rules (bfcl_check), the data (bfcl).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hat_components.bfcl import HALVES, Task, data_folder, half_of, tasks
from hat_components.bfcl_check import Call, verdict
from hat_components.evaluate.answers import Tick, ask, messages_of
from hat_components.evaluate.result import ItemResult, TurnResult
from hat_components.sessions import draw_seed
from hat_components.step import InputError
from hat_harness.augment import AugmentPlan
from hat_harness.augment.conversation import KEY, augment_conversation, canonical_conversation_call
from hat_harness.canonical import CallError
from hat_harness.digest import digest_json
from hat_harness.errors import AugmentError
from hat_harness.events import CallModel, ModelOutput, ToolCall
from hat_harness.ports import BatchModel


def digest(limit: int | None) -> str:
    """Digest of the entries that are asked; InputError when the package with the data is not there."""
    data_folder()
    return digest_json([[task.id, list(task.messages)] for task in tasks("held_out", limit)])


def trained(items: Iterable[str] | None) -> str:
    """The tag of an evaluation: `unknown`, `none` or `held_in: N entries`; InputError for held-out entries."""
    if items is None:
        return "unknown"
    public = {task.id for half in HALVES for task in tasks(half)}
    seen = {item for item in items if item in public}
    wrong = sorted(item for item in seen if half_of(item) == "held_out")
    if wrong:
        raise InputError(
            f"entry {wrong[0]} of the held-out half was trained on ({len(wrong)} such)",
            place="suite t5",
            cure="train on the held-in half only",
        )
    return f"held_in: {len(seen)} entries" if seen else "none"


def run_bfcl(
    model: BatchModel,
    limit: int | None,
    plan: AugmentPlan | None,
    seed: int,
    *,
    batch: int,
    max_tokens: int,
    tick: Tick,
) -> list[ItemResult]:
    """`exact`: right by BFCL's rules. `tools`: the right tools were called. Groups are BFCL's categories."""
    asked = tasks("held_out", limit)
    if plan is not None:
        # Some entries contradict their own schema: no call under rewritten names could be led back and be right.
        asked = [task for task in asked if task.sound]
    shown = [_shown(task, plan, seed) for task in asked]
    calls = [
        (
            task.id,
            CallModel(f"{task.id}.0", 0, messages_of(made["messages"]), 0, tuple(made["tools"]), max_tokens),
        )
        for task, made in zip(asked, shown, strict=True)
    ]
    outputs = ask(model, calls, batch, tick)
    return [_scored(task, made, output) for task, made, output in zip(asked, shown, outputs, strict=True)]


def _shown(task: Task, plan: AugmentPlan | None, seed: int) -> dict[str, Any]:
    """What the model reads; an entry whose tools cannot be rewritten stays as it is."""
    given = {"messages": list(task.messages), "tools": list(task.tools)}
    if plan is None:
        return given
    try:
        return augment_conversation(given, plan, draw_seed(seed, task.id))
    except AugmentError:
        return given


def _scored(task: Task, shown: dict[str, Any], output: ModelOutput | None) -> ItemResult:
    record = (shown.get("metadata") or {}).get(KEY)
    code, tools = "no_answer", False
    if output is not None:
        made = [_canonical(shown, call) if record else (call.name, call.arguments) for call in output.tool_calls]
        faulty = any(call.error for call in output.tool_calls)
        code = "malformed" if faulty else verdict(task.functions, made, task.answers)
        tools = _names(made) == sorted(next(iter(answer)).replace(".", "_") for answer in task.answers)
    values = {"exact": float(code == ""), "tools": float(tools)}
    turn = TurnResult(intent=task.category, values=values, causes=(code,) if code else ())
    families = tuple(rewrite["operator"]["type"] for rewrite in record["rewrites"]) if record else ()
    return ItemResult(item=task.id, values=values, turns=(turn,), families=families)


def _canonical(shown: dict[str, Any], call: ToolCall) -> Call:
    """The call under the entry's own names; one that means nothing there stays as written, and so is wrong."""
    found = canonical_conversation_call(shown, call.name, call.arguments)
    return ("", call.arguments) if isinstance(found, CallError) else (found.tool, found.arguments)


def _names(made: Sequence[Call]) -> list[str]:
    return sorted(name for name, _ in made)
