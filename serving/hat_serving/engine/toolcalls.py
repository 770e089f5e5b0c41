"""Finds Qwen's tool calls in generated text: `<tool_call>\\n{"name": …, "arguments": {…}}\\n</tool_call>`.

Always holds: however the text is cut into chunks, streaming gives the calls and, but for blanks at its end, the content
that the whole text has; a call to a tool that was not offered is dropped, and so is text after the first call, as SGLang
drops them. (SGLang's own streams depend on the chunks: it loses arguments that arrive in the chunk of their name.)
Not here: reasoning (reasoning), the JSON of answers (openai).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from hat_serving.engine.reasoning import partial_suffix

OPEN = "<tool_call>\n"
CLOSE = "\n</tool_call>"
_BLOCK = re.compile(re.escape(OPEN) + "(.*?)" + re.escape(CLOSE), re.DOTALL)


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of call number `index`: its name (once, first) or more of its arguments' JSON."""

    index: int
    name: str | None
    arguments: str


def parse_calls(text: str, names: Collection[str]) -> tuple[str, list[tuple[str, str]]] | None:
    """(content, [(name, arguments as JSON)]) of a complete text; None where no call begins."""
    if OPEN not in text:
        return None
    calls = [call for body in _BLOCK.findall(text) for call in _calls_in(body, names)]
    return text[: text.index(OPEN)].strip(), calls


def _calls_in(body: str, names: Collection[str]) -> list[tuple[str, str]]:
    """The calls to offered tools in one complete block; none where it is no JSON."""
    try:
        found = json.loads(body.strip())
    except (ValueError, RecursionError):
        return []
    listed = found if isinstance(found, list) else [found]
    offered = [call for call in listed if isinstance(call, dict) and call.get("name") in names]
    return [(call["name"], _dump(call.get("parameters") or call.get("arguments", {}))) for call in offered]


class CallStream:
    """One generation's stream of content and calls."""

    __slots__ = ("_calling", "_held", "_names", "_opened", "_read", "_sent", "broken", "count")

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._calling = False
        """Whether a call has begun; from there on text is no content."""
        self._opened = False
        """Whether the name of the call under way was sent."""
        self._read = ""
        """The arguments under way as JSON, closed where they are cut off."""
        self._sent = ""
        self.count = 0
        """Calls that are over."""
        self.broken = 0
        """Calls among them whose name was sent before they turned out to be no JSON."""

    @property
    def incomplete(self) -> bool:
        """Whether a call was begun and not completed."""
        return self._opened

    def feed(self, chunk: str) -> tuple[str, list[CallPiece]]:
        """(content, pieces of calls) that the next chunk makes certain."""
        self._held += chunk
        content = ""
        if not self._calling:
            before, opened, rest = self._held.partition(OPEN)
            keep = 0 if opened else partial_suffix(before, OPEN)
            content, self._held = before[: len(before) - keep], before[len(before) - keep :]
            if not opened:
                return content, []
            self._calling, self._held = True, OPEN + rest
        pieces: list[CallPiece] = []
        while self._advance(pieces):
            pass
        return content, pieces

    def end(self) -> tuple[str, list[CallPiece]]:
        """What is left when the text has ended: held content, or the arguments of a cut-off call, closed."""
        if not self._calling:
            content, self._held = self._held, ""
            return content, []
        rest = self._read[len(self._sent) :] if self._opened and self._read.startswith(self._sent) else ""
        return "", [CallPiece(self.count, None, rest)] if rest else []

    def _advance(self, pieces: list[CallPiece]) -> bool:
        """Read on in what is held; whether there may be more to read."""
        at = self._held.find(OPEN)
        if at < 0:
            return False
        body = self._held[at + len(OPEN) :]
        closed = body.find(CLOSE)  # a line break cannot stand inside a JSON string, so this ends the block
        if closed >= 0:
            self._finish(body[:closed], pieces)
            self._held = body[closed + len(CLOSE) :]
            return True
        call, _, _ = partial_object(body, strings=self._opened)
        if not isinstance(call, dict) or call.get("name") not in self._names:
            return False
        if not self._opened:
            self._opened = True
            pieces.append(CallPiece(self.count, str(call["name"]), ""))
            call, _, _ = partial_object(body, strings=True)
        if "parameters" in call or "arguments" in call:
            self._send(_dump(call.get("parameters") or call.get("arguments", {})), pieces)
        return False

    def _finish(self, body: str, pieces: list[CallPiece]) -> None:
        """Send what is left of a complete block's calls."""
        found = _calls_in(body, self._names)
        if self._opened:
            if found:
                rest = found[0][1][len(self._sent) :]
                pieces += [CallPiece(self.count, None, rest)] if rest else []
            else:
                self.broken += 1
            self.count += 1
            self._opened, self._read, self._sent, found = False, "", "", found[1:]
        for name, arguments in found:
            pieces += [CallPiece(self.count, name, ""), CallPiece(self.count, None, arguments)]
            self.count += 1

    def _send(self, arguments: str, pieces: list[CallPiece]) -> None:
        """Send what of the arguments two different readings agree on: there they no longer end."""
        before, self._read = self._read, arguments
        if before and before != arguments:
            certain = arguments[: _agreement(before, arguments)]
            if len(certain) > len(self._sent):
                pieces.append(CallPiece(self.count, None, certain[len(self._sent) :]))
                self._sent = certain


def partial_object(text: str, *, strings: bool) -> tuple[Any, int, bool]:
    """The JSON value that `text` begins with, even if cut off: (value or None, length used, whether complete).

    With `strings` False a string that is cut off counts as not there.
    """
    start = len(text) - len(text.lstrip())
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return _closed(text[start:], strings), len(text), False
    return value, end, True


def _closed(text: str, strings: bool) -> Any:
    """The value of a cut-off JSON text, after closing what is open and dropping what is half there."""
    stack: list[str] = []
    cuts: list[tuple[int, str]] = []
    """Places where the text can end, with what closes it there."""
    inside = escaped = False
    for index, letter in enumerate(text):
        if inside:
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == '"':
                inside = False
            continue
        if letter == '"':
            inside = True
        elif letter in "{[":
            stack.append("}" if letter == "{" else "]")
            cuts.append((index + 1, "".join(reversed(stack))))
        elif letter in "}]":
            if not stack:
                return None
            stack.pop()
            cuts.append((index + 1, "".join(reversed(stack))))
        elif letter == ",":
            cuts.append((index, "".join(reversed(stack))))
    ends = "".join(reversed(stack))
    growing = text.rstrip()[-1:] in set("0123456789.eE+-")  # a number may go on, and then reads differently
    tries = [(text, ends)] if not inside and not growing else []
    if inside and strings:
        tries = [(text[: len(text) - drop], '"' + ends) for drop in range(min(6, len(text)))]
    tries += [(text[:cut], closers) for cut, closers in reversed(cuts[-3:])]
    for candidate, closers in tries:
        try:
            return json.loads(candidate + closers)
        except (ValueError, RecursionError):
            continue
    return None


def _agreement(one: str, other: str) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
