"""One tool's calls under two harness states: how arguments written for one are written for the other.

Always holds: `CallMap(a, b)` and `CallMap(b, a)` are inverse to each other: valid calls stay valid with the same
canonical meaning, and a call that was wrong stays wrong (a name or value that became right is exchanged with the one
that ceased to be). The order of arguments is kept relative to the order of the schema.
Not here: names of tools and skills (mentions), canonical calls (hat_harness.canonical).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from hat_harness.augment.inner import inner_names
from hat_harness.augment.schema import completed
from hat_harness.canonical import canonical_arguments, surface_arguments
from hat_harness.spec import Adapter, Tool

Convert = Callable[[Any], Any]


class CallMap:
    """Arguments of `source`'s surface rewritten as arguments of `target`'s. Both are states of one canonical tool."""

    def __init__(self, source: Tool, target: Tool) -> None:
        self.source = source
        self.target = target

    @cached_property
    def names(self) -> dict[str, str]:
        """Name in the source → name in the target, of every parameter, those in groups included."""
        canonical = {surface: name for name, surface in self.source.parameter_names.items()}
        made = {}
        for name in flat_names(self.source):
            own = canonical.get(name, name)
            made[name] = self.target.parameter_names.get(own, own)
        return made

    @cached_property
    def spoken(self) -> dict[str, str]:
        """`names`, and before them the names of properties below the parameters: what texts may speak of."""
        canonical = {surface: name for name, surface in self.source.parameter_names.items()}
        made: dict[str, str] = {}
        for parameter, found in inner_names(self._apart()).items():
            own = self.source.parameter_names.get(canonical.get(parameter, parameter), parameter)
            for name in found:
                value: Any = {name: 0}
                for to, back in self.values.get(own, ()) if self.moves else ():
                    value = _exchanged(value, to, back)
                made[name] = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else name
        return made | self.names

    def _apart(self) -> dict[str, Any]:
        """The source's schema with the members of groups in place of the groups."""
        groups = {adapter.into for adapter in self.source.adapters if adapter.kind == "nested"}
        properties: dict[str, Any] = {}
        for name, inner in self.source.parameters.get("properties", {}).items():
            properties |= (
                inner.get("properties", {}) if name in groups and isinstance(inner, Mapping) else {name: inner}
            )
        return {**self.source.parameters, "properties": properties}

    @cached_property
    def whole(self) -> dict[str, str]:
        """`names` completed to a permutation."""
        return completed(self.names)

    @cached_property
    def moves(self) -> bool:
        """Whether anything but names and order differs."""
        return self.source.adapters != self.target.adapters

    @cached_property
    def same(self) -> bool:
        """Whether every call stays as it is."""
        return not self.moves and self._still and all(old == new for old, new in self.names.items())

    @cached_property
    def _still(self) -> bool:
        return [self.names.get(name, name) for name in flat_names(self.source)] == flat_names(self.target)

    @cached_property
    def values(self) -> dict[str, tuple[tuple[Convert, Convert], ...]]:
        """Name in the source → conversions of its values, each with its inverse."""
        ours, theirs = _scalar(self.source), _scalar(self.target)
        shared = 0
        while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
            shared += 1
        made: dict[str, list[tuple[Convert, Convert]]] = {}
        for adapter in reversed(ours[shared:]):
            to, back = _conversions(adapter)
            made.setdefault(self._surface(adapter), []).append((back, to))
        for adapter in theirs[shared:]:
            made.setdefault(self._surface(adapter), []).append(_conversions(adapter))
        return {name: tuple(steps) for name, steps in made.items()}

    def _surface(self, adapter: Adapter) -> str:
        return self.source.parameter_names.get(adapter.parameters[0], adapter.parameters[0])

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of one call."""
        if self.same:
            return dict(arguments)
        flat = dict(arguments)
        if self.source.adapters:
            flat = self._flattened(flat)
        if not self._still:
            flat = self._ordered(flat)
        made: dict[str, Any] = {}
        for name, value in flat.items():
            for to, back in self.values.get(name, ()) if self.moves else ():
                value = _exchanged(value, to, back)
            made[self.whole.get(name, name)] = value
        return self._grouped(made) if self.target.adapters else made

    def _flattened(self, arguments: dict[str, Any]) -> dict[str, Any]:
        groups = {adapter.into for adapter in self.source.adapters if adapter.kind == "nested"}
        flat: dict[str, Any] = {}
        for name, value in arguments.items():
            if name in groups and isinstance(value, Mapping) and not (value.keys() & (arguments.keys() | flat.keys())):
                flat.update(value)
            else:
                flat[name] = value
        return flat

    def _grouped(self, arguments: dict[str, Any]) -> dict[str, Any]:
        owner = {
            self.target.parameter_names.get(name, name): adapter.into
            for adapter in self.target.adapters
            if adapter.kind == "nested"
            for name in adapter.parameters
        }
        if not owner or any(into in arguments for into in owner.values()):
            return arguments
        made: dict[str, Any] = {}
        for name, value in arguments.items():
            if name in owner:
                made.setdefault(owner[name], {})[name] = value
            else:
                made[name] = value
        return made

    def _ordered(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments in the same order relative to the target's schema as they had to the source's."""
        known = [name for name in flat_names(self.source) if name in arguments]
        back = {new: old for old, new in self.names.items()}
        there = [back[name] for name in flat_names(self.target) if name in back and back[name] in arguments]
        if known == there or len(known) != len(there):
            return arguments
        rank = {name: there[index] for index, name in enumerate(known)}
        return {rank.get(name, name): arguments[rank.get(name, name)] for name in arguments}


def flat_names(tool: Tool) -> list[str]:
    """Parameters as the schema lists them, those of adapter groups in the group's place."""
    properties = tool.parameters.get("properties", {})
    groups = {adapter.into for adapter in tool.adapters if adapter.kind == "nested"}
    found: list[str] = []
    for name, schema in properties.items():
        found += list(schema.get("properties", {})) if name in groups else [name]
    if len(tool.parameters) > 4:
        from hat_harness.augment.schema import property_names

        found += [name for name in property_names(tool.parameters) if name not in found and name not in groups]
    return found


def _scalar(tool: Tool) -> list[Adapter]:
    return [adapter for adapter in tool.adapters if adapter.kind != "nested"]


def _conversions(adapter: Adapter) -> tuple[Convert, Convert]:
    """(canonical → surface, surface → canonical) of one adapter; ValueError for what it cannot convert."""
    name = adapter.parameters[0]
    alone = Tool.model_construct(parameter_names={}, adapters=(adapter,))

    def to(value: Any) -> Any:
        return surface_arguments(alone, {name: value})[name]

    def back(value: Any) -> Any:
        return canonical_arguments(alone, {name: value})[name]

    return to, back


def _exchanged(value: Any, to: Convert, back: Convert) -> Any:
    """The value converted; one that only the other side knows is converted back; any other stays."""
    for way, home in ((to, back), (back, to)):
        try:
            made = way(value)
            if _same(home(made), value):
                return made
        except (ValueError, TypeError, KeyError, IndexError):
            continue
    return value


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
