"""Who judges: a model behind an endpoint, or an oracle for simulation.

Always holds: `opinion` never raises for one bad case; what it cannot judge has a reason per criterion; the oracle's
draws follow from its seed and the case alone, in whatever order cases come. Not here: voting (panel).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hat_components.judge import prompt
from hat_components.judge.chat import Chat, Completion, Refusal
from hat_components.judge.evidence import TOOLS, Evidence
from hat_components.judge.rubric import Criterion, Rubric
from hat_components.judge.spec import EndpointMember, OracleMember
from hat_components.judge.verdict import Answer, Flag, Reason, read_verdict

Messages = list[dict[str, Any]]
_ASK_AGAIN = frozenset(
    ("empty", "prose", "truncated", "malformed", "no_case_code", "injected", "ambiguous", "unknown_label",
     "other_language", "no_label")
)  # fmt: skip
"""Reasons that lie in the text, where another try can help."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one member says of one subject."""

    member: str
    labels: Mapping[str, str] = field(default_factory=dict)
    rationales: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    looked_up: tuple[str, ...] = ()
    """Evidence tools that it called, in order."""
    detail: str = ""


class Asks(Protocol):
    """A member at work."""

    name: str

    def opinion(self, evidence: Evidence, criteria: tuple[Criterion, ...]) -> Opinion:
        """Labels or reasons for `criteria`, every one of them."""


class Oracle:
    """Errs as its confusion matrix says."""

    def __init__(self, config: OracleMember) -> None:
        self.name = config.name
        self._config = config

    def opinion(self, evidence: Evidence, criteria: tuple[Criterion, ...]) -> Opinion:
        """A label drawn from the row of the true one."""
        labels: dict[str, str] = {}
        reasons: dict[str, Reason] = {}
        for one in criteria:
            truth = evidence.subject.truth.get(one.name)
            if truth is None:
                reasons[one.name] = "no_truth"
                continue
            if self._draw(evidence.subject.id, one.name, "missing") < self._config.missing:
                reasons[one.name] = "no_answer"
                continue
            row = self._config.confusion.get(one.name, {}).get(truth, {truth: 1.0})
            labels[one.name] = _pick(row, self._draw(evidence.subject.id, one.name, "label"))
        return Opinion(self.name, labels, {}, reasons)

    def _draw(self, *parts: str) -> float:
        text = "\x1f".join((str(self._config.seed), self.name, *parts))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def _pick(row: Mapping[str, float], draw: float) -> str:
    total = 0.0
    for label, share in row.items():
        total += share
        if draw < total:
            return label
    return list(row)[-1]


class EndpointJudge:
    """A model that reads the case, looks things up, and answers in JSON."""

    def __init__(self, config: EndpointMember, chat: Chat, rubric: Rubric, salt: str) -> None:
        self.name = config.name
        self._config = config
        self._chat = chat
        self._rubric = rubric
        self._salt = salt

    def opinion(self, evidence: Evidence, criteria: tuple[Criterion, ...]) -> Opinion:
        """Ask, follow its look-ups, ask again where the answer cannot be read."""
        code = prompt.case_code(evidence, self._salt)
        tools = self._config.evidence == "tools"
        messages: Messages = [
            {"role": "system", "content": prompt.system_text(self._rubric, criteria, code)},
            {"role": "user", "content": prompt.case_text(evidence, tools=tools)},
        ]
        looked_up: list[str] = []
        if tools:
            refused = self._look_up(messages, evidence, looked_up)
            if refused is not None:
                return self._without(criteria, refused, looked_up)
            messages.append({"role": "user", "content": prompt.TO_THE_POINT})
        schema = prompt.verdict_schema(criteria, code)
        seen = "\n".join([evidence.text(), *(str(message["content"]) for message in messages[1:])])
        answer, longer = Answer(), False
        for attempt in range(self._config.ask_again + 1):
            completion = self._chat.complete(messages, schema=schema, longer=longer)
            if isinstance(completion, Refusal):
                return self._without(criteria, completion, looked_up)
            answer = read_verdict(completion.text, criteria, code, cut_off=completion.cut_off, seen=seen)
            answer = self._flagged(answer, attempt)
            if not set(answer.reasons.values()) & _ASK_AGAIN:
                break
            longer = completion.cut_off
            why = ", ".join(sorted(set(answer.reasons.values())))
            messages = [
                *messages,
                {"role": "assistant", "content": completion.text[:4000] or "-"},
                {"role": "user", "content": prompt.AGAIN.format(why=why)},
            ]
        return Opinion(self.name, answer.labels, answer.rationales, answer.reasons, answer.flags, tuple(looked_up))

    def _flagged(self, answer: Answer, attempt: int) -> Answer:
        flags = list(answer.flags)
        if attempt:
            flags.append("asked_again")
        if self._chat.weakened:
            flags.append("no_structured_output")
        return Answer(answer.labels, answer.rationales, answer.reasons, tuple(flags))

    def _without(self, criteria: tuple[Criterion, ...], refusal: Refusal, looked_up: list[str]) -> Opinion:
        reasons = {one.name: refusal.reason for one in criteria}
        return Opinion(self.name, {}, {}, reasons, (), tuple(looked_up), refusal.detail)

    def _look_up(self, messages: Messages, evidence: Evidence, looked_up: list[str]) -> Refusal | None:
        """Carry out tool calls until the member has no more; appends to `messages`."""
        for _ in range(self._config.max_steps):
            completion = self._chat.complete(messages, tools=TOOLS)
            if isinstance(completion, Refusal):
                return completion
            if not completion.tool_calls:
                if completion.text:
                    messages.append({"role": "assistant", "content": completion.text[:4000]})
                return None
            messages.append(_assistant(completion))
            for call in completion.tool_calls:
                name, arguments = call["function"]["name"], _arguments(call)
                looked_up.append(name)
                content = evidence.call(name, arguments) if arguments is not None else "error: arguments are not JSON"
                messages.append({"role": "tool", "tool_call_id": str(call.get("id", "")), "content": content})
        return None


def _assistant(completion: Completion) -> dict[str, Any]:
    calls = [
        {
            "id": str(call.get("id", "")),
            "type": "function",
            "function": {"name": call["function"]["name"], "arguments": _text(call["function"].get("arguments"))},
        }
        for call in completion.tool_calls
    ]
    return {"role": "assistant", "content": completion.text, "tool_calls": calls}


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)


def _arguments(call: Mapping[str, Any]) -> Mapping[str, Any] | None:
    given = call["function"].get("arguments")
    try:
        value = json.loads(given) if isinstance(given, str) and given.strip() else given or {}
    except ValueError:
        return None
    return value if isinstance(value, Mapping) else None
