"""Is a harness consistent in itself? Every finding, with what to do about it.

Always holds: a harness without findings renders, compiles its hooks, has a digest, and saves and loads as itself;
nothing in it names something that is not there. Findings that are `soft` are names in backticks that mean nothing: an
error in a harness of ours, a matter of taste in one from elsewhere. Not here: reading files (load), runs (session).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hat_harness.digest import part_digests
from hat_harness.errors import DigestError, HookError, Problem
from hat_harness.hooks import PLACEHOLDERS, compile_hook, placeholders
from hat_harness.names import FILE_ID, fold, skill_folders
from hat_harness.render import BUILT_IN, RESULT_FIELDS, SECTION_FIELDS, SKILL_FIELDS, TOOL_FIELDS
from hat_harness.schema_checks import adapter_problems, parameter_names, schema_problems
from hat_harness.spec import Harness, Hook
from hat_harness.templates import TemplateError, compile_template

RESERVED_METADATA = ("kind", "name", "id")


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency; `needle` is a text by which its line can be found in the part's file."""

    path: str
    message: str
    cure: str = ""
    needle: str = ""
    soft: bool = False


def validate(harness: Harness) -> list[Problem]:
    """Every inconsistency, in order of part. Lines are 0: a harness in memory has none."""
    return [Problem(item.path, 0, item.message, item.cure) for item in findings(harness)]


def findings(harness: Harness) -> list[Finding]:
    """The same with needles."""
    found: list[Finding] = []
    for check in (_texts, _ids, _names, _sections, _layout, _limits, _skills, _tools, _hooks, _few_shots, _mentions):
        found += check(harness)
    if not found:
        found += _digest(harness)
    return found


def _close(name: str, known: Iterable[str]) -> str:
    import difflib

    options = sorted(set(known))
    close = difflib.get_close_matches(name, options, 1, 0.6)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(options[:20])}"


def _parts(harness: Harness) -> Iterator[tuple[str, Any]]:
    """(path, part) of everything that lies in a file of its own."""
    folders = skill_folders(harness)
    yield from ((f"prompts/{part.id}.md", part) for part in harness.prompts)
    yield from ((f"skills/{folders[part.id]}/SKILL.md", part) for part in harness.skills)
    yield from ((f"tools/{part.id}.json", part) for part in harness.tools)
    yield from ((f"hooks/{part.id}.yaml", part) for part in harness.hooks)
    yield from ((f"few_shots/{part.id}.jsonl", part) for part in harness.few_shots)


# ---- texts, ids, names ----------------------------------------------------------------------------------------

_BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def _bad_text(value: Any) -> str:
    """The first text with a control character or half a surrogate pair, "" when there is none."""
    if isinstance(value, str):
        return value if _BAD.search(value) else ""
    if isinstance(value, dict):
        return next((bad for item in value.items() for inner in item if (bad := _bad_text(inner))), "")
    if isinstance(value, list | tuple):
        return next((bad for inner in value if (bad := _bad_text(inner))), "")
    return ""


def _texts(harness: Harness) -> Iterator[Finding]:
    lists = {"prompts", "skills", "tools", "hooks", "few_shots", "files"}
    head = harness.model_dump(exclude=lists)
    for path, value in [("harness.yaml", head), *((path, part.model_dump()) for path, part in _parts(harness))]:
        bad = _bad_text(value)
        if bad:
            yield Finding(path, f"a control character in {bad[:40]!r}", "only line ends and tabs are allowed")


def _ids(harness: Harness) -> Iterator[Finding]:
    for name in ("prompts", "skills", "tools", "hooks", "few_shots"):
        seen: dict[str, str] = {}
        for part in getattr(harness, name):
            if not FILE_ID.match(part.id):
                yield Finding(
                    "harness.yaml", f"{name}: {part.id!r} cannot be a file name", "use letters, digits, _ . -"
                )
            other = seen.get(fold(part.id))
            seen[fold(part.id)] = part.id
            if other is not None:
                what = "stands twice" if other == part.id else f"differs from {other} by case only"
                yield Finding("harness.yaml", f"{name}: {part.id} {what}", "every part has an id of its own", part.id)
    for folder, identifier in harness.aliases.items():
        if identifier not in {skill.id for skill in harness.skills}:
            cure = _close(identifier, (skill.id for skill in harness.skills))
            yield Finding("harness.yaml", f"aliases: {folder} stands for no skill {identifier}", cure, folder)
    if len(set(harness.aliases.values())) != len(harness.aliases):
        yield Finding("harness.yaml", "aliases: two folders stand for one skill", "keep one", "aliases")


def _twice(names: Iterable[tuple[str, str]], what: str) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for path, name in names:
        other = seen.setdefault(name, path)
        if other != path:
            yield Finding(path, f"the {what} name {name} is taken by {other}", "every name is unique", name)


def _names(harness: Harness) -> Iterator[Finding]:
    paths = {id(part): path for path, part in _parts(harness)}
    tools = [(paths[id(tool)], tool.name) for tool in harness.tools]
    if harness.skills:
        tools.insert(0, ("harness.yaml", harness.activation.tool))
    yield from _twice(tools, "tool")
    yield from _twice(((paths[id(skill)], skill.name) for skill in harness.skills), "skill")


# ---- the whole ------------------------------------------------------------------------------------------------


def _sections(harness: Harness) -> Iterator[Finding]:
    sections = harness.sections
    used = {part.section for part in harness.prompts}
    known = {*BUILT_IN, *used, "rules"}
    for name in sections:
        if name not in known:
            yield Finding("harness.yaml", f"sections: nothing stands in {name}", _close(name, known), name)
        if sections.count(name) > 1:
            yield Finding("harness.yaml", f"sections: {name} stands twice", "", name)
    for part in harness.prompts:
        if part.section not in sections:
            cure = _close(part.section, sections)
            yield Finding(f"prompts/{part.id}.md", f"section {part.section} is not in sections", cure, "section")
    inline = harness.layout.tools != "schema"
    needed = {"skills": bool(harness.skills), "tools": bool(harness.tools or harness.skills) and inline}
    for name, wanted in needed.items():
        if wanted and name not in sections:
            yield Finding(
                "harness.yaml", f"sections: {name} is missing, the model would not see them", "add it", "sections"
            )


def _layout(harness: Harness) -> Iterator[Finding]:
    layout = harness.layout
    for name, fields, needed in (
        ("section", SECTION_FIELDS, "body"),
        ("skill", SKILL_FIELDS, "name"),
        ("tool", TOOL_FIELDS, "name"),
        ("result", RESULT_FIELDS, "result"),
    ):
        template = getattr(layout, name)
        try:
            pieces = compile_template(template, fields)
        except TemplateError as error:
            yield Finding("harness.yaml", f"layout.{name}: {error}", "see Layout for its fields", f"{name}:")
            continue
        if needed not in {field for _, field in pieces}:
            yield Finding("harness.yaml", f"layout.{name}: {{{needed}}} is missing", "", f"{name}:")


def _limits(harness: Harness) -> Iterator[Finding]:
    limits = harness.limits
    if limits.output_tokens >= limits.segment_tokens:
        message = "limits: output_tokens leaves nothing of segment_tokens"
        yield Finding("harness.yaml", message, "make segment_tokens several times as large", "output_tokens")
    if not harness.recovery.safe_reply.strip():
        yield Finding(
            "harness.yaml", "recovery: safe_reply is empty", "say something that states no fact", "safe_reply"
        )


def _digest(harness: Harness) -> Iterator[Finding]:
    try:
        part_digests(harness)
    except DigestError as error:
        yield Finding("harness.yaml", f"no digest: {error.message}", error.cure)


# ---- parts ----------------------------------------------------------------------------------------------------


def _skills(harness: Harness) -> Iterator[Finding]:
    folders = skill_folders(harness)
    tools = {tool.id for tool in harness.tools}
    listed = {f"skills/{folders[skill.id]}/{path}" for skill in harness.skills for path in skill.resources}
    held = {file.path for file in harness.files}
    for skill in harness.skills:
        path = f"skills/{folders[skill.id]}/SKILL.md"
        for tool in skill.tools:
            if tool not in tools:
                yield Finding(path, f"allowed-tools: no tool {tool}", _close(tool, tools), tool)
        if len(skill.compatibility) > 500:
            yield Finding(path, "compatibility is longer than 500 characters", "shorten it", "compatibility")
        for key in RESERVED_METADATA:
            if key in skill.metadata:
                yield Finding(path, f"metadata: {key} is reserved", "choose another key", key)
    for missing in sorted(listed - held):
        yield Finding(missing, "a skill lists this file, which is not there", "add it to files")
    for extra in sorted(held - listed):
        yield Finding(extra, "no skill lists this file", "a skill's folder needs a SKILL.md")
    if [file.path for file in harness.files] != sorted(held):
        yield Finding("harness.yaml", "files are not in order of path, each once")


def _tools(harness: Harness) -> Iterator[Finding]:
    for tool in harness.tools:
        path = f"tools/{tool.id}.json"
        for problem in schema_problems(tool.parameters):
            yield Finding(path, f"inputSchema: {problem}", "", "inputSchema")
        if tool.output is not None:
            for problem in schema_problems(tool.output):
                yield Finding(path, f"outputSchema: {problem}", "", "outputSchema")
        if isinstance(tool.parameters.get("properties", {}), dict):
            for problem in adapter_problems(tool):
                yield Finding(path, problem, "", "adapters" if problem.startswith("adapter") else "parameter_names")


_ARGUMENT = re.compile(r"\bargs\.([A-Za-z_]\w*)|\bargs\[['\"]([^'\"]+)['\"]\]")
_QUOTED = r"'([^']*)'|\"([^\"]*)\""
_IN_SKILLS = re.compile(rf"(?:{_QUOTED})\s+in\s+skills\b")
_TOOL_ID = re.compile(rf"(?:{_QUOTED})\s+in\s+calls\b|\.id\s*[!=]=\s*(?:{_QUOTED})")


def _quoted(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for groups in pattern.findall(text):
        yield from (group for group in groups if group)


def _hook(harness: Harness, hook: Hook) -> Iterator[tuple[str, str, str]]:
    """(message, cure, needle) of what is wrong with one hook."""
    try:
        compile_hook(hook)
    except HookError as error:
        yield f"when: {error.message}", error.cure or "see the hook context", hook.when.split("\n")[0]
    for name in {group for groups in _ARGUMENT.findall(hook.when) for group in groups if group}:
        if name not in hook.arguments:
            yield f"when: no argument {name}", _close(name, hook.arguments), name
    for name in sorted(placeholders(hook)):
        known = (*PLACEHOLDERS.get(hook.event, ()), *hook.arguments)
        if name not in known:
            yield f"message: no argument {name}", _close(name, known), name
    if not hook.message.strip() and hook.action not in ("annotate", "silence"):
        yield f"message: {hook.action} needs one", "say what the model or the viewer should read", hook.id
    skills, tools = [skill.id for skill in harness.skills], [tool.id for tool in harness.tools]
    for name in _quoted(_IN_SKILLS, hook.when):
        if name not in skills:
            yield f"when: no skill {name}", _close(name, skills), name
    for name in _quoted(_TOOL_ID, hook.when):
        if name not in tools:
            yield f"when: no tool {name}", _close(name, tools), name


def _hooks(harness: Harness) -> Iterator[Finding]:
    for hook in harness.hooks:
        for message, cure, needle in _hook(harness, hook):
            yield Finding(f"hooks/{hook.id}.yaml", message, cure, needle)


def _few_shots(harness: Harness) -> Iterator[Finding]:
    known = {tool.name for tool in harness.tools} | {harness.activation.tool}
    for shot in harness.few_shots:
        path = f"few_shots/{shot.id}.jsonl"
        for index, message in enumerate(shot.messages):
            if message.get("role") not in ("system", "user", "assistant", "tool"):
                yield Finding(
                    path, f"message {index + 1}: no role {message.get('role')}", "user, assistant, tool or system"
                )
            for call in message.get("tool_calls") or ():
                function = call.get("function") if isinstance(call, dict) else None
                name = function.get("name") if isinstance(function, dict) else None
                if name not in known:
                    yield Finding(path, f"message {index + 1}: no tool {name}", _close(str(name), known), str(name))
                elif not _readable_arguments(function):
                    yield Finding(path, f"message {index + 1}: the arguments are not a JSON object", "", str(name))


def _readable_arguments(function: Any) -> bool:
    arguments = function.get("arguments") or {}
    try:
        return isinstance(json.loads(arguments) if isinstance(arguments, str) else arguments, dict)
    except ValueError:
        return False


_CODE = re.compile(r"`([A-Za-z_][A-Za-z0-9_-]{0,63})(?:\([^`]*\))?`")


def _mentions(harness: Harness) -> Iterator[Finding]:
    """Names in backticks with an inner `_` or `-`, or a call's parentheses, that nothing has."""
    known = {harness.activation.tool, harness.activation.parameter, *harness.sections}
    known |= {tool.name for tool in harness.tools} | {skill.name for skill in harness.skills}
    for tool in harness.tools:
        known |= parameter_names(tool)
    ids = {tool.id: tool.name for tool in harness.tools} | {skill.id: skill.name for skill in harness.skills}
    for path, part in _parts(harness):
        text = getattr(part, "body", "") or getattr(part, "text", "")
        for found in dict.fromkeys(_CODE.finditer(text)):
            name = found[1]
            if name in known:
                continue
            if name in ids:
                yield Finding(
                    path, f"`{name}` is a canonical id", f"the model knows it as {ids[name]}", f"`{name}", True
                )
            elif "_" in name.strip("_") or "-" in name or found[0] != f"`{name}`":
                yield Finding(path, f"`{name}` names nothing", _close(name, known), f"`{name}", True)
