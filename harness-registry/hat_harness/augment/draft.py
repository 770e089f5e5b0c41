"""The mutable copy of a harness that operators work on, and the record that each of them fills.

Always holds: the base harness is never changed; parts are replaced whole and only those that differ are new objects, so
that digests of the others stay cached. Not here: what is done to it (naming, structure, content, perturb).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hat_harness.augment.mentions import words_in_code
from hat_harness.augment.operators import AnyOperator
from hat_harness.augment.schema import descriptions, property_names
from hat_harness.augment.state import Rewrite
from hat_harness.augment.words import Lexicon
from hat_harness.spec import Harness, Part

PartT = TypeVar("PartT", bound=Part)
_TAKEN: dict[int, tuple[weakref.ref[Harness], frozenset[str], frozenset[str] | None]] = {}


def changed(part: PartT, **values: Any) -> PartT:
    """The part with some fields replaced, without validation (the operators' laws are tested, not re-checked per draw).

    Does what `model_copy(update=...)` does, at a third of its cost.
    """
    made = object.__new__(type(part))
    object.__setattr__(made, "__dict__", {**part.__dict__, **values})
    object.__setattr__(made, "__pydantic_fields_set__", part.__pydantic_fields_set__ | values.keys())
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


def constructed(kind: type[PartT], values: dict[str, Any]) -> PartT:
    """A part from complete and valid values, as `model_construct` makes it, at a fifth of its cost."""
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    object.__setattr__(made, "__pydantic_fields_set__", set(values))
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


def escape(identifier: str) -> str:
    """An id as one segment of a path."""
    return identifier.replace("~", "~0").replace("/", "~1")


@dataclass
class Record:
    """A `Rewrite` in the making."""

    operator: AnyOperator
    seed: int
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    order: dict[str, tuple[str, ...]] = field(default_factory=dict)
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    phrases: dict[str, tuple[str, str]] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    def rewrite(self) -> Rewrite:
        """The finished record."""
        return constructed(Rewrite, {**self.__dict__, "added": tuple(self.added), "law": self.operator.law})


@dataclass
class Draft:
    """A harness being rewritten. `parts` are lists in the harness's order; ids never change."""

    base: Harness
    lexicon: Lexicon
    pair: Harness | None
    language: str
    sections: tuple[str, ...]
    parts: dict[str, list[Any]]
    single: dict[str, Any]
    """`layout`, `activation`, `recovery`."""
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    avoid: frozenset[str] = frozenset()
    """Words of the conversation around the harness: no distractor is about them and no new name is one of them."""
    coded: frozenset[str] | None = None
    """Ids of tools whose schema has code in some description; None before `taken` looked."""

    @staticmethod
    def of(harness: Harness, lexicon: Lexicon, pair: Harness | None = None) -> Draft:
        """A draft that equals `harness`."""
        parts: dict[str, list[Any]] = {
            "prompts": list(harness.prompts),
            "skills": list(harness.skills),
            "tools": list(harness.tools),
            "hooks": list(harness.hooks),
            "few_shots": list(harness.few_shots),
        }
        single = {"layout": harness.layout, "activation": harness.activation, "recovery": harness.recovery}
        return Draft(harness, lexicon, pair, harness.language, harness.sections, parts, single)

    def harness(self) -> Harness:
        """The harness as it stands."""
        values: dict[str, Any] = {name: tuple(parts) for name, parts in self.parts.items()}
        return changed(self.base, **values, **self.single, language=self.language, sections=self.sections)

    # ---- parts by id ------------------------------------------------------------------------------------------

    def place(self, kind: str, identifier: str) -> int | None:
        """Index of a part in its list, or None; remembered until the list changes length or order."""
        known = self.places.get(kind)
        if known is None:
            known = {part.id: index for index, part in enumerate(self.parts[kind])}
            self.places[kind] = known
        return known.get(identifier)

    def reorder(self, kind: str, parts: list[Any]) -> None:
        """Sets a whole list of parts."""
        self.parts[kind] = parts
        self.places.pop(kind, None)

    # ---- texts by path ----------------------------------------------------------------------------------------

    def texts(self, *kinds: str) -> Iterator[tuple[str, str]]:
        """(path, text) of every instruction text of the given kinds of parts (all when none is given)."""
        want = kinds or ("skills", "tools", "prompts", "hooks", "activation")
        if "skills" in want:
            for skill in self.parts["skills"]:
                yield f"skills/{escape(skill.id)}/description", skill.description
                yield f"skills/{escape(skill.id)}/body", skill.body
        if "tools" in want:
            for tool in self.parts["tools"]:
                yield f"tools/{escape(tool.id)}/description", tool.description
        if "prompts" in want:
            for prompt in self.parts["prompts"]:
                yield f"prompts/{prompt.id}/text", prompt.text
        if "hooks" in want:
            for hook in self.parts["hooks"]:
                yield f"hooks/{hook.id}/message", hook.message
        if "activation" in want:
            yield "activation/description", self.single["activation"].description

    def set_text(self, path: str, text: str) -> None:
        """Replaces the text at `path`."""
        kind, *rest = path.split("/")
        if "~" in path:
            rest = [segment.replace("~1", "/").replace("~0", "~") for segment in rest]
        if kind in self.single:
            self.single[kind] = changed(self.single[kind], **{rest[0]: text})
            return
        where = self.place(kind, rest[0])
        if where is None:
            return
        part = self.parts[kind][where]
        if rest[1] == "arguments":
            self.parts[kind][where] = changed(part, arguments={**part.arguments, rest[2]: text})
        else:
            self.parts[kind][where] = changed(part, **{rest[1]: text})

    def put(self, record: Record, path: str, old: str, new: str) -> None:
        """Replaces a text and records it, unless nothing changes."""
        if old == new:
            return
        first = record.texts[path][0] if path in record.texts else old
        record.texts[path] = (first, new)
        self.set_text(path, new)

    def taken(self) -> set[str]:
        """Every name in use and every identifier that stands in code somewhere: what a fresh name must avoid.

        Called before anything is changed; the answer is remembered for as long as the base harness lives.
        """
        known = _TAKEN.get(id(self.base))
        if known is None or known[0]() is not self.base:
            key = id(self.base)
            known = (weakref.ref(self.base, lambda _: _TAKEN.pop(key, None)), frozenset(self._taken()), self.coded)
            _TAKEN[key] = known
        self.coded = known[2]
        return set(known[1])

    def _taken(self) -> set[str]:
        activation = self.single["activation"]
        names = {activation.tool, activation.parameter}
        coded: list[str] = []
        for kind in ("skills", "tools"):
            names.update(part.name for part in self.parts[kind])
            names.update(part.id for part in self.parts[kind])
        for tool in self.parts["tools"]:
            names.update(property_names(tool.parameters))
            names.update(tool.parameter_names)
            if "`" in str(tool.parameters):
                coded.append(tool.id)
                for _, text in descriptions(tool.parameters):
                    names |= words_in_code(text)
        self.coded = frozenset(coded)
        for _, text in self.texts():
            names |= words_in_code(text)
        for shot in self.parts["few_shots"]:
            for message in shot.messages:
                names |= words_in_code(str(message.get("content", "")) + str(message.get("reasoning_content", "")))
        return names
