"""The scripted expert with seeded faults: a policy whose weaknesses are known, and which reads the harness.

A fault happens at a rate drawn per item, turn and fault, so that every harness meets the same ones; `when` and `unless`
say which words of the harness bring it about or prevent it, and a hook that sends the turn back ends it unless it is
stubborn. For tests, plans and demonstrations: what it shows is what was put in, never evidence about a model.
Always holds: pure given seed, harness and conversation. Not here: the expert itself (the scenario).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.step import InputError
from hat_harness.events import CallModel, Failure, Message, ModelOutput, ToolCall
from hat_harness.spec import Harness
from hat_scenarios.base import Expert, Item, Turn
from hat_scenarios.play import Case, ExpertModel

SHIPPED = Path(__file__).parent / "scripted"
_NUMBER = re.compile(r"\d+")


class Fault(BaseModel):
    """One weakness."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["no_skill", "no_call", "wrong_number", "says", "refuses"]
    """`no_skill`, `no_call`: replies without loading skills, without tools. `wrong_number`: misquotes the first number.
    `says`: gives `text` as the reply. `refuses`: declines, by tool where the harness has it."""
    rate: float = Field(ge=0, le=1)
    """Share of turns (of `intents`) on which it would happen."""
    intents: tuple[str, ...] = ()
    """Intents it happens in; none: all."""
    when: str = ""
    """Regular expression that must be found in what the harness tells the model; "" always is."""
    unless: str = ""
    """Regular expression that prevents it where it is found; "" prevents nothing."""
    stubborn: float = Field(default=0.0, ge=0, le=1)
    """Share of these turns on which being sent back does not help."""
    text: str = ""
    """What is said, for `says` and for `refuses` without a tool."""
    skill: str = "refusal"
    """Canonical id of the skill that `refuses` loads."""
    tool: str = "decline"
    """Canonical id of the tool that `refuses` calls where there is one."""


def read_faults(where: str | Path) -> tuple[Fault, ...]:
    """Faults of a YAML file (a list), or of a shipped policy by name; InputError says what is wrong with it."""
    path = Path(where)
    if not path.is_file() and (SHIPPED / f"{where}.yaml").is_file():
        path = SHIPPED / f"{where}.yaml"
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
        return tuple(Fault.model_validate(row) for row in rows)
    except OSError as error:
        known = ", ".join(sorted(one.stem for one in SHIPPED.glob("*.yaml")))
        raise InputError("there are no faults", place=str(where), cure=f"a file, or one of: {known}") from error
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise InputError(f"not a list of faults: {str(error).splitlines()[0]}", place=str(path)) from error


class FaultyExpert(ExpertModel):
    """The expert as a model for `play`, spoilt by faults."""

    def __init__(self, expert: Expert, cases: Sequence[Case], faults: Sequence[Fault], seed: int) -> None:
        super().__init__(expert, cases)
        self._faults = faults
        self._seed = seed
        self._told: dict[int, str] = {}

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        """The next message for every call; the first fault that happens decides."""
        outputs: list[ModelOutput | Failure] = []
        for session, call in calls:
            harness, item = self._cases[session]
            fault = self._fault(harness, item, call)
            outputs.append(
                self._expert.respond(harness, item, self._turn, call)
                if fault is None
                else self._spoilt(fault, harness, item, call)
            )
        return outputs

    def _fault(self, harness: Harness, item: Item, call: CallModel) -> Fault | None:
        turn = item.turns[self._turn]
        told = self._told.setdefault(id(harness), told_to_model(harness))
        rounds = _sent_back(call.messages, turn)
        for fault in self._faults:
            if fault.intents and turn.intent not in fault.intents:
                continue
            if self._draw(fault, item, "rate") >= fault.rate:
                continue
            if (fault.when and not re.search(fault.when, told)) or (fault.unless and re.search(fault.unless, told)):
                continue
            if rounds and self._draw(fault, item, "stubborn") >= fault.stubborn:
                continue
            return fault
        return None

    def _draw(self, fault: Fault, item: Item, what: str) -> float:
        text = f"{self._seed}\x1f{fault.name}\x1f{item.id}\x1f{self._turn}\x1f{what}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64

    def _spoilt(self, fault: Fault, harness: Harness, item: Item, call: CallModel) -> ModelOutput:
        if fault.kind == "no_skill":
            return self._expert.respond(harness.model_copy(update={"skills": ()}), item, self._turn, call)
        if fault.kind == "no_call":
            return self._expert.respond(harness.model_copy(update={"tools": ()}), item, self._turn, call)
        if fault.kind == "refuses":
            return _refuse(fault, harness, item.turns[self._turn], call)
        right = self._expert.respond(harness, item, self._turn, call)
        if not right.content:
            return right
        if fault.kind == "says":
            return replace(right, content=fault.text)
        return replace(right, content=_NUMBER.sub(lambda found: str(int(found[0]) + 1), right.content, count=1))


def told_to_model(harness: Harness) -> str:
    """Every text of a harness that a model reads: rules, skills with their bodies, tools."""
    texts = [part.text for part in harness.prompts]
    texts += [f"{skill.name} {skill.description}\n{skill.body}" for skill in harness.skills]
    texts += [f"{tool.name} {tool.description}" for tool in harness.tools]
    return "\n".join(texts)


def _since(messages: Sequence[Message], turn: Turn) -> list[Message]:
    """What was said since the turn's own message."""
    needles = list(turn.texts) or [str(value) for value in turn.data.values()]
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user" and all(needle in messages[index].content for needle in needles):
            return list(messages[index + 1 :])
    return []


def _sent_back(messages: Sequence[Message], turn: Turn) -> int:
    """How often hooks have sent the turn back."""
    return sum(message.role == "user" for message in _since(messages, turn))


def _refuse(fault: Fault, harness: Harness, turn: Turn, call: CallModel) -> ModelOutput:
    """Load the refusing skill, then decline by tool, or in words."""
    made = [one for message in _since(call.messages, turn) for one in message.tool_calls]
    skill = next((one for one in harness.skills if one.id == fault.skill), None)
    tool = next((one for one in harness.tools if one.id == fault.tool), None)
    parameter = harness.activation.parameter
    if skill is not None and not any(one.arguments.get(parameter) == skill.name for one in made):
        step = ToolCall(f"{call.call_id}.0", harness.activation.tool, {parameter: skill.name})
        return ModelOutput(call.call_id, tool_calls=(step,), finish_reason="tool_calls")
    if tool is not None and not any(one.name == tool.name for one in made):
        return ModelOutput(
            call.call_id, tool_calls=(ToolCall(f"{call.call_id}.0", tool.name, {}),), finish_reason="tool_calls"
        )
    return ModelOutput(call.call_id, content=fault.text)
