"""Splits what a Qwen3-style model wrote into reasoning and content, whole or as it streams.

Always holds: reasoning and content together are the text less its markers, however it is cut into chunks; a marker that
is cut in two is never shown. A tool call that begins inside an unclosed block ends the block, as in SGLang. Where a
template lets the model think, SGLang takes all text up to `</think>` as reasoning, opened or not; so does `force`.
Not here: tool calls (toolcalls), counting reasoning tokens (request).
"""

from __future__ import annotations

import re

OPEN, CLOSE, CALL = "<think>", "</think>", "<tool_call>"

_TEMPLATE_TOGGLES = (
    ("enable_thinking", True),
    ("enable_thinking", False),
    ("thinking", True),
    ("thinking", False),
)


class ReasoningSplitter:
    """One generation's splitter."""

    __slots__ = ("_held", "_inside", "_last", "_opened", "_stream")

    def __init__(self, *, force: bool, stream: bool = True) -> None:
        """`force`: the text begins inside reasoning. `stream` False holds reasoning back until it is complete."""
        self._inside = force
        self._stream = stream
        self._held = ""
        self._opened = False
        self._last = ""

    def whole(self, text: str) -> tuple[str, str]:
        """(reasoning, content) of a complete text."""
        if not self._inside and OPEN not in text:
            return "", text
        while text.startswith(OPEN):
            text = text.removeprefix(OPEN)
        if CLOSE in text:
            reasoning, _, content = text.partition(CLOSE)
            return reasoning, content
        at = text.find(CALL)
        return (text[:at], text[at:]) if at >= 0 else (text, "")

    def feed(self, chunk: str) -> tuple[str, str]:
        """(reasoning, content) that the next chunk makes certain."""
        text = self._held + chunk
        self._held = text
        if any(marker != text and marker.startswith(text) for marker in (OPEN, CLOSE, CALL)):
            return "", ""
        if not self._opened and OPEN in text:
            text = text.replace(OPEN, "", 1)
            self._held, self._opened, self._inside = text, True, True
        if not self._inside:
            self._held = ""
            return "", text
        for marker, kept in ((CLOSE, ""), (CALL, CALL)):
            if marker in text:
                reasoning, _, content = text.partition(marker)
                self._held, self._inside = "", False
                return reasoning, kept + content
        if not self._stream:
            return "", ""
        markers = (CLOSE, CALL) if self._opened else (CLOSE, CALL, OPEN)
        certain = len(text) - max(partial_suffix(text, marker) for marker in markers)
        self._held = text[certain:]
        return text[:certain], ""

    def end(self) -> tuple[str, str]:
        """(reasoning, content) still held when the text has ended."""
        held, self._held = self._held, ""
        return (held.removeprefix(OPEN), "") if self._inside else ("", held)


def partial_suffix(text: str, marker: str) -> int:
    """Length of the longest end of `text` that a further chunk could complete to `marker`."""
    for size in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-size:]):
            return size
    return 0


class ThinkingRule:
    """Whether a request lets the model think, from the template's own switch; SGLang's reading of templates."""

    def __init__(self, template: str) -> None:
        self._always = r"<|im_start|>assistant\n<think>\n" in template or "<|im_start|>assistant\n<think>\n" in template
        self._switch, self._default = _switch(template)

    def forces(self, template_options: dict[str, object] | None) -> bool:
        """Whether the text counts as reasoning from its first token on."""
        if self._always:
            return True
        asked = (template_options or {}).get(self._switch)
        return asked is not False if self._default else asked is True


def _switch(template: str) -> tuple[str, bool]:
    """The template variable that turns thinking on and off, and its default; Qwen3's parser assumes one that is on."""
    for name, default in _TEMPLATE_TOGGLES:
        value = "[tT]rue" if default else "[fF]alse"
        patterns = [
            rf"{{%-?\s*if\s+not\s+{name}\s+is\s+defined\s*-?%}}.*?{{%-?\s*set\s+{name}\s*=\s*{value}\s*-?%}}",
            rf"set\s+{name}\s*=\s*{name}\s+if\s+{name}\s+is\s+defined\s+else\s+{value}",
        ]
        if default:
            patterns.append(rf"{name}\s+is\s+defined\s+and\s+(?:{name}\s+is\s+false|not\s+{name})")
        if any(re.search(pattern, template, re.DOTALL) for pattern in patterns):
            return name, default
    return "enable_thinking", True
