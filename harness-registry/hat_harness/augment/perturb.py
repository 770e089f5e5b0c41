"""Perturbations of the harness: distractors, hook policies, hook messages, rule edits.

Always holds: the canonical tool set keeps every tool that it had; distractors have ids of their own (`distractor_<n>`);
what is replaced or removed is in the record. Not here: faults of tools (faults).
"""

from __future__ import annotations

from random import Random
from typing import Any

from hat_harness.augment.content import exchange_phrases, other_phrase, replace_phrase
from hat_harness.augment.draft import Draft, Record, changed, escape
from hat_harness.augment.naming import fresh, new_name, weighted
from hat_harness.augment.operators import DistractorSkill, DistractorTool, HookMessage, HookPolicy, RuleEdit
from hat_harness.augment.phrases import arguments, in_language, states
from hat_harness.spec import Harness, Hook, Prompt, Skill, Tool

DISTRACTOR = "distractor_"
"""Prefix of the ids of added skills and tools."""


def canonical_tools(harness: Harness) -> tuple[str, ...]:
    """Ids of the tools that the task has, distractors left out, sorted."""
    return tuple(sorted(tool.id for tool in harness.tools if not tool.id.startswith(DISTRACTOR)))


def distract(op: DistractorSkill | DistractorTool, rng: Random, draft: Draft, record: Record, taken: set[str]) -> None:
    """Adds skills or tools that fit no intent, at random places, named like the others."""
    mode, count = weighted(rng, op.modes), rng.choice(op.counts) if op.counts else 0
    side = draft.lexicon.side(mode in ("held_out", "random_held_out")).distractors
    pool = [one for one in side if draft.avoid.isdisjoint(one[0].split("_"))]
    kind = "skills" if isinstance(op, DistractorSkill) else "tools"
    parts = list(draft.parts[kind])
    if not pool or not count or not parts:  # a harness without skills has no place where the model would read them
        return
    ids = {part.id for part in parts}
    for given, description in rng.sample(pool, min(count, len(pool))):
        identifier = next(f"{DISTRACTOR}{n}" for n in range(len(ids) + 1) if f"{DISTRACTOR}{n}" not in ids)
        ids.add(identifier)

        def make(given: str = given) -> str:
            return given if mode == "misleading" else new_name(rng, draft.lexicon, "", given, mode, 2)

        name = fresh(rng, make, taken)
        parts.insert(rng.randrange(len(parts) + 1), _distractor(kind, identifier, name, description, rng, draft, taken))
        record.added.append(f"{kind}/{identifier}")
    draft.reorder(kind, parts)


def _distractor(
    kind: str, identifier: str, name: str, description: str, rng: Random, draft: Draft, taken: set[str]
) -> Skill | Tool:
    if kind == "skills":
        return Skill(id=identifier, name=name, description=description, body=f"{description} .")
    parameter = fresh(rng, lambda: new_name(rng, draft.lexicon, "", "input", "trained", 0, bare=True), taken)
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
        "additionalProperties": False,
    }
    return Tool(id=identifier, name=name, description=description, parameters=schema)


def hook_policy(op: HookPolicy, rng: Random, draft: Draft, record: Record) -> None:
    """Another gate phrase, in the hooks that demand it and in every text that states it."""
    exchange_phrases(op, rng, draft, record, arguments(draft, op.arguments), "gates")


def hook_message(op: HookMessage, rng: Random, draft: Draft, record: Record) -> None:
    """Another frame around what hooks tell the model; what viewers read and what replaces a reply stays."""
    frame = rng.choice(in_language(op.frames, draft.language) or ["{message}"])
    for hook in tuple(draft.parts["hooks"]):
        if hook.action in ("block", "require") and hook.message:
            text = frame.replace("{message}", hook.message)
            draft.put(record, f"hooks/{hook.id}/message", hook.message, text)


def rule_edit(op: RuleEdit, rng: Random, draft: Draft, record: Record) -> None:
    """Changes one rule: another phrase is right now, or none is."""
    phrases = arguments(draft, op.arguments)
    if not phrases:
        return
    argument = rng.choice(sorted(phrases))
    old = phrases[argument]
    if rng.choice(op.edits) == "remove":
        _remove_rule(draft, record, argument, old)
        return
    new = other_phrase(op, rng, draft, old, "openers" if argument == "opener" else "gates")
    replace_phrase(draft, record, argument, old, new)


def _remove_rule(draft: Draft, record: Record, argument: str, phrase: str) -> None:
    """Drops the hooks that demand the phrase and the lines that state it."""
    kept = []
    for index, hook in enumerate(draft.parts["hooks"]):
        if hook.arguments.get(argument) == phrase:
            record.kept[f"hooks/{escape(hook.id)}"] = {"index": index, "part": hook.model_dump(mode="json")}
        else:
            kept.append(hook)
    draft.reorder("hooks", kept)
    for path, text in tuple(draft.texts("skills")):
        if path.endswith("/body") and states(text, phrase):
            draft.put(record, path, text, _without(text, phrase))
    prompts = []
    for index, prompt in enumerate(draft.parts["prompts"]):
        text = _without(prompt.text, phrase) if states(prompt.text, phrase) else prompt.text
        if text.strip() or text == prompt.text:
            prompts.append(changed(prompt, text=text) if text != prompt.text else prompt)
        if text != prompt.text:
            record.kept[f"prompts/{escape(prompt.id)}"] = {"index": index, "part": prompt.model_dump(mode="json")}
    draft.reorder("prompts", prompts)
    record.phrases[argument] = (phrase, "")


def _without(text: str, phrase: str) -> str:
    """The text without the lines that state the phrase."""
    return "\n".join(line for line in text.split("\n") if not states(line, phrase))


def undo_perturbation(record: Any, draft: Draft) -> None:
    """Takes added parts out and puts removed ones back."""
    for path in record.added:
        kind, identifier = path.split("/", 1)
        draft.reorder(kind, [part for part in draft.parts[kind] if part.id != identifier])
    types: dict[str, Any] = {"hooks": Hook, "prompts": Prompt}
    for path, value in record.kept.items():
        kind = path.split("/", 1)[0]
        if kind in types and "/" in path:
            part = types[kind].model_validate(value["part"])
            parts = [other for other in draft.parts[kind] if other.id != part.id]
            parts.insert(value["index"], part)
            draft.reorder(kind, parts)
