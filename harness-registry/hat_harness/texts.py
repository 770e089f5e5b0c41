"""The few sentences that the session itself writes into a context, by language.

Always holds: every sentence has all languages and the same fields. Errors start with `error :` / `错误：`, so that a
policy can tell them from results. A room event becomes a user message `event : viewer entered name "mia"`; room state
that changed since the model last read it stands in lines before it, in the form of the room section; `message_in` and
`result_in` say the same in the other language, and back. Not here: texts
of a harness (prompts, skills, hook messages, safe reply).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from hat_harness.render import render_value

Language = Literal["en", "zh"]

_TEXTS: dict[Language, dict[str, str]] = {
    "en": {
        "error": "error : {text}",
        "no_tool": 'error : no tool "{name}" , tools are {known}',
        "no_skill": 'error : no skill "{name}" , skills are {known}',
        "skill_argument": 'error : write the skill as "{parameter}"',
        "loaded": 'skill "{name}" is loaded already',
        "no_file": 'error : no file "{name}" in "{skill}" , files are {known}',
        "no_text": '"{name}" is no text , {size} bytes',
        "cut": "\n( cut , {size} characters in all )",
        "load_first": 'error : load "{name}" before its files',
        "too_many": "error : no more tool calls in this turn",
        "unusable": '"{name}" cannot be called',
        "failed": "error : {kind}",
        "not_made": "error : not called",
        "event": "event : {kind}",
        "gone": "{key} : none",
        "viewer_entered": "viewer entered",
        "order_placed": "order placed",
        "item_on_sale": "item on sale",
    },
    "zh": {
        "error": "错误：{text}",
        "no_tool": "错误：没有工具 “{name}”，可用工具：{known}",
        "no_skill": "错误：没有技能 “{name}”，可用技能：{known}",
        "skill_argument": "错误：技能名要写在 “{parameter}” 里",
        "loaded": "技能 “{name}” 已经加载",
        "no_file": "错误：“{skill}” 里没有文件 “{name}”，文件有：{known}",
        "no_text": "“{name}” 不是文本，共 {size} 字节",
        "cut": "\n（已截断，全文 {size} 字）",
        "load_first": "错误：先加载 “{name}”，再读它的文件",
        "too_many": "错误：本轮不能再调用工具",
        "unusable": "“{name}” 不能调用",
        "failed": "错误：{kind}",
        "not_made": "错误：未调用",
        "event": "事件：{kind}",
        "gone": "{key} : 无",
        "viewer_entered": "观众进场",
        "order_placed": "已下单",
        "item_on_sale": "商品上架",
    },
}


def say(language: Language, sentence: str, /, **fields: str) -> str:
    """One sentence with its fields filled in."""
    return _TEXTS[language][sentence].format(**fields)


def quoted(names: list[str]) -> str:
    """Names in double quotes, joined by spaces."""
    return " ".join(f'"{name}"' for name in names)


def event_line(language: Language, kind: str, data: Mapping[str, Any]) -> str:
    """The user message of a room event."""
    words = _TEXTS[language].get(kind, kind.replace("_", " "))
    line = say(language, "event", kind=words)
    return f"{line} {render_value(data)}" if data else line


# ---- the same in the other language ---------------------------------------------------------------------------

_KINDS = ("viewer_entered", "order_placed", "item_on_sale")
_RESULTS = ("no_tool", "no_skill", "skill_argument", "loaded", "no_file", "load_first", "too_many", "not_made", "error")
"""Sentences that stand in place of a tool's result, the general one last."""


@cache
def _patterns(language: Language) -> tuple[tuple[str, re.Pattern[str]], ...]:
    found = []
    for sentence in _RESULTS:
        pieces = re.split(r"\{(\w+)\}", _TEXTS[language][sentence])
        pieces[::2] = [re.escape(piece) for piece in pieces[::2]]
        pieces[1::2] = [f"(?P<{name}>.*?)" for name in pieces[1::2]]
        found.append((sentence, re.compile("".join(pieces), re.DOTALL)))
    return tuple(found)


def _retold(text: str, source: Language, target: Language) -> str | None:
    for sentence, pattern in _patterns(source):
        match = pattern.fullmatch(text)
        if match is not None:
            return say(target, sentence, **match.groupdict())
    return None


def result_in(text: str, source: Language, target: Language) -> str:
    """A sentence of the session in place of a tool's result, in the other language; any other text as it is.

    Symmetric: the two languages change places, so that doing it the other way round gives the text again.
    """
    if source == target:
        return text
    for one, other in ((source, target), (target, source)):
        made = _retold(text, one, other)
        if made is not None and _retold(made, other, one) == text:
            return made
    return text


def message_in(text: str, source: Language, target: Language) -> str:
    """A user message with the session's own lines (room events, room state that is gone) in the other language."""
    if source == target:
        return text
    return "\n".join([_line_in(line, source, target) for line in text.split("\n")])


def _line_in(line: str, source: Language, target: Language) -> str:
    for one, other in ((source, target), (target, source)):
        for kind in _KINDS:
            words = say(one, "event", kind=_TEXTS[one][kind])
            if line == words or line.startswith(words + " "):
                return say(other, "event", kind=_TEXTS[other][kind]) + line[len(words) :]
        gone = say(one, "gone", key="")
        if line.endswith(gone) and " " not in line[: -len(gone)] and line != gone:
            return say(other, "gone", key=line[: -len(gone)])
    return line
