"""Writes a harness as the files of a folder.

Always holds: `parse_files(harness_files(harness)) == harness` for every valid harness; the same harness gives the
same bytes. Every setting is written out, so that a saved folder keeps its meaning when a default changes. Not here:
reading (load).
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from hat_harness.digest import file_bytes, unset
from hat_harness.names import skill_folders
from hat_harness.reading import resolve_plain
from hat_harness.spec import Harness, Prompt, Skill, Tool

TOOL_META = "hatstack.dev/tool"
"""Key of a tool file's `_meta` that holds what MCP has no field for."""
LISTS = ("prompts", "skills", "tools", "hooks", "few_shots")


class _Dumper(yaml.SafeDumper):
    """Quotes what `reading` would not read back as a string; writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(mark in text for mark in "\x85\u2028\u2029\ufeff"):
        # YAML takes these for line ends; only double quotes escape them.
        style = '"'
    elif "\n" in text:
        style = "|" if len(text) > 60 else '"'
    elif not isinstance(resolve_plain(text), str) or text in ("<<", "="):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_yaml(value: Any) -> str:
    """YAML that `reading.read_yaml` reads back as the same value (tuples as lists)."""
    plain = json.loads(json.dumps(value))
    return str(yaml.dump(plain, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=110))


def write_json(value: Any) -> str:
    """JSON for people: two spaces, keys in their order."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _with_front_matter(fields: dict[str, Any], body: str) -> str:
    empty_line = "\n" if body.startswith("\n") else ""
    return f"---\n{write_yaml(fields)}---\n{empty_line}{body}\n"


def _prompt(prompt: Prompt) -> str:
    return _with_front_matter(prompt.model_dump(exclude={"id", "text"}), prompt.text)


def _skill(skill: Skill, folder: str, harness: Harness) -> str:
    fields: dict[str, Any] = {"name": folder, "description": skill.description}
    for name in ("license", "compatibility"):
        if getattr(skill, name):
            fields[name] = getattr(skill, name)
    if skill.tools:
        fields["allowed-tools"] = " ".join(skill.tools)
    own = {"kind": skill.kind, "name": skill.name}
    if harness.aliases.get(folder, folder) != skill.id:
        own["id"] = skill.id
    fields["metadata"] = {**own, **skill.metadata}
    return _with_front_matter(fields, skill.body)


def _tool(tool: Tool) -> str:
    fields: dict[str, Any] = {"name": tool.name}
    if tool.title:
        fields["title"] = tool.title
    fields["description"] = tool.description
    fields["inputSchema"] = tool.parameters
    if tool.output is not None:
        fields["outputSchema"] = tool.output
    fields["annotations"] = {"readOnlyHint": tool.read_only, "idempotentHint": tool.idempotent}
    meta: dict[str, Any] = {"timeout_s": tool.timeout_s}
    if tool.parameter_names:
        meta["parameter_names"] = tool.parameter_names
    if tool.adapters:
        meta["adapters"] = [adapter.model_dump(mode="json") for adapter in tool.adapters]
    fields["_meta"] = {TOOL_META: meta}
    return write_json(fields)


def _head(harness: Harness) -> str:
    fields = harness.model_dump(mode="json", exclude={*LISTS, "files", *unset(harness)})
    order = {}
    for name in LISTS:
        ids = [part.id for part in getattr(harness, name)]
        if ids != sorted(ids):
            order[name] = ids
    if order:
        fields["order"] = order
    return write_yaml(fields)


def harness_files(harness: Harness) -> dict[str, bytes]:
    """Path → bytes of every file of the harness's folder."""
    folders = skill_folders(harness)
    texts = {"harness.yaml": _head(harness)}
    texts.update({f"prompts/{part.id}.md": _prompt(part) for part in harness.prompts})
    for skill in harness.skills:
        folder = folders[skill.id]
        texts[f"skills/{folder}/SKILL.md"] = _skill(skill, folder, harness)
    texts.update({f"tools/{tool.id}.json": _tool(tool) for tool in harness.tools})
    texts.update({f"hooks/{hook.id}.yaml": write_yaml([hook.model_dump(mode="json")]) for hook in harness.hooks})
    for shot in harness.few_shots:
        lines = [json.dumps(message, ensure_ascii=False) + "\n" for message in shot.messages]
        texts[f"few_shots/{shot.id}.jsonl"] = "".join(lines)
    files = {path: text.encode() for path, text in texts.items()}
    files.update({file.path: file_bytes(file) for file in harness.files})
    return files
