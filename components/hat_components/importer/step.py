"""The import step: JSONL of conversations or MLflow traces → datasets `held_in` and `held_out`, streamed line by line.

Always holds: memory stays bounded by the longest line; either both datasets stand complete or neither is there; a raw
viewer id is in no output. Input `conversations`: a `.jsonl`, `.jsonl.gz` or `.json` file, or a folder of them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from hat_components.data import KEEP_UNTIL, Dataset, DatasetWriter, digest_path, require_path, today, write_text
from hat_components.importer.config import Config
from hat_components.importer.conversation import Conversation, Reader
from hat_components.importer.scrub import Scrubber, load_key, pseudonym
from hat_components.step import InputError, Progress, StepResult

HALVES = ("held_in", "held_out")
_TICK = 5000
_TRACE = re.compile(r"tr-[0-9a-f]{32}(-\d+)?\Z")
"""Ids of MLflow traces: random, so the digits in them are nobody's."""


class ConversationsError(InputError):
    """Lines that cannot be imported: `problems` are the first of them word for word, `total` counts all."""

    def __init__(self, place: str, problems: list[str], total: int, lines: int) -> None:
        counted = f"{lines} line{'s' * (lines != 1)} cannot be imported, for {total} problem{'s' * (total != 1)}"
        super().__init__(
            counted,
            place=place,
            cure="correct them, or leave them out (--skip-bad-lines, on_error: skip)",
        )
        self.problems = tuple(problems)
        self.total = total

    def __str__(self) -> str:
        rest = self.total - len(self.problems)
        return "\n".join(
            [super().__str__(), *(f"  {p}" for p in self.problems), *([f"  … and {rest} more"] if rest else [])]
        )


@dataclass
class _State:
    """What a run has seen so far."""

    config: Config
    reader: Reader = field(default_factory=Reader)
    key: bytes | None = None
    problems: list[str] = field(default_factory=list)
    total: int = 0
    bad_lines: int = 0
    lines: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def reject(self, place: str, problems: list[str]) -> None:
        """Count a bad line; keep its problems while there is room."""
        self.bad_lines += 1
        self.total += len(problems)
        room = self.config.max_problems - len(self.problems)
        self.problems.extend(f"{place}: {problem}" for problem in problems[:room])


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Validate, protect, split and write; raises `ConversationsError` with every problem when a line is bad."""
    source = require_path(inputs, "conversations")
    state = _State(config)
    with (
        DatasetWriter(out / "held_in", kind="conversations", splits=["held_in"]) as held_in,
        DatasetWriter(out / "held_out", kind="conversations", splits=["held_out"]) as held_out,
    ):
        writers = dict(zip(HALVES, (held_in, held_out), strict=True))
        for path in _files(source):
            _read_file(path, state, writers, progress)
        if state.bad_lines and config.on_error == "refuse":
            raise ConversationsError(str(source), state.problems, state.total, state.bad_lines)
        if not any(writer.count(half) for half, writer in writers.items()):
            raise InputError("there is no conversation to import", place=str(source), cure="give one per line")
        sources = {"conversations": digest_path(source)}
        manifests = {half: _finish(config, half, writer, sources, state) for half, writer in writers.items()}
    artifacts = {half: half for half in HALVES}
    for half in HALVES:
        progress.artifact(half, out / half)
    if state.bad_lines:
        artifacts["rejected"] = "rejected.jsonl"
        write_text(out / "rejected.jsonl", "".join(json.dumps({"problem": p}) + "\n" for p in state.problems))
        progress.warning(f"{state.bad_lines} lines were left out, see rejected.jsonl")
    return StepResult(
        artifacts=artifacts,
        digests={half: manifest.digest for half, manifest in manifests.items()},
        metrics={
            "conversations": float(sum(manifest.count for manifest in manifests.values())),
            "rejected_lines": float(state.bad_lines),
            **{f"scrubbed_{kind}": float(count) for kind, count in sorted(state.found.items())},
        },
        notes={"purpose": config.purpose, "halves": {half: m.count for half, m in manifests.items()}},
    )


def _finish(config: Config, half: str, writer: DatasetWriter, sources: dict[str, str], state: _State) -> Dataset:
    return writer.finish(
        name=f"{config.name}-{half.replace('_', '-')}",
        purpose=config.purpose,
        sources=sources,
        facts={
            KEEP_UNTIL: (today() + timedelta(days=config.keep_days)).isoformat(),
            "scrubbed": config.scrub,
            "half": half,
            "rejected_lines": state.bad_lines,
        },
    )


def _read_file(path: Path, state: _State, writers: Mapping[str, DatasetWriter], progress: Progress) -> None:
    for number, line in _lines(path, state.config.max_line_bytes):
        state.lines += 1
        place = f"{path.name}:{number}"
        if line is None:
            state.reject(place, [f"longer than {state.config.max_line_bytes} bytes"])
            continue
        if not line.strip():
            continue
        for record, problems in state.reader.read(line):
            if problems:
                state.reject(place, problems)
                continue
            conversation = _protect(record, line, state)
            # Traces of one session hold the same messages, so they stay on one side.
            half = half_of(str(record.get("session") or conversation.id), state.config.held_out)
            if not (state.bad_lines and state.config.on_error == "refuse"):
                writers[half].write(half, conversation)
        if state.lines % _TICK == 0:
            progress.progress(state.lines, 0, path.name)


def half_of(ident: str, held_out: float) -> str:
    """`held_out` for the share `held_out` of ids whose SHA-256 is lowest, else `held_in`."""
    position = int.from_bytes(hashlib.sha256(ident.encode()).digest()[:8], "big") / 2**64
    return "held_out" if position < held_out else "held_in"


def _protect(record: dict[str, Any], line: bytes, state: _State) -> Conversation:
    """The record without anything that tells who the viewer is."""
    config = state.config
    named = {str(record[f]) for f in config.viewer_fields if record.get(f) not in (None, "")}
    if named and state.key is None:
        state.key = load_key(config.key_file)
    aliases = {raw: pseudonym(state.key, raw) for raw in sorted(named)} if state.key is not None else {}
    scrubber = Scrubber(aliases)
    messages = [scrub_message(message, scrubber) if config.scrub else message for message in record["messages"]]
    state.found.update(scrubber.found)
    return Conversation(
        id=_ident(record.get("id"), line, scrubber, state.key),
        viewer=next(iter(aliases.values()), ""),
        messages=tuple(messages),
        tools=tuple(record["tools"]),
    )


def _ident(raw: Any, line: bytes, scrubber: Scrubber, key: bytes | None) -> str:
    """The conversation's own id where it names nobody, else a keyed one, else a hash of the line."""
    if isinstance(raw, str) and raw and (_TRACE.match(raw) or scrubber.text(raw) == raw):
        return raw
    if isinstance(raw, str) and raw and key is not None:
        return pseudonym(key, raw).replace("viewer_", "conversation_")
    own = raw.encode(errors="replace") if isinstance(raw, str) else b""
    return hashlib.sha256(line + own).hexdigest()[:24]


def scrub_message(message: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """A message with personal data replaced in texts, reasoning and arguments."""
    clean = {**message, "content": scrubber.text(message["content"])}
    if "reasoning_content" in message:
        clean["reasoning_content"] = scrubber.text(message["reasoning_content"])
    if "tool_calls" in message:
        clean["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _scrub_arguments(call, scrubber)}}
            for call in message["tool_calls"]
        ]
    return clean


def _scrub_arguments(call: dict[str, Any], scrubber: Scrubber) -> str:
    value = scrubber.value(json.loads(call["function"]["arguments"]))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    for endings in ((".jsonl", ".jsonl.gz"), (".json",)):
        files = sorted(path for path in source.rglob("*") if path.name.endswith(endings) and path.is_file())
        if files:
            return files
    raise InputError("the folder holds no .jsonl, .jsonl.gz or .json file", place=str(source), cure="check the path")


def _lines(path: Path, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """(line number, line) with None for a line longer than `limit`, which is skipped without being held.

    A `.json` file is one value, or a list whose values count as lines.
    """
    if path.suffix == ".json":
        yield from _values(path, limit)
        return
    stream: IO[bytes]
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:  # type: ignore[assignment]  # GzipFile is an IO[bytes] in all but name
        number = 0
        try:
            while line := stream.readline(limit + 1):
                number += 1
                if len(line) > limit and not line.endswith(b"\n"):
                    while (piece := stream.readline(limit)) and not piece.endswith(b"\n"):
                        pass
                    yield number, None
                    continue
                yield number, line.rstrip(b"\r\n")
        except (OSError, EOFError) as error:
            raise InputError(f"cannot be read: {error}", place=f"{path}:{number}", cure="check the file") from error


def _values(path: Path, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """The values of a `.json` file; it is read whole, so it may be as long as one line."""
    try:
        if path.stat().st_size > limit:
            yield 1, None
            return
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error}", place=str(path), cure="check the file") from error
    except (ValueError, RecursionError):
        yield 1, path.read_bytes()  # the reader says what is wrong with it
        return
    for number, one in enumerate(value if isinstance(value, list) else [value], start=1):
        yield number, json.dumps(one, ensure_ascii=False).encode(errors="surrogatepass")
