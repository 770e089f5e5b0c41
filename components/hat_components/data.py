"""Datasets that steps hand over: a folder with `dataset.json` (`hatstack.dataset/1`) and one JSONL file per split.

Always holds: a folder under its final name is complete, its manifest names every split with count and digest, and a
reader that reaches the end of a split has compared both. The digest of a dataset depends on its content alone, so the
same draws give the same digest on every machine. Training refuses data without a purpose. Not here: where datasets
are stored (run folders), what items mean (hat_scenarios), the conversation format of imports (importer).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.step import InputError
from hat_harness.digest import decimals, digest_json
from hat_scenarios.base import Item

FORMAT = "hatstack.dataset/1"
MANIFEST = "dataset.json"
KEEP_UNTIL = "keep_until"
"""Fact with the last day (`YYYY-MM-DD`, UTC) of a dataset of people's words."""
Purpose = Literal["training", "evaluation", "calibration", "evolution"]
Kind = Literal["items", "trajectories", "conversations"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
R = TypeVar("R", bound=BaseModel)


class Record(BaseModel):
    """Base of the records here: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SplitEntry(Record):
    """One split of a dataset."""

    file: str
    """Name of the JSONL file in the folder."""
    count: int
    """Lines in it."""
    digest: str
    """`sha256:` + 64 hex of the file's bytes."""


class Dataset(Record):
    """Manifest of a dataset folder (`hatstack.dataset/1`)."""

    format: Literal["hatstack.dataset/1"] = "hatstack.dataset/1"
    name: str
    """Name that people see, as in `dataset:NAME@sha256:…`."""
    kind: Kind
    purpose: Purpose | None = None
    """What the data may be used for; None: untagged, which training refuses."""
    seed: int | None = None
    """Seed of the draws, None for imported data."""
    digest: str
    """Digest of kind, purpose and splits: of content, never of names or dates."""
    splits: dict[str, SplitEntry]
    sources: dict[str, str] = Field(default_factory=dict)
    """Name of each input → its digest; the lineage that `hat data erase` follows."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """Small JSON facts (counts by arm, licences, generator versions)."""

    @property
    def count(self) -> int:
        """Lines over all splits."""
        return sum(split.count for split in self.splits.values())


class Trajectory(Record):
    """One training conversation (`hatstack.trajectory/1`): one segment of one session, in OpenAI chat format."""

    format: Literal["hatstack.trajectory/1"] = "hatstack.trajectory/1"
    id: str
    arm: str
    """`naive`: under the original harness; `hsa`: under a sampled state; any other arm by its own name."""
    item: str
    """Id of the item or conversation it answers."""
    scenario: str = ""
    source: str
    """Who acted: `expert`, `import`, or the name of a teacher model."""
    harness: str
    """Digest of the harness state that the agent saw."""
    operators: tuple[str, ...] = ()
    """Families of the rewrites that lead from the original harness to that state."""
    messages: tuple[dict[str, Any], ...]
    """OpenAI messages; `arguments` of calls are JSON strings, reasoning is `reasoning_content`."""
    tools: tuple[dict[str, Any], ...] = ()
    """OpenAI function definitions beside the prompt; empty where the harness lists tools inline."""
    score: float = 1.0
    """Mean of the four scores over the turns, or 1 for imported conversations."""
    size: int = Field(ge=0)
    """Budget units of the messages (`text_size`), so that arms can be given equal budgets without a tokenizer."""


def digest_file(path: Path) -> str:
    """`sha256:` digest of a file, read in pieces."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def digest_path(path: Path) -> str:
    """Digest of a file's bytes, of a dataset's manifest digest, or of a folder as {relative path: digest of file}."""
    if path.is_file():
        return digest_file(path)
    if (path / MANIFEST).is_file():
        return load_manifest(path).digest
    files = sorted(entry for entry in path.rglob("*") if entry.is_file())
    return digest_json({"format": 1, "parts": {f.relative_to(path).as_posix(): digest_file(f) for f in files}})


def digest_item(item: Item) -> str:
    """Digest of what an item asks (room and turns), whatever its id, split and seed: equal digests are equal items."""
    dumped = item.model_dump(mode="json")
    return digest_json(decimals({"scenario": dumped["scenario"], "room": dumped["room"], "turns": dumped["turns"]}))


def digest_tools(tools: Iterable[Mapping[str, Any]]) -> str:
    """Digest of function definitions, which are all the harness that an imported conversation shows."""
    return digest_json(decimals({"format": 1, "tools": list(tools)}))


def text_size(messages: Iterable[Mapping[str, Any]], tools: Iterable[Mapping[str, Any]] = ()) -> int:
    """Budget units of messages and tools: UTF-8 bytes over 4, a tokenizer-free stand-in for tokens, plus 4 each."""
    total = sum(4 + len(str(tool.get("function"))) // 4 for tool in tools)
    for message in messages:
        calls = [str(call["function"]) for call in message.get("tool_calls") or ()]
        texts = [str(message.get("content") or ""), str(message.get("reasoning_content") or ""), *calls]
        total += 4 + sum(len(text.encode()) for text in texts) // 4
    return total


def write_text(path: Path, text: str) -> None:
    """Write a file so that its final name only ever holds all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


class DatasetWriter:
    """Writes a dataset folder: lines go to a hidden sibling folder that takes the final name in `finish`.

    Use it as a context manager: leaving without `finish` removes everything that was written.
    """

    def __init__(self, folder: Path, *, kind: Kind, splits: Iterable[str]) -> None:
        self._folder = folder
        self._kind = kind
        self._work = folder.with_name(f".{folder.name}.part{os.getpid()}")
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._files: dict[str, IO[bytes]] = {}
        self._hashes: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        with contextlib.ExitStack() as stack:
            for split in splits:
                self._files[split] = stack.enter_context((self._work / f"{split}.jsonl").open("wb"))
                self._hashes[split] = hashlib.sha256()
                self._counts[split] = 0
            self._stack = stack.pop_all()

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
        shutil.rmtree(self._work, ignore_errors=True)

    def write(self, split: str, record: BaseModel | bytes) -> None:
        """Append one record (a model, or one line of JSON bytes without the line end) to a split."""
        line = (record if isinstance(record, bytes) else record.model_dump_json().encode()) + b"\n"
        self._files[split].write(line)
        self._hashes[split].update(line)
        self._counts[split] += 1

    def count(self, split: str) -> int:
        """Records written to `split` so far."""
        return self._counts[split]

    def finish(
        self,
        *,
        name: str,
        purpose: Purpose | None,
        seed: int | None = None,
        sources: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Write the manifest and give the folder its final name; an earlier folder of that name is replaced."""
        self._stack.close()
        splits = {
            split: SplitEntry(
                file=f"{split}.jsonl", count=self._counts[split], digest="sha256:" + self._hashes[split].hexdigest()
            )
            for split in self._files
        }
        manifest = Dataset(
            name=name,
            kind=self._kind,
            purpose=purpose,
            seed=seed,
            digest=_content_digest(self._kind, purpose, splits),
            splits=splits,
            sources=dict(sources or {}),
            facts=dict(facts or {}),
        )
        (self._work / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        old = self._folder.with_name(f".{self._folder.name}.old{os.getpid()}")
        if self._folder.exists():
            self._folder.replace(old)
        self._work.replace(self._folder)
        shutil.rmtree(old, ignore_errors=True)
        return manifest


def _content_digest(kind: Kind, purpose: Purpose | None, splits: Mapping[str, SplitEntry]) -> str:
    lines = {name: {"count": split.count, "digest": split.digest} for name, split in splits.items()}
    return digest_json({"format": 1, "kind": kind, "purpose": purpose, "splits": lines})


def load_manifest(folder: Path) -> Dataset:
    """Read a dataset's manifest; raises `InputError` when it is missing, unreadable or its own digest is wrong."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            "this is not a dataset folder: it has no dataset.json",
            place=str(folder),
            cure="give a folder that the simulate, augment or import step wrote",
        )
    try:
        manifest = Dataset.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"the manifest is broken: {where}: {first['msg']}", place=str(path), cure="make the dataset again"
        ) from error
    if manifest.digest != _content_digest(manifest.kind, manifest.purpose, manifest.splits):
        raise InputError(
            "the manifest was edited: its digest is not that of the splits it lists",
            place=str(path),
            cure="make the dataset again, or restore the manifest",
        )
    return manifest


def require(
    inputs: Mapping[str, Path], name: str, *, kind: Kind, purposes: Iterable[Purpose] | None = None
) -> tuple[Path, Dataset]:
    """The dataset folder given as input `name`, with its manifest.

    Raises `InputError` when it is missing, empty, of another kind, or its purpose is not one of `purposes`.
    """
    folder = require_path(inputs, name)
    manifest = load_manifest(folder)
    if manifest.kind != kind:
        raise InputError(
            f"input {name!r} holds {manifest.kind}, not {kind}", place=str(folder), cure=f"give a dataset of {kind}"
        )
    if purposes is not None and manifest.purpose not in (allowed := tuple(purposes)):
        raise InputError(
            f"input {name!r} is tagged for {manifest.purpose or 'nothing'}, this step takes {' or '.join(allowed)}",
            place=str(folder / MANIFEST),
            cure="import or draw the data again with the purpose it may be used for",
        )
    if expired(manifest):
        raise InputError(
            f"input {name!r} was to be kept until {manifest.facts[KEEP_UNTIL]}",
            place=str(folder / MANIFEST),
            cure="remove it with hat data erase --expired, and import newer data",
        )
    if manifest.count == 0:
        raise InputError(f"input {name!r} is empty", place=str(folder), cure="draw or import at least one record")
    return folder, manifest


def today() -> date:
    """The day that retention is judged by (UTC)."""
    return datetime.now(UTC).date()


def expired(manifest: Dataset) -> bool:
    """Whether a dataset is past the day until which it may be kept; one that says no day is kept."""
    until = manifest.facts.get(KEEP_UNTIL)
    return isinstance(until, str) and until < today().isoformat()


def kept_until(manifests: Iterable[Dataset]) -> dict[str, str]:
    """The fact that what is made of these datasets is kept no longer than they are; {} when none says a day."""
    days = [manifest.facts[KEEP_UNTIL] for manifest in manifests if KEEP_UNTIL in manifest.facts]
    return {KEEP_UNTIL: min(days)} if days else {}


def require_path(inputs: Mapping[str, Path], name: str) -> Path:
    """The path given as input `name`; raises `InputError` when it was not given or does not exist."""
    if name not in inputs:
        given = ", ".join(sorted(inputs)) or "none"
        raise InputError(f"input {name!r} was not given", place="inputs", cure=f"given inputs: {given}")
    path = Path(inputs[name])
    if not path.exists():
        raise InputError(
            f"input {name!r} does not exist", place=str(path), cure="check the path, or run the step that makes it"
        )
    return path


def read_lines(folder: Path, split: str | None = None) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line without its end) of one split, or of all in manifest order.

    Raises `InputError` at the end when count or digest differ from the manifest: whoever reads on to the end has read
    what the manifest names.
    """
    manifest = load_manifest(folder)
    if split is not None and split not in manifest.splits:
        raise InputError(
            f"there is no split {split!r}", place=str(folder), cure=f"splits: {', '.join(manifest.splits)}"
        )
    for name in manifest.splits if split is None else (split,):
        entry = manifest.splits[name]
        path = folder / entry.file
        if not path.is_file():
            raise InputError(f"the file of split {name!r} is missing", place=str(path), cure="make the dataset again")
        hasher, count = hashlib.sha256(), 0
        with path.open("rb") as stream:
            for count, line in enumerate(stream, start=1):
                hasher.update(line)
                yield count, line.rstrip(b"\n")
        if count != entry.count or "sha256:" + hasher.hexdigest() != entry.digest:
            raise InputError(
                f"the content of split {name!r} is not what the manifest's digest names",
                place=str(path),
                cure="the file was edited or cut off: make the dataset again",
            )


def read_records(folder: Path, model: type[R], split: str | None = None) -> Iterator[R]:
    """The records of a dataset, checked against manifest and schema."""
    for number, line in read_lines(folder, split):
        try:
            yield model.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "record"
            raise InputError(
                f"{where}: {first['msg']}", place=f"{folder}:{number}", cure="make the dataset again with this version"
            ) from error


def read_items(folder: Path, limit: int | None = None) -> list[Item]:
    """Items of a dataset, all of them checked, the first `limit` returned."""
    items = list(read_records(folder, Item))
    return items if limit is None else items[:limit]


def refuse_overlap(first: Mapping[str, Iterable[Item]]) -> None:
    """Raise `InputError` when two of the named collections share an item by content."""
    seen: dict[str, str] = {}
    for name, items in first.items():
        for digest in {digest_item(item) for item in items}:
            if digest in seen:
                raise InputError(
                    f"{seen[digest]} and {name} share an item ({digest[:19]}): scores on it would be meaningless",
                    place=name,
                    cure="draw the sets in one simulate step, which keeps them disjoint",
                )
            seen[digest] = name
