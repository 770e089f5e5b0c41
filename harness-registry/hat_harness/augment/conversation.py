"""Augmentation of conversations that bring their own tools (OpenAI chat format), without any harness.

Families that need no harness apply: names, parameters, types, orders, descriptions of tools, distractor tools. Calls and
the tools' own texts are rewritten with them, also names that stand bare in prose when they are identifiers
(`get_weather`, `math.factorial`, `getUser`): names of tools anywhere, names of parameters in their own tool's texts.
Always holds: `restore_conversation(augment_conversation(c, …)) == c` (JSON text of arguments keeps its usual style); the
canonical call is the original one. Not here: harness states (engine), reading files (hat_components.importer).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hat_harness.augment.draft import Draft, changed
from hat_harness.augment.engine import carry_out, seeded, undone
from hat_harness.augment.mentions import spans
from hat_harness.augment.naming import describe_schema
from hat_harness.augment.operators import AnyOperator
from hat_harness.augment.plan import AugmentPlan
from hat_harness.augment.state import HarnessState, Rewrite
from hat_harness.augment.translation import Translation
from hat_harness.augment.walk import each_text, translate
from hat_harness.augment.words import Words, WordsLike, lexicon
from hat_harness.canonical import CallError, CanonicalCall, canonical_call
from hat_harness.errors import AugmentError
from hat_harness.spec import Activation, Adapter, Harness, Layout, Recovery, Tool

Conversation = dict[str, Any]

KEY = "augmentation"
"""Where `metadata` keeps the record."""
FAMILIES = frozenset(
    {"tool_name", "parameter_name", "parameter_type", "tool_order", "parameter_order", "tool_description"}
    | {"distractor_tool"}
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SYSTEM = ("system", "developer")
_NO_SKILLS = Activation.model_construct(tool="\x00", parameter="\x00", description="", required=False, once_per="turn")

GENERAL = Words(
    names={
        "": (
            *("amber", "birch", "cedar", "delta", "ember", "falcon", "garnet", "hazel", "indigo", "jasper", "lotus"),
            *(
                "maple",
                "onyx",
                "pearl",
                "quartz",
                "raven",
                "topaz",
                "violet",
                "willow",
                "zephyr",
                "unit",
                "task",
                "flow",
            ),
            *("handler", "action", "module", "service", "node", "worker", "keeper", "step", "call"),
        )
    },
    distractors=(
        ("city_weather", "Weather report for a city."),
        ("play_song", "Play a song by its title."),
        ("clock_time", "Tell the current time."),
        ("word_bridge", "Translate a sentence into another language."),
        ("lucky_draw", "Draw lots among participants."),
        ("taxi_ride", "Book a taxi to an address."),
        ("poem_hour", "Read a poem aloud."),
        ("room_lights", "Switch the lights of a room."),
    ),
)
"""Words for conversations whose tools no vocabulary knows."""


def augment_conversation(
    conversation: Conversation,
    plan: AugmentPlan | Sequence[AnyOperator],
    seed: int,
    vocabulary: WordsLike = GENERAL,
    *,
    held_out: WordsLike | None = None,
) -> Conversation:
    """One draw of the plan applied to a conversation with `messages` and `tools`; families that need a harness are idle.

    The record of what was done goes to `metadata.augmentation`. AugmentError for a conversation that has been augmented
    already or whose tools are not OpenAI function definitions.
    """
    if KEY in (conversation.get("metadata") or {}):
        raise AugmentError("the conversation has been augmented already", place=f"metadata.{KEY}")
    base = _harness(conversation.get("tools") or [], {})
    extra = plan.lexicon if isinstance(plan, AugmentPlan) else ()
    steps = [(op, own) for op, own in seeded(plan, seed) if op.type in FAMILIES]
    draft = Draft.of(base, lexicon(vocabulary, held_out, extra))
    tokens = _TOKEN.findall(json.dumps(conversation, ensure_ascii=False))
    draft.avoid = frozenset(tokens) | {token.lower() for token in tokens}
    state = carry_out(base, steps, seed, draft, digest=False)
    words = _Bare(base, state.harness)
    target = words.harness(state.harness)
    record = {
        "seed": seed,
        "rewrites": [rewrite.model_dump(mode="json") for rewrite in state.rewrites],
        "tools": {tool.name: _hidden(tool) for tool in target.tools},
        "metadata": "metadata" in conversation,
    }
    made = {**conversation, "messages": words.messages(conversation.get("messages", []))}
    if "tools" in conversation:
        made["tools"] = _definitions(target, conversation["tools"], {tool.id: tool.id for tool in base.tools})
    made["metadata"] = {**(conversation.get("metadata") or {}), KEY: record}
    return words.chosen(made)


def restore_conversation(conversation: Conversation) -> Conversation:
    """The conversation as it was; messages that were added since (a model's answer) come back with it."""
    record = _record(conversation)
    state, base = _states(conversation, record)
    words = _Bare(state.harness, base, back=True)
    made = {**conversation, "messages": words.messages(conversation.get("messages", []))}
    if "tools" in conversation:
        known = {tool.id: tool.name for tool in state.harness.tools}
        made["tools"] = _definitions(base, conversation["tools"], known)
    metadata = {key: value for key, value in conversation["metadata"].items() if key != KEY}
    if metadata or record["metadata"]:
        made["metadata"] = metadata
    else:
        del made["metadata"]
    return words.chosen(made)


def canonical_conversation_call(
    conversation: Conversation, name: str, arguments: Mapping[str, Any]
) -> CanonicalCall | CallError:
    """What a call means that a model wrote for an augmented conversation: original name and arguments, or why not."""
    record = _record(conversation)
    return canonical_call(_harness(conversation.get("tools") or [], record["tools"]), name, arguments)


def _record(conversation: Conversation) -> dict[str, Any]:
    record = (conversation.get("metadata") or {}).get(KEY)
    if not isinstance(record, dict):
        raise AugmentError("the conversation carries no record of augmentation", place=f"metadata.{KEY}")
    return record


def _states(conversation: Conversation, record: dict[str, Any]) -> tuple[HarnessState, Harness]:
    """The state that the conversation stands in, and its base."""
    harness = _harness(conversation.get("tools") or [], record["tools"])
    rewrites = tuple(Rewrite.model_validate(rewrite) for rewrite in record["rewrites"])
    plain = _unbared(harness, rewrites)
    state = HarnessState.model_construct(harness=plain, base_digest="", seed=record["seed"], rewrites=rewrites)
    base = undone(state)
    return HarnessState.model_construct(harness=harness, base_digest="", seed=record["seed"], rewrites=rewrites), base


def _unbared(harness: Harness, rewrites: tuple[Rewrite, ...]) -> Harness:
    """The harness with bare names in its texts as they were; the maps come from the records."""
    first = undone(HarnessState.model_construct(harness=harness, base_digest="", seed=0, rewrites=rewrites))
    return _Bare(harness, first, back=True).harness(harness)


# ---- tools as a harness ---------------------------------------------------------------------------------------


def _harness(tools: Sequence[Any], hidden: Mapping[str, Any]) -> Harness:
    """The tools as a harness without skills. Names need not satisfy the pattern: outside tools may have dots."""
    made = []
    for place, entry in enumerate(tools):
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise AugmentError("not an OpenAI function definition", place=f"tools[{place}]")
        name, known = function["name"], hidden.get(function["name"], {})
        made.append(
            Tool.model_construct(
                id=known.get("id", name),
                name=name,
                description=function.get("description") or "",
                parameters=dict(function.get("parameters") or {"type": "object", "properties": {}}),
                parameter_names=dict(known.get("parameter_names", {})),
                adapters=tuple(Adapter.model_validate(adapter) for adapter in known.get("adapters", ())),
            )
        )
    if len({tool.id for tool in made}) < len(made):
        raise AugmentError("two tools share a name", place="tools")
    return Harness.model_construct(
        name="conversation",
        sections=(),
        layout=Layout(),
        tools=tuple(made),
        activation=_NO_SKILLS,
        recovery=Recovery(),
    )


def _hidden(tool: Tool) -> dict[str, Any]:
    """What a function definition cannot say about a tool."""
    made: dict[str, Any] = {"id": tool.id}
    if tool.parameter_names:
        made["parameter_names"] = dict(tool.parameter_names)
    if tool.adapters:
        made["adapters"] = [adapter.model_dump(mode="json", exclude_defaults=True) for adapter in tool.adapters]
    return made


def _definitions(harness: Harness, given: Sequence[Any], known: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tools as function definitions; whatever else the given ones said is kept. `known`: id → given name."""
    by_name = {entry["function"]["name"]: entry for entry in given}
    made = []
    for tool in harness.tools:
        entry = by_name.get(
            known.get(tool.id, ""), {"type": "function", "function": {"description": "", "parameters": {}}}
        )
        function = {**entry["function"], "name": tool.name}
        for key, value in (("description", tool.description), ("parameters", tool.parameters)):
            if entry["function"].get(key) is not None:
                function[key] = value
        made.append({**entry, "function": function})
    return made


# ---- bare names in prose --------------------------------------------------------------------------------------


class _Bare:
    """Names in prose and calls in messages, from one state of the tools to another (`back`: to the original ones)."""

    def __init__(self, source: Harness, target: Harness, back: bool = False) -> None:
        self.words = Translation(source, target, catalogue=False)
        self.back = back
        closure = self.words.closure
        self.there = {tool.id: tool.name for tool in source.tools}
        tools = {old: new for old, new in closure.tools.items() if old != new and _identifier(new if back else old)}
        while stray := {old for old, new in tools.items() if new in closure.tools and new not in tools}:
            tools = {old: new for old, new in tools.items() if old not in stray}
        self.tools = tools
        self.change = _changer(tools)

    def prose(self, text: str) -> str:
        """Names of tools in a text, bare or in code."""
        return self.words.mentioned(self.change(text))

    def messages(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """All messages: calls and results by the trajectory rules, then bare names in every text but results."""
        moved = translate(self.words, [message for message in messages if message.get("role") not in _SYSTEM])
        rest = iter(moved)
        made = []
        for message in messages:
            role = message.get("role")
            if role in _SYSTEM:
                made.append(_texts(message, self.prose))
            elif role == "user":
                made.append(_texts(next(rest), self.prose))
            elif role == "assistant":
                made.append(_texts(next(rest), self.change))  # names in code have been rewritten by then
            else:
                made.append(next(rest))
        return made

    def chosen(self, conversation: Conversation) -> Conversation:
        """The conversation with the tool that its `tool_choice` names, if it names one."""
        choice: Any = conversation.get("tool_choice")
        function = choice.get("function") if isinstance(choice, Mapping) else None
        if not isinstance(function, Mapping) or "name" not in function:
            return conversation
        named = {**function, "name": self.words.closure.tool(function["name"])}
        return {**conversation, "tool_choice": {**choice, "function": named}}

    def harness(self, harness: Harness) -> Harness:
        """The tools with bare names in their own texts rewritten; parameters that swapped names stay in prose."""
        closure = self.words.closure
        made = []
        for tool in harness.tools:
            own = closure.parameters.get(self.there.get(tool.id, ""), {})
            names = {
                old: new
                for old, new in own.items()
                if old != new and new not in closure.flat and _identifier(new if self.back else old)
            }
            change = _changer({**names, **self.tools})
            schema = describe_schema(tool.parameters, change)
            made.append(changed(tool, description=change(tool.description), parameters=schema))
        return changed(harness, tools=tuple(made))


def _identifier(name: str) -> bool:
    """Whether a name cannot be an ordinary word: it has an inner underscore or dot, a digit, or an inner capital."""
    inner = any(mark in name[1:] for mark in "_.") or any(letter.isdigit() for letter in name)
    return bool(_IDENTIFIER.fullmatch(name)) and (inner or any(letter.isupper() for letter in name[1:]))


def _changer(names: Mapping[str, str]) -> Callable[[str], str]:
    """Rewrites names that stand bare in the prose of a text, as whole words."""
    if not names:
        return lambda text: text
    longest = sorted(names, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w.-])(?:" + "|".join(map(re.escape, longest)) + r")(?![\w-]|\.\w)")

    def change(text: str) -> str:
        cut = list(spans(text))
        cut[::2] = [pattern.sub(lambda match: names[match.group()], piece) for piece in cut[::2]]
        return "".join(cut)

    return change


def _texts(message: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """A message with its content and reasoning changed."""
    made = dict(message)
    for key in ("content", "reasoning_content", "reasoning"):
        if key in message:
            made[key] = each_text(message[key], change)
    return made
