"""One imported conversation: the OpenAI chat format read strictly, with every problem of a line reported.

Always holds: in a `Conversation` each call names a tool that is defined beside it, its arguments are an object that
fits the tool's JSON Schema, each tool message answers an open call, and unknown fields are gone (they are where
personal data hide). Remote `$ref`s are never fetched. Not here: scrubbing, files, splits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from pydantic import BaseModel, ConfigDict
from referencing import Registry
from referencing.exceptions import Unresolvable

from hat_components.importer.mlflow_traces import conversations_of, is_trace
from hat_harness.spec import NAME_PATTERN

_NAME = re.compile(NAME_PATTERN)
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_CACHE_LIMIT = 4096


class Conversation(BaseModel):
    """One conversation in OpenAI chat format, one line of a dataset of kind `conversations`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    viewer: str = ""
    """Pseudonym of the viewer, "" when the source named none."""
    messages: tuple[dict[str, Any], ...]
    """`role`, `content`, and where they apply `reasoning_content`, `tool_calls`, `tool_call_id`, `name`."""
    tools: tuple[dict[str, Any], ...] = ()
    """OpenAI function definitions."""


class Reader:
    """Parses lines; keeps compiled validators, since a log repeats the same tools on most of its lines."""

    def __init__(self) -> None:
        self._validators: dict[str, Draft202012Validator | str] = {}

    def read(self, line: bytes) -> list[tuple[dict[str, Any], list[str]]]:
        """What a line holds: one conversation, or those of an MLflow trace, each as `parse` gives it."""
        raw, problem = _loaded(line)
        if problem or not is_trace(raw):
            return [({}, [problem])] if problem else [self._cleaned(raw)]
        found, problems = conversations_of(raw)
        return [*([({}, problems)] if problems else []), *(self._cleaned(one) for one in found)]

    def parse(self, line: bytes) -> tuple[dict[str, Any], list[str]]:
        """(the line's object with `messages` and `tools` cleaned, problems); the object is {} when unreadable."""
        raw, problem = _loaded(line)
        return ({}, [problem]) if problem else self._cleaned(raw)

    def _cleaned(self, raw: Any) -> tuple[dict[str, Any], list[str]]:
        if not isinstance(raw, dict):
            return {}, [f"a conversation is an object, this is {_kind(raw)}"]
        problems: list[str] = []
        tools, validators = self._tools(raw.get("tools"), problems)
        messages = _Messages(validators, problems).read(raw.get("messages"))
        return {**raw, "messages": messages, "tools": tools}, problems

    def _tools(
        self, raw: Any, problems: list[str]
    ) -> tuple[list[dict[str, Any]], dict[str, Draft202012Validator | None]]:
        if raw is None:
            return [], {}
        if not isinstance(raw, list):
            problems.append(f"tools is a list, this is {_kind(raw)}")
            return [], {}
        tools: list[dict[str, Any]] = []
        validators: dict[str, Draft202012Validator | None] = {}
        for index, entry in enumerate(raw):
            function = entry.get("function") if isinstance(entry, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if not isinstance(function, dict) or not isinstance(name, str) or not _NAME.match(name):
                problems.append(f"tools[{index}]: no function with a name that OpenAI and MCP accept")
                continue
            if name in validators:
                problems.append(f"tools[{index}]: the name {name!r} is used twice")
            parameters = function.get("parameters") or {"type": "object", "properties": {}}
            validator = self._validator(parameters)
            if isinstance(validator, str):
                problems.append(f"tools[{index}] {name}: {validator}")
            validators[name] = None if isinstance(validator, str) else validator
            clean = {"name": name, "description": str(function.get("description") or ""), "parameters": parameters}
            tools.append({"type": "function", "function": clean})
        return tools, validators

    def _validator(self, schema: Any) -> Draft202012Validator | str:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            if len(self._validators) >= _CACHE_LIMIT:
                self._validators.clear()
            try:
                Draft202012Validator.check_schema(schema)
                self._validators[key] = Draft202012Validator(schema, registry=Registry())
            except SchemaError as error:
                self._validators[key] = f"parameters are not JSON Schema: {error.message[:120]}"
        return self._validators[key]


class _Messages:
    """Reads the messages of one conversation; `open` holds calls that wait for their answer."""

    def __init__(self, validators: Mapping[str, Draft202012Validator | None], problems: list[str]) -> None:
        self._validators = validators
        self._problems = problems
        self._open: dict[str, str] = {}
        self._seen: set[str] = set()

    def read(self, raw: Any) -> list[dict[str, Any]]:
        if not isinstance(raw, list) or not raw:
            self._problems.append("messages is a list of one message or more")
            return []
        messages = [self._message(index, entry) for index, entry in enumerate(raw)]
        if not any(message.get("role") == "assistant" for message in messages):
            self._problems.append("there is no assistant message: nothing to learn from or to score")
        return messages

    def _say(self, index: int, what: str) -> None:
        self._problems.append(f"messages[{index}]: {what}")

    def _message(self, index: int, raw: Any) -> dict[str, Any]:
        if not isinstance(raw, dict):
            self._say(index, f"a message is an object, this is {_kind(raw)}")
            return {}
        role = _ROLES.get(str(raw.get("role")))
        if role is None:
            self._say(index, f"unknown role {str(raw.get('role'))[:40]!r}")
            return {}
        message: dict[str, Any] = {"role": role, "content": self._content(index, raw.get("content"))}
        if role == "tool":
            self._answer(index, raw, message)
            return message
        if self._open:
            self._say(index, f"the call {next(iter(self._open))!r} has no answer before this message")
            self._open.clear()
        if role == "assistant":
            reasoning = raw.get("reasoning_content") or raw.get("reasoning")
            if isinstance(reasoning, str) and reasoning:
                message["reasoning_content"] = reasoning
            calls = self._calls(index, raw.get("tool_calls"))
            if calls:
                message["tool_calls"] = calls
            elif not message["content"]:
                self._say(index, "an assistant message has content or tool calls, this has neither")
        return message

    def _content(self, index: int, raw: Any) -> str:
        if raw is None:
            return ""
        if isinstance(raw, str):
            return raw
        if isinstance(raw, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in raw):
            return "".join(str(part.get("text") or "") for part in raw)
        self._say(index, "content is text; images, audio and other parts are not taken")
        return ""

    def _answer(self, index: int, raw: dict[str, Any], message: dict[str, Any]) -> None:
        call = raw.get("tool_call_id")
        if not isinstance(call, str) or call not in self._open:
            self._say(index, f"answers the call {str(call)[:60]!r}, which is not open")
            return
        message["tool_call_id"] = call
        message["name"] = self._open.pop(call)

    def _calls(self, index: int, raw: Any) -> list[dict[str, Any]]:
        if raw is None:
            return []
        if not isinstance(raw, list):
            self._say(index, f"tool_calls is a list, this is {_kind(raw)}")
            return []
        return [call for number, entry in enumerate(raw) if (call := self._call(index, number, entry))]

    def _call(self, index: int, number: int, raw: Any) -> dict[str, Any] | None:
        where = f"tool_calls[{number}]"
        function = raw.get("function") if isinstance(raw, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            self._say(index, f"{where} has no function with a name")
            return None
        name, ident = function["name"], raw.get("id")
        if not isinstance(ident, str) or not ident or ident in self._seen:
            self._say(index, f"{where} needs an id of its own")
            ident = f"call_{index}_{number}"
        self._seen.add(ident)
        self._open[ident] = name
        if name not in self._validators:
            self._say(index, f"{where} calls {name[:64]!r}, which is not among the tools")
        arguments = self._arguments(index, where, function.get("arguments"))
        problem = "" if arguments is None else misfit(self._validators.get(name), arguments)
        if problem:
            self._say(index, f"{where} {name[:64]}: {problem}")
        text = json.dumps(arguments or {}, ensure_ascii=False, sort_keys=True)
        return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}

    def _arguments(self, index: int, where: str, raw: Any) -> dict[str, Any] | None:
        value = raw
        if isinstance(raw, str):
            try:
                value = json.loads(raw or "{}", parse_constant=_refuse_constant)
            except (ValueError, RecursionError):
                self._say(index, f"{where}: arguments are not JSON")
                return None
        if not isinstance(value, dict):
            self._say(index, f"{where}: arguments are an object, these are {_kind(value)}")
            return None
        return value


def misfit(validator: Draft202012Validator | None, arguments: Mapping[str, Any]) -> str:
    """Why `arguments` do not fit the schema, "" when they do (or when there is no usable schema)."""
    if validator is None:
        return ""
    try:
        error: ValidationError | None = next(validator.iter_errors(arguments), None)
    except (Unresolvable, RecursionError):
        return "the schema refers to something outside itself, which is never fetched"
    return "" if error is None else f"arguments do not fit: {error.json_path}: {error.validator} is broken"


def _loaded(line: bytes) -> tuple[Any, str]:
    """(the JSON value of a line, what is wrong with it)."""
    try:
        return json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant), ""
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"
    except RecursionError:
        return None, "nested too deeply"
    except ValueError as error:
        return None, f"not JSON: {error}"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
