"""What follows a finished harness: calls that its texts spell out in fenced JSON, and its worked examples.

Always holds: names in texts have been renamed before; here the types of fenced arguments and everything in few-shots
are brought to the new state. Works in both directions. Not here: drawing (engine), single messages (walk).
"""

from __future__ import annotations

from typing import Any

from hat_harness.augment.draft import changed
from hat_harness.augment.mentions import Closure
from hat_harness.augment.schema import rename_properties
from hat_harness.augment.translation import Translation
from hat_harness.augment.walk import translate
from hat_harness.spec import FewShot, Harness, Tool


def with_shots(source: Harness, target: Harness) -> Harness:
    """`target`, made from `source`, with the few-shots brought along."""
    if not source.few_shots:
        return target
    words = Translation(source, target)
    return changed(target, few_shots=tuple(_shot(shot, words) for shot in source.few_shots))


def has_fences(harness: Harness) -> bool:
    """Whether some skill or prompt spells out code in a fenced block."""
    texts = [skill.body for skill in harness.skills] + [prompt.text for prompt in harness.prompts]
    return any("```" in text for text in texts)


def _shot(shot: FewShot, words: Translation) -> FewShot:
    """One worked example; a system prompt in it stays."""
    system = next((message.get("content", "") for message in shot.messages if message.get("role") == "system"), None)
    return changed(shot, messages=tuple(translate(words, list(shot.messages), system)))


def with_fences(harness: Harness, base: Harness, back: bool = False) -> Harness:
    """Fenced calls of a state retyped from the types of its base to its own (`back`: the other way round).

    The names in them are the state's before and after.
    """
    if not has_fences(harness):
        return harness
    there = {tool.id: tool for tool in base.tools}
    half = tuple(_typed_as(there[tool.id], tool) if tool.id in there else tool for tool in harness.tools)
    typed = changed(harness, tools=half)
    types = Translation(harness, typed) if back else Translation(typed, harness)
    if not any(call.moves for call in types.calls.values()):
        return harness
    still = Closure.of({}, {}, {})
    skills = tuple(changed(skill, body=still.text(skill.body, (), types.call)) for skill in harness.skills)
    prompts = tuple(changed(prompt, text=still.text(prompt.text, (), types.call)) for prompt in harness.prompts)
    return changed(harness, skills=skills, prompts=prompts)


def _typed_as(types: Tool, names: Tool) -> Tool:
    """A tool with the types of one state and the names of another."""
    canonical = {surface: name for name, surface in types.parameter_names.items()}

    def renaming(schema: dict[str, Any]) -> dict[str, str]:
        own = {name: canonical.get(name, name) for name in schema.get("properties", {})}
        return {name: names.parameter_names.get(key, key) for name, key in own.items()}

    schema = rename_properties(types.parameters, renaming(types.parameters))
    for adapter in types.adapters:
        if adapter.kind == "nested":
            inner = schema["properties"][adapter.into]
            renamed = rename_properties(inner, renaming(inner))
            schema["properties"] = {**schema["properties"], adapter.into: renamed}
    return changed(names, parameters=schema, adapters=types.adapters)
