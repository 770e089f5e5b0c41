"""Lifecycle hooks: CEL expressions over a documented, typed context (`CONTEXT`), compiled once and evaluated fail-closed.

Always holds: an expression is type-checked against the fields that its event sets and returns a boolean, or the
harness does not load. At run time only an explicit `true` or `false` counts; an error, a missing key or any other
value fires the hook. Names in the context are canonical, so renaming skills, tools or parameters never touches an
expression. Strings have CEL's string extension (`lowerAscii`, `split`, ...); `matches` is RE2, linear in the text.
Which action may follow which event, and what it does: `ACTIONS`. Not here: carrying actions out (gates, turn).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from hat_harness.errors import HookError
from hat_harness.spec import Harness, Hook, HookAction, HookEvent

EVENTS: tuple[HookEvent, ...] = ("session_start", "before_model", "after_model", "before_tool", "after_tool", "stop")
_IN_TURN: tuple[HookEvent, ...] = EVENTS[1:]
_OUTPUT: tuple[HookEvent, ...] = ("after_model", "stop")
_TOOL: tuple[HookEvent, ...] = ("before_tool", "after_tool")


@dataclass(frozen=True, slots=True)
class ContextField:
    """One field that `when` may read: its CEL type, the events at which it is set, and what it holds."""

    type: str
    events: tuple[HookEvent, ...]
    doc: str


CONTEXT: dict[str, ContextField] = {
    "event": ContextField("string", EVENTS, "The lifecycle event."),
    "language": ContextField("string", EVENTS, "The harness's language, `en` or `zh`."),
    "room": ContextField("map(string, dyn)", EVENTS, "The room view that the harness renders."),
    "args": ContextField("map(string, string)", EVENTS, "The hook's own `arguments`."),
    "turn": ContextField("int", _IN_TURN, "Number of the turn, counted from 1."),
    "round": ContextField("int", _IN_TURN, "How often hooks have sent this turn back to the model so far."),
    "viewer": ContextField("list(string)", _IN_TURN, "The texts that the turn answers; empty for a room event."),
    "skills": ContextField("list(string)", _IN_TURN, "Canonical ids of the skills activated in this turn, in order."),
    "tools": ContextField(
        "list(map(string, dyn))",
        _IN_TURN,
        "Finished tool calls of this turn: `id` (canonical), `name`, `arguments` (canonical), `result`, `failed`.",
    ),
    "tool": ContextField(
        "map(string, dyn)",
        _TOOL,
        "The present call: `id`, `name`, `arguments`, `read_only`; at `after_tool` also `result`, `failed`.",
    ),
    "reply": ContextField("string", _OUTPUT, "The text that the model wrote; at `stop` the reply about to be given."),
    "reasoning": ContextField("string", _OUTPUT, "The model's reasoning."),
    "calls": ContextField("list(string)", _OUTPUT, "Canonical ids of the tools that this output asks for."),
    "finish": ContextField("string", _OUTPUT, "Why sampling ended: `stop`, `tool_calls` or `length`."),
    "numbers": ContextField(
        "list(string)", _OUTPUT, "The numbers that stand in `reply` (39.00 and 39 are one number)."
    ),
    "known_numbers": ContextField(
        "list(string)",
        _OUTPUT,
        "The numbers that the model has read in this conversation: system prompt with room view, skill bodies, tool "
        "results, viewer texts.",
    ),
}

ACTIONS: dict[HookEvent, dict[HookAction, str]] = {
    "session_start": {
        "refuse": "Every turn is refused with the message; the model is never called.",
        "silence": "Every turn ends in silence.",
        "annotate": "Noted in the trace.",
    },
    "before_model": {
        "require": "The message is put into the context as a user message before the call.",
        "refuse": "The turn ends with the message as refusal.",
        "silence": "The turn ends in silence.",
        "replace": "The turn ends with the message as reply.",
        "annotate": "Noted in the trace.",
    },
    "after_model": {
        "block": "The output is rejected, its calls are not made; the message goes to the model, another round.",
        "require": "The same.",
        "refuse": "The turn ends with the message as refusal.",
        "silence": "The turn ends in silence.",
        "replace": "The turn ends with the message as reply.",
        "annotate": "Noted in the trace.",
    },
    "before_tool": {
        "block": "The tool is not called; the message is its result, as an error.",
        "require": "The same.",
        "refuse": "The turn ends with the message as refusal.",
        "silence": "The turn ends in silence.",
        "replace": "The tool is not called; the message is its result.",
        "annotate": "Noted in the trace.",
    },
    "after_tool": {
        "block": "The model reads the message instead of the result, as an error.",
        "require": "The model reads the result, then the message.",
        "refuse": "The turn ends with the message as refusal.",
        "silence": "The turn ends in silence.",
        "replace": "The model reads the message instead of the result.",
        "annotate": "Noted in the trace.",
    },
    "stop": {
        "block": "The reply is rejected; the message goes to the model as a user message, another round.",
        "require": "The same.",
        "refuse": "The turn ends with the message as refusal.",
        "silence": "The turn ends in silence.",
        "replace": "The turn ends with the message as reply.",
        "annotate": "Noted in the trace.",
    },
}

PLACEHOLDERS: dict[HookEvent, tuple[str, ...]] = {
    "after_model": ("reply",),
    "stop": ("reply",),
    "after_tool": ("result",),
}
"""What a message may refer to as `{name}` besides the hook's own arguments."""

MAX_EXPRESSION = 4096
_ERROR = 200
"""Characters of an engine's message that are kept; it may quote the context."""
_EMPTY: dict[str, Any] = {"string": "", "int": 0, "list": [], "map": {}}
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


# ---- compiling ------------------------------------------------------------------------------------------------


@cache
def _environment(event: HookEvent) -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_strings

    kind = cel.Type
    types = {
        "string": kind.STRING,
        "int": kind.INT,
        "list(string)": kind.List(kind.STRING),
        "map(string, dyn)": kind.Map(kind.STRING, kind.DYN),
        "map(string, string)": kind.Map(kind.STRING, kind.STRING),
        "list(map(string, dyn))": kind.List(kind.Map(kind.STRING, kind.DYN)),
    }
    variables = {name: types[item.type] for name, item in CONTEXT.items() if event in item.events}
    return cel.NewEnv(variables=variables, extensions=[ext_strings.ExtStrings()])


@lru_cache(maxsize=8192)
def _compile(event: HookEvent, expression: str) -> Any:
    """The compiled expression. HookError when it does not type-check to a boolean."""
    from cel_expr_python import cel

    if len(expression) > MAX_EXPRESSION:
        raise HookError(f"the expression is longer than {MAX_EXPRESSION} characters")
    try:
        compiled = _environment(event).compile(expression)
    except Exception as error:  # the engine documents no error classes; whatever it raises means "refused"
        text = _readable(str(error))
        raise HookError(text, cure=_suggestion(text, event)) from None
    _check_fields(event, expression)
    if compiled.return_type() != cel.Type.BOOL:
        raise HookError(
            f"the expression gives {compiled.return_type().name()}, not a boolean", cure="compare it, e.g. `== true`"
        )
    return compiled


_CALL_FIELDS = ("id", "name", "arguments", "read_only", "result", "failed")
_LITERAL = re.compile(r"""(?s)r?(\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
_MACRO = re.compile(r"\b(\w+)\s*\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*(\w+)\s*,")
_FIELD = re.compile(r"(?<![\w.])(\w+)\s*\.\s*([A-Za-z_]\w*)(?!\w|\s*\()")


def _suggestion(text: str, event: HookEvent) -> str:
    """What an unknown name was probably meant to be."""
    match = re.search(r"undeclared reference to '([\w.]+)'", text)
    known = [name for name, item in CONTEXT.items() if event in item.events]
    if match is None:
        return ""
    close = difflib.get_close_matches(match[1], known, 1)
    return f"did you mean {close[0]}?" if close else f"fields are {', '.join(known)}"


def _check_fields(event: HookEvent, expression: str) -> None:
    """Fields of `tool` and of the calls in `tools`, which the engine sees as maps of anything. HookError for an unknown one."""
    code = _LITERAL.sub("''", expression)
    calls = {name for owner, name in _MACRO.findall(code) if owner == "tools"}
    calls -= {name for owner, name in _MACRO.findall(code) if owner != "tools"}
    known = _CALL_FIELDS[:-2] if event == "before_tool" else _CALL_FIELDS
    for owner, name in _FIELD.findall(code):
        fields = known if owner == "tool" else _CALL_FIELDS if owner in calls else ()
        if fields and name not in fields:
            close = difflib.get_close_matches(name, fields, 1)
            cure = f"did you mean {close[0]}?" if close else f"its fields are {', '.join(fields)}"
            raise HookError(f"a call has no field {owner}.{name} at {event}", cure=cure)


def _readable(text: str) -> str:
    """The engine's message without its status words: `line 1, column 7: undeclared reference to 'x'`."""
    found = re.search(r"ERROR: <input>:(\d+):(\d+): (.*?)(?: \(in container ''\))?(?:\n|$)", text)
    return f"line {found[1]}, column {found[2]}: {found[3]}" if found else text.split("\n")[0]


@dataclass(frozen=True, slots=True)
class CompiledHook:
    """One hook, ready to run. `reads` are the context fields that its expression may read."""

    hook: Hook
    expression: Any
    reads: frozenset[str]

    def verdict(self, context: Mapping[str, Any], activation: Any = None) -> tuple[bool, str]:
        """(fires, error). An error fires."""
        # Only an explicit boolean counts: the engine returns errors as values that are truthy, texts even.
        try:
            if activation is None or "args" in self.reads:
                own = {name: context[name] for name in self.reads if name in context}
                own["args"] = self.hook.arguments
                activation = _environment(self.hook.event).Activation(own)
            value = self.expression.eval(activation).value()
        except Exception as error:  # fail closed, whatever the engine raises
            return True, str(error)[:_ERROR]
        if value is True:
            return True, ""
        if value is False:
            return False, ""
        return True, str(value)[:_ERROR]


def compile_hook(hook: Hook) -> CompiledHook:
    """Type-checks and compiles one hook. HookError says what is wrong; `place` is the hook."""
    if hook.action not in ACTIONS[hook.event]:
        known = ", ".join(ACTIONS[hook.event])
        message = f"{hook.action} cannot follow {hook.event}"
        raise HookError(message, place=f"hook {hook.id}", cure=f"use one of {known}")
    try:
        expression = _compile(hook.event, hook.when)
    except HookError as error:
        raise HookError(error.message, place=f"hook {hook.id}", cure=error.cure) from None
    reads = frozenset(name for name in CONTEXT if re.search(rf"\b{name}\b", hook.when))
    return CompiledHook(hook, expression, reads)


@dataclass(frozen=True, slots=True)
class CompiledHooks:
    """The hooks of a harness by event, in order of `order`, then of the harness; events without hooks are absent."""

    by_event: Mapping[HookEvent, tuple[CompiledHook, ...]]
    reads: Mapping[HookEvent, frozenset[str]] = field(default_factory=dict)
    """Event → all fields that its hooks may read."""

    @property
    def holds_reply(self) -> bool:
        """Whether a hook may still reject or replace a reply, so that nothing is shown before it is final."""
        later = (*self.by_event.get("after_model", ()), *self.by_event.get("stop", ()))
        return any(item.hook.action != "annotate" for item in later)


NO_HOOKS = CompiledHooks({})


def compile_hooks(harness: Harness) -> CompiledHooks:
    """Type-checks and compiles every hook, each expression once per process. HookError at the first bad one."""
    if not harness.hooks:
        return NO_HOOKS
    ordered = sorted(harness.hooks, key=lambda hook: hook.order)
    by_event = {
        event: tuple(compile_hook(hook) for hook in ordered if hook.event == event)
        for event in EVENTS
        if any(hook.event == event for hook in ordered)
    }
    reads = {event: frozenset().union(*(item.reads for item in items)) for event, items in by_event.items()}
    return CompiledHooks(by_event, reads)


def activation_of(event: HookEvent, context: Mapping[str, Any]) -> Any:
    """The context in the engine's form, to be shared by all hooks of one event that do not read `args`.

    None when the engine does not take it; each hook then tries for itself and fails closed.
    """
    try:
        return _environment(event).Activation(context)
    except Exception:  # the engine documents no error classes
        return None


# ---- messages and explanations --------------------------------------------------------------------------------


def placeholders(hook: Hook) -> set[str]:
    """Names in braces in the hook's message."""
    return set(_PLACEHOLDER.findall(hook.message))


def message_of(hook: Hook, values: Mapping[str, str] | None = None) -> str:
    """The hook's message with `{name}` replaced by its arguments and `values`; unknown names stay as written."""
    if "{" not in hook.message:
        return hook.message
    known = {**(values or {}), **hook.arguments}
    return _PLACEHOLDER.sub(lambda found: known.get(found[1], found[0]), hook.message)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a hook fires or not."""

    hook: str
    fires: bool
    error: str
    """The engine's message when the expression failed, which counts as firing."""
    fields: Mapping[str, Any]
    """Value of every context field that the expression reads."""


def explain(hook: Hook, context: Mapping[str, Any]) -> Explanation:
    """Evaluates one hook over a context; fields that it lacks are empty. HookError when it does not compile."""
    compiled = compile_hook(hook)
    full = {
        name: context.get(name, _EMPTY[item.type.split("(")[0]])
        for name, item in CONTEXT.items()
        if hook.event in item.events
    }
    full |= {"event": hook.event, "args": hook.arguments}
    fires, error = compiled.verdict(full)
    read = {name: full[name] for name in CONTEXT if name in compiled.reads and name in full}
    return Explanation(hook.id, fires, error, read)
