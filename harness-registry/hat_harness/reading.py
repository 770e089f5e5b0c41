"""Bounded reading of YAML, JSON and front matter, with the line of every value.

Always holds: input is at most `MAX_FILE` bytes of UTF-8; YAML has no anchors, aliases, tags or merge keys and nests
at most `MAX_DEPTH` deep, so reading is linear in the input; a repeated key is an error in YAML and JSON alike. Plain
YAML scalars follow the YAML 1.2 core schema: `yes`, `on` and dates are strings. CRLF is read as LF and a byte order
mark is dropped. Not here: what keys mean (load), writing (save).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_FILE = 1 << 20
MAX_DEPTH = 32

Path = tuple[str | int, ...]
"""Keys and indices from the top of a document to a value."""


class ReadError(Exception):
    """A text that cannot be read; `line` counts from 1."""

    def __init__(self, line: int, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.cure = cure


@dataclass(slots=True)
class Document:
    """A value and the lines at which its parts stand."""

    value: Any
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of the value at `path`, or of the nearest thing around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


def decode_text(data: bytes) -> str:
    """UTF-8 text with LF line ends. ReadError when it is too long or not UTF-8."""
    if len(data) > MAX_FILE:
        raise ReadError(0, f"larger than {MAX_FILE >> 10} KiB", "split it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ReadError(data.count(b"\n", 0, error.start) + 1, "not UTF-8", "save it as UTF-8") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


# ---- YAML -----------------------------------------------------------------------------------------------------

_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def resolve_plain(text: str) -> Any:
    """The value of a plain YAML scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.match(text) and len(text) < 20:
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text


class _Builder:
    """Makes a value out of YAML events, with a stack of its own."""

    def __init__(self, first_line: int) -> None:
        self.first_line = first_line
        self.lines: dict[Path, int] = {}
        self.top: list[Any] = []
        self.stack: list[tuple[Any, Path]] = []
        self.keys: list[str | None] = []

    def line(self, event: Any) -> int:
        return int(event.start_mark.line) + self.first_line

    def refuse(self, event: Any) -> None:
        """What a harness file must not have."""
        line = self.line(event)
        if getattr(event, "anchor", None) is not None:
            raise ReadError(line, "anchors and aliases are not allowed", "write the value out")
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise ReadError(line, f"the tag {tag} is not allowed", "write plain values")

    def take(self, event: Any) -> None:
        """One event of the parser."""
        name = type(event).__name__
        if name == "ScalarEvent":
            self.refuse(event)
            plain = not event.style and event.implicit[0]
            self.scalar(event, event.value, plain)
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            self.refuse(event)
            self.start(event, {} if name == "MappingStartEvent" else [])
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            self.stack.pop()
            self.keys.pop()
        elif name == "AliasEvent":
            self.refuse(event)
        elif name == "DocumentStartEvent" and self.top:
            raise ReadError(self.line(event), "a second document", "keep one document in a file")

    def start(self, event: Any, container: Any) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise ReadError(self.line(event), f"nested deeper than {MAX_DEPTH}")
        path = self.put(event, container)
        self.stack.append((container, path))
        self.keys.append(None)

    def scalar(self, event: Any, text: str, plain: bool) -> None:
        if self.stack and isinstance(self.stack[-1][0], dict) and self.keys[-1] is None:
            container, path = self.stack[-1]
            if text in container:
                raise ReadError(self.line(event), f"the key {text!r} stands twice")
            if plain and text == "<<":
                raise ReadError(self.line(event), "merge keys are not allowed", "write the values out")
            self.keys[-1] = text
            self.lines[(*path, text)] = self.line(event)
            return
        self.put(event, resolve_plain(text) if plain else text)

    def put(self, event: Any, value: Any) -> Path:
        """Puts a value where it belongs and returns its path."""
        if not self.stack:
            self.top.append(value)
            self.lines[()] = self.line(event)
            return ()
        container, path = self.stack[-1]
        if isinstance(container, list):
            container.append(value)
            path = (*path, len(container) - 1)
            self.lines[path] = self.line(event)
            return path
        key = self.keys[-1]
        if key is None:
            raise ReadError(self.line(event), "a key must be a plain text")
        container[key] = value
        self.keys[-1] = None
        return (*path, key)


def read_yaml(text: str, first_line: int = 1) -> Document:
    """The one document of a YAML text; the value is None when it is empty."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(first_line)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = (mark.line if mark else 0) + first_line
        raise ReadError(line, f"not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ReadError(first_line, f"not YAML: {str(error).splitlines()[0]}") from None
    return Document(builder.top[0] if builder.top else None, builder.lines)


# ---- JSON -----------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]:,]|[^\s{}\[\]:,"]+|\n')


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice")
    return found


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def read_json(text: str) -> Document:
    """A JSON text, strictly: no repeated keys, NaN or Infinity."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ReadError(error.lineno, f"not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ReadError(1, f"not JSON: {reason}") from None
    lines = json_lines(text)
    if any(len(path) > MAX_DEPTH for path in lines):
        raise ReadError(1, f"nested deeper than {MAX_DEPTH}")
    return Document(value, lines)


def json_lines(text: str) -> dict[Path, int]:
    """Path of every value of a valid JSON text → its line (of its key, inside an object)."""
    lines: dict[Path, int] = {}
    stack: list[list[Any]] = []
    line, key_next = 1, False
    for mark in _TOKEN.findall(text):
        line_here = line
        line += mark.count("\n")
        if mark == "\n":
            continue
        if key_next and mark.startswith('"'):
            stack[-1][0] = json.loads(mark)
            lines[tuple(frame[0] for frame in stack)] = line_here
            key_next = False
        elif mark in "{[":
            lines.setdefault(tuple(frame[0] for frame in stack), line_here)
            stack.append([0 if mark == "[" else "", mark])
            key_next = mark == "{"
        elif mark in "}]":
            stack.pop()
            key_next = False
        elif mark == ",":
            if stack[-1][1] == "[":
                stack[-1][0] += 1
            else:
                key_next = True
        elif mark != ":":
            lines.setdefault(tuple(frame[0] for frame in stack), line_here)
    return lines


# ---- front matter ---------------------------------------------------------------------------------------------


def split_front_matter(text: str) -> tuple[Document, str, int]:
    """(front matter, body, line of the body's first line) of a markdown text that opens with `---`.

    One empty line after the front matter and one line end at the end of the text are not part of the body.
    """
    if not text.startswith("---\n"):
        raise ReadError(1, "no front matter", "begin with a line `---`, the fields, and a line `---`")
    end = text.find("\n---\n", 3)
    rest_at = end + 5
    if end < 0 and text.endswith("\n---"):
        end, rest_at = len(text) - 4, len(text)
    if end < 0:
        raise ReadError(1, "the front matter does not end", "put a line `---` after its fields")
    document = read_yaml(text[4 : end + 1], 2)
    if document.value is None:
        document.value = {}
    if not isinstance(document.value, dict):
        raise ReadError(2, "the front matter is not a mapping", "write `key: value` lines")
    line = text.count("\n", 0, rest_at) + 1
    body = text[rest_at:]
    if body.startswith("\n"):
        body, line = body[1:], line + 1
    return document, body.removesuffix("\n"), line
