"""Reads YAML and remembers on which line every key stands, so that an error can point at it.

Always holds: plain data only (safe loader), a key given twice is an error. Not here: what the keys mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from hat_harness.errors import Problem

KeyPath = tuple[str, ...]


class Document:
    """A parsed mapping with line numbers. `lines` maps a path of keys to the line of its last key, counted from 1."""

    def __init__(self, data: dict[str, Any], lines: dict[KeyPath, int]) -> None:
        self.data = data
        self.lines = lines

    def line(self, path: Sequence[object]) -> int:
        """Line of `path`, or of the deepest part of it that stands in the text; 0 when none does."""
        keys = tuple(str(part) for part in path)
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys, 0)


def parse(text: str, name: str) -> Document | Problem:
    """The document, or what is wrong with it. `name` is the file that the problem names."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return Problem(name, mark.line + 1 if mark else 0, f"not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        return Problem(name, 0, f"not YAML: {error}")
    if not isinstance(data, dict) or not isinstance(node, yaml.MappingNode):
        return Problem(name, 1, "a mapping of keys to values is expected", "write `key: value` lines")
    lines: dict[KeyPath, int] = {}
    for key, line in _walk(node, (), lines):
        return Problem(name, line, f"key {key!r} stands twice", "keep one")
    return Document(data, lines)


def _walk(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int]) -> Iterator[tuple[str, int]]:
    """Fill `lines`; yield (key, line) of every key that its mapping has already."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            line = key.start_mark.line + 1
            if here in lines:
                yield str(key.value), line
            lines[here] = line
            yield from _walk(value, here, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[(*path, str(index))] = value.start_mark.line + 1
            yield from _walk(value, (*path, str(index)), lines)
