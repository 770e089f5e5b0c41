"""Walking over a trajectory from one harness to another.

A trajectory is a list of OpenAI chat messages (dicts, arguments as objects or JSON text) or of `events.Message`. What
is rewritten: the system prompt (rendered anew by the caller), called names and arguments, activated skills and the
bodies that came back, catalogue lines quoted in reasoning, references in backticks, demanded phrases in replies, result
envelopes, and the session's own sentences (errors, room events; in the target's language). What viewers wrote and what
tools answered stays.
Always holds: messages are never changed in place. Not here: the dictionary (translation).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hat_harness.augment.mentions import dumps_like
from hat_harness.augment.translation import Translation
from hat_harness.errors import AugmentError
from hat_harness.events import Message, ToolCall
from hat_harness.spec import Harness

System = Callable[[Harness], str]
MessageT = TypeVar("MessageT", Message, dict[str, Any])


def translate(words: Translation, messages: Sequence[MessageT], system: System | str | None = None) -> list[MessageT]:
    """Any trajectory from one harness to another of the same canonical parts."""
    walk = _Walk(words, system)
    return [walk.event(message) if isinstance(message, Message) else walk.chat(message) for message in messages]


class _Walk:
    """One pass over a trajectory; remembers what each result answers."""

    def __init__(self, words: Translation, system: System | str | None) -> None:
        self.words = words
        self.system = system
        self.open: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.queue: list[tuple[str, Mapping[str, Any]]] = []

    def prompt(self) -> str:
        """The system prompt under the target."""
        if self.system is None:
            raise AugmentError(
                "the trajectory has a system prompt", cure="pass `system`, which renders it for the other harness"
            )
        return self.system if isinstance(self.system, str) else self.system(self.words.target)

    def event(self, message: Message) -> Message:
        """One `events.Message`."""
        words = self.words
        if message.role == "system":
            return replace(message, content=self.prompt())
        if message.role == "assistant":
            calls = []
            for call in message.tool_calls:
                self.asked(call.id, call.name, call.arguments)
                name, made = words.call(call.name, call.arguments)
                calls.append(ToolCall(call.id, name, made, call.error))
            return replace(
                message,
                content=words.reply(message.content),
                reasoning=words.reasoning(message.reasoning),
                tool_calls=tuple(calls),
            )
        if message.role == "tool":
            name, arguments = self.answered(message.tool_call_id)
            content = words.result(message.content, name, arguments)
            return replace(message, content=content, name=words.closure.tool(message.name) if message.name else "")
        content = words.asked(message.content)
        return message if content == message.content else replace(message, content=content)

    def chat(self, message: dict[str, Any]) -> dict[str, Any]:
        """One OpenAI chat message."""
        words, role = self.words, message.get("role")
        if role == "system":
            return {**message, "content": self.prompt()}
        if role == "assistant":
            made = {**message, "content": each_text(message.get("content"), words.reply)}
            if "content" not in message:
                del made["content"]
            for key in ("reasoning_content", "reasoning"):
                if isinstance(message.get(key), str):
                    made[key] = words.reasoning(message[key])
            if message.get("tool_calls"):
                made["tool_calls"] = [self.chat_call(call) for call in message["tool_calls"]]
            return made
        if role == "tool":
            name, arguments = self.answered(message.get("tool_call_id", ""))
            content = each_text(message.get("content"), lambda text: words.result(text, name, arguments))
            made = {**message, "content": content}
            if message.get("name"):
                made["name"] = words.closure.tool(message["name"])
            return made
        return {**message, "content": each_text(message["content"], words.asked)} if role == "user" else message

    def chat_call(self, call: dict[str, Any]) -> dict[str, Any]:
        """One entry of `tool_calls`."""
        function = call.get("function", {})
        name, given = function.get("name", ""), function.get("arguments", {})
        arguments = parsed(given)
        self.asked(call.get("id", ""), name, arguments if arguments is not None else {})
        if arguments is None:
            return {**call, "function": {**function, "name": self.words.closure.tool(name)}}
        name, renamed = self.words.call(name, arguments)
        written: Any = dumps_like(renamed, given) if isinstance(given, str) else renamed
        return {**call, "function": {**function, "name": name, "arguments": written}}

    def asked(self, identifier: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Remembers a call of the source."""
        self.queue.append((name, arguments))
        if identifier:
            self.open[identifier] = (name, arguments)

    def answered(self, identifier: str) -> tuple[str, Mapping[str, Any]]:
        """The call that a result belongs to: by id, else the next one that has not been answered."""
        found = self.open.get(identifier) if identifier else None
        if found is not None:
            if found in self.queue:
                self.queue.remove(found)
            return found
        return self.queue.pop(0) if self.queue else ("", {})


def parsed(arguments: Any) -> dict[str, Any] | None:
    """Arguments as an object, from an object or from JSON text; None where they are neither."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    return dict(arguments) if isinstance(arguments, Mapping) else None


def each_text(content: Any, change: Callable[[str], str]) -> Any:
    """Plain content, or the text parts of a list of content parts, changed."""
    if isinstance(content, str):
        return change(content)
    if isinstance(content, list):
        return [
            {**part, "text": change(part["text"])}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    return content
