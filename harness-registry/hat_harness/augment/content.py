"""Content operators: paraphrases, phrases of skills, register, language. Each records old and new text.

Always holds: the task keeps its meaning; names in backticks and quotations survive; where the vocabulary or the paired
harness says nothing about a text, it stays. Not here: rules that hooks enforce (perturb), names (naming).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hat_harness.augment.draft import Draft, Record, escape
from hat_harness.augment.naming import weighted
from hat_harness.augment.operators import (
    Language,
    Register,
    SkillDescription,
    SkillText,
    ToolDescription,
)
from hat_harness.augment.phrases import arguments, exchange, in_language, restate, states
from hat_harness.augment.words import drawn_phrase
from hat_harness.errors import AugmentError
from hat_harness.spec import Harness

_PROTECTED = re.compile(r"```.*?```|`[^`\n]*`|\"[^\"\n]*\"|\{[^}\n]*\}|= [^\n.]*", re.DOTALL)
_FORMAL = {"don't": "do not", "can't": "cannot", "isn't": "is not", "you'll": "you will", "let's": "let us"}
_CASUAL = {formal: casual for casual, formal in _FORMAL.items()}
_IMPERATIVE = re.compile(r"(?m)^(use|open|say|begin|end|ask|call|give|load|answer|keep|check|read|write|show)\b")


def describe(op: SkillDescription | ToolDescription, rng: Random, draft: Draft, record: Record) -> None:
    """Descriptions from the vocabulary's paraphrases, or left as they are with probability `original`."""
    kind = "skills" if isinstance(op, SkillDescription) else "tools"
    told = draft.lexicon.side(weighted(rng, op.modes) == "held_out").descriptions
    for part in tuple(draft.parts[kind]):
        keep, choices = rng.random() < op.original, told.get(part.id, ())
        if choices and not keep:
            path = f"{kind}/{escape(part.id)}/description"
            draft.put(record, path, part.description, rng.choice(choices))


def skill_text(op: SkillText, rng: Random, draft: Draft, record: Record) -> None:
    """Other bodies where the vocabulary has some (`<id>.body`), then another opening phrase and other words for it."""
    told = draft.lexicon.trained.descriptions
    phrases = arguments(draft, op.arguments)
    for skill in tuple(draft.parts["skills"]):
        choices: Sequence[str] = told.get(f"{skill.id}.body", ())
        if choices:
            body = _filled(rng.choice(choices), phrases)
            draft.put(record, f"skills/{escape(skill.id)}/body", skill.body, body)
    exchange_phrases(op, rng, draft, record, phrases, "openers")


def exchange_phrases(op: Any, rng: Random, draft: Draft, record: Record, phrases: dict[str, str], which: Any) -> None:
    """Draws a new phrase per argument, writes it into the hooks and into every text that states the old one."""
    statements = in_language(op.statements, draft.language)
    for argument, old in phrases.items():
        new = other_phrase(op, rng, draft, old, which)
        statement = rng.choice(statements) if statements and rng.random() < 0.67 else ""
        replace_phrase(draft, record, argument, old, new, statement)


def other_phrase(op: Any, rng: Random, draft: Draft, old: str, which: Any) -> str:
    """A phrase that shares nothing with those that hooks have or had, or the old one when the pool holds none."""
    hooks = (*draft.base.hooks, *draft.parts["hooks"])
    used = {value for hook in hooks for value in hook.arguments.values() if value}
    for _ in range(20):
        new = drawn_phrase(rng, draft.lexicon, which, weighted(rng, op.modes))
        if not any(new in phrase or phrase in new for phrase in used):
            return new
    return old


def replace_phrase(draft: Draft, record: Record, argument: str, old: str, new: str, statement: str = "") -> None:
    """One phrase for another in hook arguments, hook messages, prompts and skill bodies."""
    for hook in tuple(draft.parts["hooks"]):
        if hook.arguments.get(argument) == old:
            draft.put(record, f"hooks/{hook.id}/arguments/{escape(argument)}", old, new)
    for kind, name in (("prompts", "text"), ("skills", "body"), ("hooks", "message")):
        for part in tuple(draft.parts[kind]):
            text = getattr(part, name)
            if old in text and states(text, old):
                made = restate(text, old, new, statement) if statement and kind != "hooks" else text
                made = exchange(made, old, new)
                draft.put(record, f"{kind}/{escape(part.id)}/{name}", text, made)
    if old != new:
        record.phrases[argument] = (old, new)


def _filled(text: str, phrases: dict[str, str]) -> str:
    for argument, phrase in phrases.items():
        text = text.replace("{" + argument + "}", phrase)
    return text


# ---- register -------------------------------------------------------------------------------------------------


def register(op: Register, rng: Random, draft: Draft, record: Record) -> None:
    """One tone for all prompts and skill bodies."""
    style = rng.choice(op.styles)
    for path, text in tuple(draft.texts("prompts", "skills")):
        if not path.endswith("/description"):
            draft.put(record, path, text, _toned(text, style))


def _toned(text: str, style: str) -> str:
    if style == "polite":
        return _outside(text, lambda prose: _IMPERATIVE.sub(r"please \1", prose))
    table = _FORMAL if style == "formal" else _CASUAL
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, table)) + r")(?!\w)")
    return _outside(text, lambda prose: pattern.sub(lambda match: table[match.group()], prose))


def _outside(text: str, change: Callable[[str], str]) -> str:
    """The text changed everywhere but in code, quotations, placeholders and stated phrases."""
    made: list[str] = []
    at = 0
    for match in _PROTECTED.finditer(text):
        made += [change(text[at : match.start()]) if at == 0 or text[at - 1] == "\n" else text[at : match.start()]]
        made.append(match.group())
        at = match.end()
    made.append(change(text[at:]) if at == 0 or text[at - 1] == "\n" else text[at:])
    return "".join(made)


# ---- language -------------------------------------------------------------------------------------------------


def language(op: Language, rng: Random, draft: Draft, record: Record) -> None:
    """Every text that the paired harness has for the same part; phrases and the safe reply come with it."""
    pair = draft.pair
    if pair is None:
        raise AugmentError("the language family needs a paired harness", place=op.type, cure="give `pair`")
    record.kept["language"] = draft.language
    for kind, fields in (
        ("skills", ("description", "body")),
        ("tools", ("description",)),
        ("prompts", ("text", "title", "language")),
        ("hooks", ("message",)),
    ):
        theirs = {part.id: part for part in getattr(pair, kind)}
        for part in tuple(draft.parts[kind]):
            other = theirs.get(part.id)
            for name in fields if other is not None else ():
                draft.put(record, f"{kind}/{escape(part.id)}/{name}", getattr(part, name), getattr(other, name))
    _phrases_of(pair, draft, record)
    for kind, name in (("activation", "description"), ("recovery", "safe_reply")):
        draft.put(record, f"{kind}/{name}", getattr(draft.single[kind], name), getattr(getattr(pair, kind), name))
    draft.language = pair.language


def _phrases_of(pair: Harness, draft: Draft, record: Record) -> None:
    theirs = {hook.id: hook for hook in pair.hooks}
    for hook in tuple(draft.parts["hooks"]):
        other = theirs.get(hook.id)
        for argument, old in hook.arguments.items() if other is not None else ():
            new = other.arguments.get(argument, old) if other is not None else old
            draft.put(record, f"hooks/{hook.id}/arguments/{escape(argument)}", old, new)
            if old != new:
                record.phrases[argument] = (old, new)


def undo_texts(record: Any, draft: Draft) -> None:
    """Puts the recorded old texts back."""
    for path, (old, _) in record.texts.items():
        draft.set_text(path, old)
    if "language" in record.kept:
        draft.language = record.kept["language"]
