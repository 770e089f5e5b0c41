"""One SKILL.md as text: its front matter by the open format's rules, strictly or as it is found in the wild.

Always holds: never raises but ReadError; what strict calls a problem is a note when lenient, and lenient never invents
a fact: a missing description is the body's own first line. Not here: folders and files (skills_folder).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hat_harness.names import FILE_ID, FOLDER, folder_name
from hat_harness.reading import Document, ReadError, split_front_matter
from hat_harness.spec import NAME_PATTERN

KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_NAME = re.compile(NAME_PATTERN)
_LINE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):[ \t]+(.*)")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
MOST = 1024
"""Characters of a description."""


@dataclass(slots=True)
class Front:
    """Front matter while it is read."""

    value: dict[str, Any]
    body: str
    document: Document
    problems: list[tuple[int, str, str]] = field(default_factory=list)
    """(line, message, cure)."""
    notes: list[str] = field(default_factory=list)

    def line(self, key: str) -> int:
        """Where the key stands."""
        return self.document.line((key,))

    def tell(self, lenient: bool, key: str, message: str, cure: str = "") -> None:
        """A note, or a problem."""
        if lenient:
            self.notes.append(message)
        else:
            self.problems.append((self.line(key), message, cure))

    def text(self, key: str, most: int, lenient: bool) -> str:
        """A text field, at most `most` characters."""
        value = self.value.get(key)
        if not isinstance(value, str):
            self.tell(lenient, key, f"{key}: not a text", "write it in quotes")
            value = "" if value is None else json.dumps(value, ensure_ascii=False)
        if len(value) > most:
            self.tell(lenient, key, f"{key}: longer than {most} characters", "shorten it")
        return _CONTROL.sub("", value[:most])

    def description(self, lenient: bool) -> str:
        """The description; lenient: the first line of the body when there is none."""
        if self.value.get("description") not in (None, ""):
            return self.text("description", MOST, lenient)
        self.tell(lenient, "description", "description: missing", "say what the skill does and when to use it")
        lines = (line.strip(" #*\t") for line in self.body.splitlines())
        return _CONTROL.sub("", next((line for line in lines if line), "a skill"))[:MOST] if lenient else "-"

    def own(self, name: str) -> bool:
        """Whether a name is one that the model can call by."""
        return bool(_NAME.match(name))

    def allowed(self, known: set[str] | None, lenient: bool) -> Iterator[str]:
        """Ids in `allowed-tools`: a text or a list; lenient: commas and patterns such as `Bash(git:*)` are passed over."""
        value = self.value.get("allowed-tools")
        if isinstance(value, str):
            given = re.findall(r"[^\s,(]+(?:\([^)]*\))?", value) if lenient else value.split()
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            given = list(value)
            if not lenient:
                self.tell(False, "allowed-tools", "allowed-tools: not a text", "write ids separated by spaces")
        elif value is None:
            return
        else:
            self.tell(lenient, "allowed-tools", "allowed-tools: not a text", "write ids separated by spaces")
            return
        for one in dict.fromkeys(given):
            if known is not None and one not in known:
                self.tell(
                    lenient, "allowed-tools", f"allowed-tools: no tool {one[:80]}", "add the tool, or leave it out"
                )
            elif lenient and not FILE_ID.match(one):
                self.notes.append(f"allowed-tools: {one[:80]} is no tool id")
            else:
                yield one


def front_matter(text: str, lenient: bool) -> Front:
    """The front matter and body of a SKILL.md. ReadError when it has none or it cannot be read."""
    notes: list[str] = []
    try:
        document, body, _ = split_front_matter(text)
    except ReadError as error:
        if not lenient:
            raise
        document, body = _mended(text, error)
        notes.append(f"front matter: {error.message}")
    if lenient and _CONTROL.search(body):
        body = _CONTROL.sub("", body)
        notes.append("body: control characters were left out")
    front = Front(document.value, body, document, notes=notes)
    for key in document.value:
        if key not in KEYS:
            front.tell(lenient, str(key), f"unknown key {key}", f"known: {', '.join(KEYS)}")
    return front


def _mended(text: str, error: ReadError) -> tuple[Document, str]:
    """The most common faults mended: no front matter at all, and values with a colon that lack quotes."""
    if not text.startswith("---\n"):
        return Document({}), text.removesuffix("\n")
    end = text.find("\n---", 3)
    if end < 0:
        raise error
    lines = []
    for line in text[4 : end + 1].split("\n"):
        match = _LINE.fullmatch(line)
        if match and match[2][:1] not in ("", '"', "'", "|", ">", "[", "{"):
            line = f"{match[1]}: {json.dumps(match[2].strip(), ensure_ascii=False)}"
        lines.append(line)
    document, body, _ = split_front_matter("---\n" + "\n".join(lines) + text[end + 1 :])
    return document, body


def naming(front: Front, folder: str, lenient: bool) -> tuple[str, str, str]:
    """(folder in the open format, canonical id, name that the model sees) of the skill in `folder`."""
    metadata = front.value.get("metadata")
    own = metadata.get("id") if isinstance(metadata, dict) else None
    given = front.value.get("name")
    if given != folder:
        front.tell(lenient, "name", f"name: {given!r} is not the folder's name, {folder}"[:300], "make them the same")
    valid = bool(FOLDER.match(folder)) and len(folder) <= 64
    if not valid:
        cure = "lower case, digits, single inner hyphens, at most 64"
        front.tell(lenient, "name", f"{folder[:80]!r} is no Agent Skills name", cure)
    wanted = given if isinstance(given, str) and FILE_ID.match(given) else folder
    target = folder if valid else folder_name(folder)
    identifier = wanted if FILE_ID.match(wanted) else target
    if isinstance(own, str) and FILE_ID.match(own):
        identifier = own
    name = re.sub(r"[^A-Za-z0-9_-]", "_", identifier)[:63]
    return target, identifier, name if _NAME.match(name) else "_" + name


def texts_only(front: Front, lenient: bool) -> dict[str, str]:
    """`metadata` as a mapping of texts."""
    value = front.value.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, dict):
        front.tell(lenient, "metadata", "metadata: not a mapping of texts", "write `key: value` lines")
        return {}
    found: dict[str, str] = {}
    for key, inner in value.items():
        if not isinstance(inner, str):
            front.tell(lenient, "metadata", f"metadata.{key}: not a text", "write it in quotes")
            inner = json.dumps(inner, ensure_ascii=False)
        found[str(key)] = _CONTROL.sub("", inner)
    return found
