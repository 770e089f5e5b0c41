"""Suites of one answer each: generated instructions (t4m), IFEval (t4), the next call of imported ones (calls).

Always holds: prompts and their order follow from the suite's seed or data alone; an answer that could not be made
scores 0 and says why. Not here: sessions over rooms (rollouts).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hat_components.evaluate import ifeval
from hat_components.evaluate.result import ItemResult, TurnResult, mean_values
from hat_components.importer.conversation import Conversation
from hat_harness.events import CallModel, Message, ModelOutput, ToolCall
from hat_harness.ports import BatchModel
from hat_scenarios.general import Instruction, Words, instructions, verify
from hat_scenarios.general.words import OBJECTS, QUALITIES, VERBS

Tick = Callable[[int], None]
"""Told how many answers are finished."""


def ask(
    model: BatchModel, calls: Sequence[tuple[str, CallModel]], batch: int, tick: Tick
) -> Iterator[ModelOutput | None]:
    """The model's outputs in order, `batch` at a time; None where it failed."""
    for start in range(0, len(calls), batch):
        for output in model.generate(calls[start : start + batch]):
            yield output if isinstance(output, ModelOutput) else None
        if (forget := getattr(model, "forget", None)) is not None:
            forget()  # nothing goes on here, so a local model need not keep its caches
        tick(min(start + batch, len(calls)))


def _prompts(texts: Mapping[str, str], max_tokens: int) -> list[tuple[str, CallModel]]:
    return [
        (ident, CallModel(f"{ident}.0", 0, (Message("user", text),), 0, (), max_tokens))
        for ident, text in texts.items()
    ]


def run_instructions(
    model: BatchModel, seed: int, count: int, *, batch: int, max_tokens: int, tick: Tick
) -> list[ItemResult]:
    """t4m: `followed` is 1 when every demand of a prompt is met, `instruction` the share of its demands."""
    asked: list[Instruction] = list(instructions(seed, count, Words.of(OBJECTS + VERBS + QUALITIES)))
    outputs = ask(model, _prompts({item.id: item.prompt for item in asked}, max_tokens), batch, tick)
    results = []
    for item, output in zip(asked, outputs, strict=True):
        met = verify(item, output.content if output is not None else "")
        values = {"followed": float(all(met)), "instruction": sum(met) / len(met)}
        missed = tuple(check.family for check, good in zip(item.checks, met, strict=True) if not good)
        causes = missed if output is not None else ("no_answer",)
        results.append(ItemResult(item=item.id, values=values, turns=(_turn(item.family, values, causes),)))
    return results


def run_ifeval(model: BatchModel, limit: int | None, *, batch: int, max_tokens: int, tick: Tick) -> list[ItemResult]:
    """t4: the four published figures for each prompt; the instruction-level ones are shares of its instructions."""
    asked = ifeval.prompts()[:limit]
    texts = {f"ifeval-{prompt.key}": prompt.prompt for prompt in asked}
    outputs = list(ask(model, _prompts(texts, max_tokens), batch, tick))
    verdicts = ifeval.judge(asked, [output.content if output is not None else "" for output in outputs])
    results = []
    for prompt, verdict in zip(asked, verdicts, strict=True):
        values = {
            "prompt_strict": float(all(verdict.strict)),
            "prompt_loose": float(all(verdict.loose)),
            "instruction_strict": sum(verdict.strict) / len(verdict.strict),
            "instruction_loose": sum(verdict.loose) / len(verdict.loose),
        }
        turns = tuple(
            TurnResult(intent=kind.split(":")[0], values={"average": float(good)}, causes=() if good else (kind,))
            for kind, good in zip(prompt.instruction_id_list, verdict.strict, strict=True)
        )
        results.append(ItemResult(item=f"ifeval-{prompt.key}", values=values, turns=turns))
    return results


def run_calls(
    model: BatchModel, conversations: Sequence[Conversation], *, batch: int, max_tokens: int, tick: Tick
) -> list[ItemResult]:
    """calls: at each assistant message that calls tools, does the model, given all before it, make the same calls?

    `exact`: same tools, same arguments. `names`: same tools. A conversation's score is the mean over its messages.
    """
    places = [
        (conversation, index)
        for conversation in conversations
        for index, message in enumerate(conversation.messages)
        if message["role"] == "assistant" and message.get("tool_calls")
    ]
    calls = [
        (
            f"{conversation.id}/{index}",
            CallModel(
                f"{conversation.id}/{index}.0",
                0,
                messages_of(conversation.messages[:index]),
                0,
                conversation.tools,
                max_tokens,
            ),
        )
        for conversation, index in places
    ]
    turns: dict[str, list[TurnResult]] = {}
    for (conversation, index), output in zip(places, ask(model, calls, batch, tick), strict=True):
        gold = [_written(call["function"]) for call in conversation.messages[index]["tool_calls"]]
        made = [_made(call) for call in output.tool_calls] if output is not None else []
        values = {
            "exact": float(sorted(made) == sorted(gold)),
            "names": float(sorted(name for name, _ in made) == sorted(name for name, _ in gold)),
        }
        cause = () if values["exact"] else (("arguments",) if values["names"] else ("tools",))
        turns.setdefault(conversation.id, []).append(_turn(gold[0][0], values, cause))
    return [
        ItemResult(item=ident, values=mean_values([turn.values for turn in found]), turns=tuple(found))
        for ident, found in turns.items()
    ]


def messages_of(messages: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """OpenAI chat messages as a session's messages."""
    return tuple(
        Message(
            role=message["role"],
            content=message.get("content") or "",
            reasoning=message.get("reasoning_content") or "",
            tool_calls=tuple(
                ToolCall(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"))
                for call in message.get("tool_calls") or ()
            ),
            tool_call_id=message.get("tool_call_id") or "",
            name=message.get("name") or "",
        )
        for message in messages
    )


def _written(function: Mapping[str, Any]) -> tuple[str, str]:
    return function["name"], json.dumps(json.loads(function["arguments"] or "{}"), sort_keys=True)


def _made(call: ToolCall) -> tuple[str, str]:
    return call.name, call.error or json.dumps(dict(call.arguments), sort_keys=True)


def _turn(intent: str, values: dict[str, float], causes: tuple[str, ...]) -> TurnResult:
    return TurnResult(intent=intent, values=values, causes=causes)
