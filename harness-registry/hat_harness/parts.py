"""From the files of a harness folder to its parts: one reader per kind of file, all problems gathered.

Always holds: a reader never raises for bad content; it adds problems with the line and yields nothing, so that one
load tells everything that is wrong. Formats: `harness.yaml`; `prompts/<id>.md`; `skills/<folder>/SKILL.md` (Agent
Skills, with `kind`, `name`, `id` of ours under `metadata`); `tools/<id>.json` (MCP, ours under `_meta`);
`hooks/*.yaml` (a list of hooks); `few_shots/<id>.jsonl` (OpenAI messages). Not here: folders and paths (load),
consistency between parts (validate).
"""

from __future__ import annotations

import base64
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from hat_harness.errors import Problem
from hat_harness.names import FOLDER
from hat_harness.reading import Document, Path, ReadError, decode_text, read_json, read_yaml, split_front_matter
from hat_harness.save import LISTS, TOOL_META
from hat_harness.spec import (
    Activation,
    Adapter,
    FewShot,
    File,
    Harness,
    Hook,
    Layout,
    Limits,
    Part,
    Prompt,
    Recovery,
    Retry,
    Skill,
    Tool,
)

P = TypeVar("P", bound=Part)
_NESTED: dict[str, type[Part]] = {
    "layout": Layout,
    "activation": Activation,
    "limits": Limits,
    "recovery": Recovery,
    "retry": Retry,
    "adapters": Adapter,
}
_SKILL_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_TOOL_KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta")
_MCP_UNUSED = ("icons", "execution")
_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint", "title")
OWN_METADATA = ("kind", "name", "id")
"""Keys of a skill's `metadata` that are ours."""


def suggest(name: str, known: Iterable[str]) -> str:
    """A cure for an unknown name."""
    options = sorted(set(known))
    close = difflib.get_close_matches(name, options, 1, 0.6)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(options[:20])}"


class Reader:
    """Reads the files of one harness and gathers what is wrong with them."""

    def __init__(self, files: Mapping[str, bytes], strict: bool) -> None:
        self.files = files
        self.strict = strict
        self.problems: list[Problem] = []
        self.language = "en"

    def problem(self, path: str, line: int, message: str, cure: str = "") -> None:
        """Adds a finding."""
        self.problems.append(Problem(path, line, message, cure))

    def unknown(self, path: str, document: Document, at: Path, given: Iterable[str], known: Sequence[str]) -> None:
        """Keys that nothing reads; ignored when not strict."""
        for name in given:
            if name not in known and self.strict:
                self.problem(path, document.line((*at, name)), f"unknown key {name}", suggest(name, known))

    def build(self, model: type[P], path: str, document: Document, fields: dict[str, Any], at: Path = ()) -> P | None:
        """The part, or None with a problem for every field that is wrong."""
        if not self.strict:
            fields = {name: value for name, value in fields.items() if name in model.model_fields}
        try:
            return model.model_validate(fields)
        except ValidationError as error:
            for item in error.errors():
                where = tuple(item["loc"])
                line = document.line((*at, *where))
                dotted = ".".join(str(step) for step in where)
                if item["type"] == "extra_forbidden":
                    parent = next((_NESTED[step] for step in reversed(where[:-1]) if step in _NESTED), model)
                    self.problem(path, line, f"unknown key {dotted}", suggest(str(where[-1]), parent.model_fields))
                else:
                    self.problem(path, line, f"{dotted}: {item['msg']}" if dotted else item["msg"])
        return None

    def read(self, path: str, reader: Callable[[str], Any]) -> Any:
        """The file through `reader`, or None with a problem."""
        try:
            return reader(decode_text(self.files[path]))
        except ReadError as error:
            self.problem(path, error.line, error.message, error.cure)
            return None

    # ---- the kinds of file --------------------------------------------------------------------------------------

    def head(self) -> tuple[dict[str, Any], dict[str, list[str]], Document]:
        """(settings, order of parts, document) of harness.yaml."""
        path = "harness.yaml"
        if path not in self.files:
            self.problem(path, 0, "missing", "a harness folder has a harness.yaml with at least `name`")
            return {}, {}, Document(None)
        document = self.read(path, read_yaml)
        if document is None:
            return {}, {}, Document(None)
        if not isinstance(document.value, dict):
            self.problem(path, 1, "not a mapping", "write `key: value` lines")
            return {}, {}, Document(None)
        fields = dict(document.value)
        order = fields.pop("order", {})
        allowed = [name for name in Harness.model_fields if name not in (*LISTS, "files")]
        self.unknown(path, document, (), fields, [*allowed, "order"])
        fields = {name: value for name, value in fields.items() if name in allowed}
        self.language = fields.get("language", "en") if fields.get("language") in ("en", "zh") else "en"
        return fields, self._order(path, document, order), document

    def _order(self, path: str, document: Document, order: Any) -> dict[str, list[str]]:
        if not isinstance(order, dict):
            self.problem(path, document.line(("order",)), "order: not a mapping of lists")
            return {}
        self.unknown(path, document, ("order",), order, LISTS)
        found = {}
        for name, ids in order.items():
            if name in LISTS:
                if isinstance(ids, list) and all(isinstance(item, str) for item in ids):
                    found[name] = ids
                else:
                    self.problem(path, document.line(("order", name)), f"order.{name}: not a list of ids")
        return found

    def prompt(self, path: str) -> Prompt | None:
        """`prompts/<id>.md`."""
        found = self.read(path, split_front_matter)
        if found is None:
            return None
        document, body, _ = found
        stem = path.rsplit("/", 1)[1].removesuffix(".md")
        allowed = [name for name in Prompt.model_fields if name not in ("id", "text")]
        self.unknown(path, document, (), document.value, allowed)
        fields = {name: value for name, value in document.value.items() if name in allowed}
        return self.build(Prompt, path, document, {"language": self.language, **fields, "id": stem, "text": body})

    def skill(self, path: str, aliases: Mapping[str, str]) -> Skill | None:
        """`skills/<folder>/SKILL.md`."""
        found = self.read(path, split_front_matter)
        if found is None:
            return None
        document, body, _ = found
        folder, fields = path.split("/")[1], document.value
        self.unknown(path, document, (), fields, _SKILL_KEYS)
        if fields.get("name") != folder:
            self.problem(path, document.line(("name",)), f"name: must be the folder's name, {folder}")
        elif not FOLDER.match(folder) or len(folder) > 64:
            self.problem(path, 1, f"{folder} is no Agent Skills name", "lower case, digits, single inner hyphens")
        metadata = fields.get("metadata") or {}
        if not isinstance(metadata, dict):
            self.problem(path, document.line(("metadata",)), "metadata: not a mapping of texts")
            return None
        identifier = metadata.get("id") or aliases.get(folder, folder)
        prefix = path.removesuffix("SKILL.md")
        built = {
            "id": identifier,
            "name": metadata.get("name", identifier),
            "description": fields.get("description"),
            "body": body,
            "tools": self._allowed_tools(path, document, fields.get("allowed-tools")),
            "metadata": {key: value for key, value in metadata.items() if key not in OWN_METADATA},
            "resources": sorted(p.removeprefix(prefix) for p in self.files if p.startswith(prefix) and p != path),
        }
        built |= {key: metadata[key] for key in ("kind",) if key in metadata}
        built |= {key: fields[key] for key in ("license", "compatibility") if key in fields}
        return self.build(Skill, path, document, built)

    def _allowed_tools(self, path: str, document: Document, value: Any) -> list[str]:
        if value is None:
            return []
        if isinstance(value, str):
            return value.split()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        self.problem(path, document.line(("allowed-tools",)), "allowed-tools: tool ids separated by spaces")
        return []

    def tool(self, path: str) -> Tool | None:
        """`tools/<id>.json`."""
        document = self.read(path, read_json)
        if document is None:
            return None
        fields = document.value
        if not isinstance(fields, dict):
            self.problem(path, 1, "not an object", "write an MCP tool definition")
            return None
        self.unknown(path, document, (), fields, (*_TOOL_KEYS, *_MCP_UNUSED))
        hints, meta = fields.get("annotations", {}), fields.get("_meta", {})
        own = meta.get(TOOL_META, {}) if isinstance(meta, dict) else None
        if not isinstance(hints, dict) or not isinstance(own, dict):
            self.problem(path, document.line(("annotations",)), "annotations and _meta are objects")
            return None
        self.unknown(path, document, ("annotations",), hints, _HINTS)
        self.unknown(path, document, ("_meta", TOOL_META), own, ("timeout_s", "parameter_names", "adapters"))
        built = {
            "id": path.rsplit("/", 1)[1].removesuffix(".json"),
            "name": fields.get("name"),
            "title": fields.get("title", ""),
            "description": fields.get("description"),
            "parameters": fields.get("inputSchema", {"type": "object"}),
            "output": fields.get("outputSchema"),
            # MCP's own defaults: a tool that says nothing may have effects.
            "read_only": hints.get("readOnlyHint", False),
            "idempotent": hints.get("idempotentHint", False),
            **{name: own[name] for name in ("timeout_s", "parameter_names", "adapters") if name in own},
        }
        return self.build(Tool, path, document, built)

    def hooks(self, path: str) -> list[Hook]:
        """`hooks/*.yaml`."""
        document = self.read(path, read_yaml)
        if document is None or document.value is None:
            return []
        if not isinstance(document.value, list):
            self.problem(path, 1, "not a list of hooks", "begin each hook with `- id: ...`")
            return []
        found = []
        for index, fields in enumerate(document.value):
            if isinstance(fields, dict):
                found.append(self.build(Hook, path, document, fields, (index,)))
            else:
                self.problem(path, document.line((index,)), "a hook is a mapping")
        return [hook for hook in found if hook is not None]

    def few_shot(self, path: str) -> FewShot | None:
        """`few_shots/<id>.jsonl`."""
        text = self.read(path, lambda text: text)
        messages = []
        for number, line in enumerate((text or "").split("\n"), 1):
            if not line.strip():
                continue
            try:
                message = read_json(line).value
            except ReadError as error:
                self.problem(path, number, error.message)
                continue
            if isinstance(message, dict):
                messages.append(message)
            else:
                self.problem(path, number, "a message is an object")
        stem = path.rsplit("/", 1)[1].removesuffix(".jsonl")
        return self.build(FewShot, path, Document({}), {"id": stem, "messages": messages})

    def file(self, path: str) -> File:
        """A further file of a skill's folder."""
        return read_file(path, self.files[path])


def read_file(path: str, data: bytes) -> File:
    """A further file: as text where it is UTF-8 without null characters, else in base64."""
    try:
        text = data.decode()
        if "\0" not in text:
            return File(path=path, content=text)
    except UnicodeDecodeError:
        pass
    return File(path=path, content=base64.b64encode(data).decode("ascii"), encoding="base64")
