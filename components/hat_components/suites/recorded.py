"""Suites of recorded turns: named datasets of conversations, which the suites `calls` of the evaluate step score.

Always holds: an item says for one turn which calls are right, recorded or written by whoever adds it; earlier turns stand in it
as plain exchanges. An item names nobody: texts are scrubbed as an import's, the viewer is the importer's pseudonym, so that
`hat data erase` finds it. A suite is for evaluation alone, and past the earliest day that its items were given it is refused.
It changes whole or not at all. Not here: whose turn may be taken (hat_console), scoring (evaluate).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hat_components.data import (
    KEEP_UNTIL,
    MANIFEST,
    Dataset,
    DatasetWriter,
    expired,
    load_manifest,
    read_records,
    today,
)
from hat_components.importer.conversation import Conversation, Reader
from hat_components.importer.scrub import Scrubber
from hat_components.importer.step import scrub_message
from hat_components.step import InputError
from hat_harness.events import Message
from hat_harness.export import openai_message
from hat_harness.trace import Trace

SPLIT = "held_out"
RECORDED = "recorded_suite"
"""Fact that tells a suite from other datasets."""


class Call(BaseModel):
    """A call that would be right, in the names that the model reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=128)
    arguments: dict[str, Any] = Field(default_factory=dict)


def item_of(
    trace: Trace,
    turn: int,
    *,
    ident: str,
    viewer: str = "",
    tools: Sequence[Mapping[str, Any]] = (),
    calls: Sequence[Call] | None = None,
) -> Conversation:
    """Turn `turn` of a trace as an item; raises InputError when it says nothing that could be scored.

    `calls` None: those that were made are the right ones. `tools`: definitions for a trace whose harness writes them into
    the prompt. `viewer` is a pseudonym of the importer, "" where nobody was a person.
    """
    before, own, beside = _parts(trace, turn)
    if calls is not None:
        own = [_wanted(calls)]
    elif not any(message.get("tool_calls") for message in own):
        cure = "say which calls would have been right"
        raise InputError("this turn made no call, and a suite of recorded turns scores calls", place="calls", cure=cure)
    raw = {"messages": [*before, *own], "tools": [dict(tool) for tool in beside or tools]}
    read, problems = Reader().parse(json.dumps(raw, ensure_ascii=False).encode(errors="replace"))
    if problems:
        raise InputError(
            f"the turn is no sound conversation: {problems[0]}", place=f"turn {turn}", cure="write the right calls"
        )
    scrubber = Scrubber()
    messages = tuple(scrub_message(message, scrubber) for message in read["messages"])
    return Conversation(id=f"{ident}#{turn}", viewer=viewer, messages=messages, tools=tuple(read["tools"]))


def made_calls(trace: Trace, turn: int) -> list[dict[str, Any]]:
    """The calls that a turn made, as `Call` has them; [] for none."""
    try:
        own = _parts(trace, turn)[1]
    except InputError:
        return []
    asked = [call["function"] for message in own for call in message.get("tool_calls") or ()]
    return [{"name": one["name"], "arguments": json.loads(one["arguments"])} for one in asked]


def add(folder: Path, item: Conversation, *, keep_days: int) -> Dataset:
    """Put an item into the suite in `folder`, made at its first; an item of the same id is replaced.

    A suite that is past its day begins anew. InputError when the folder holds another kind of dataset.
    """
    with _alone(folder):
        known = _opened(folder)
        day = (today() + timedelta(days=keep_days)).isoformat()
        kept: list[Conversation] = []
        if known is not None and not expired(known):
            day = min(day, str(known.facts[KEEP_UNTIL]))
            kept = [one for one in read_records(folder, Conversation) if one.id != item.id]
        return _written(folder, [*kept, item], day)


def remove(folder: Path, ident: str) -> Dataset | None:
    """Take an item out; None when it was the last one, and the suite is gone. InputError where there is no such item."""
    with _alone(folder):
        known = _opened(folder)
        items = list(read_records(folder, Conversation)) if known is not None else []
        kept = [one for one in items if one.id != ident]
        if known is None or len(kept) == len(items):
            raise InputError(f"the suite has no item {ident[:80]!r}", place=folder.name, cure="look at the suite")
        if kept:
            return _written(folder, kept, str(known.facts[KEEP_UNTIL]))
        aside = folder.with_name(f".gone-{folder.name}")
        folder.rename(aside)  # out of the way in one step, so that nobody reads half of it
        shutil.rmtree(aside)
        return None


def listing(root: Path) -> list[tuple[str, Dataset]]:
    """(name, manifest) of every suite below `root`, by name."""
    found = sorted(path.parent for path in root.glob(f"*/{MANIFEST}")) if root.is_dir() else []
    manifests = [(path.name, load_manifest(path)) for path in found if not path.name.startswith(".")]
    return [(name, manifest) for name, manifest in manifests if manifest.facts.get(RECORDED)]


def _parts(trace: Trace, turn: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], tuple[dict[str, Any], ...]]:
    """(what the model read before the turn, what the turn added, tools beside), as OpenAI messages."""
    asked: dict[int, list[tuple[int, int]]] = {}
    for entry in trace.entries:
        if entry.kind == "action" and entry.type == "CallModel":
            asked.setdefault(entry.turn, []).append((entry.data["segment"], entry.data["messages"]))
    segments = {one.index: one for one in trace.segments}
    if turn not in asked or asked[turn][-1][0] not in segments:
        raise InputError("the model was not asked in this turn, or its context is not kept", place=f"turn {turn}")
    index = asked[turn][-1][0]
    begin = next(seen for segment, seen in asked[turn] if segment == index)
    later = [seen for number in asked if number > turn for segment, seen in asked[number] if segment == index]
    own = list(segments[index].messages[begin : min(later, default=None)])
    while own and own[-1].role not in ("assistant", "tool"):
        own.pop()  # what the next turn was asked
    before = [one for message in segments[index].messages[:begin] if (one := _plain(message)) is not None]
    return before, [openai_message(message, reasoning=False) for message in own], segments[index].tools


def _plain(message: Message) -> dict[str, Any] | None:
    """A message of an earlier turn without its calls, so that only the turn itself is scored; None for what is left out."""
    if message.role == "tool" or (message.role == "assistant" and not message.content):
        return None
    return {"role": message.role, "content": message.content}


def _wanted(calls: Sequence[Call]) -> dict[str, Any]:
    if not calls:
        raise InputError("no call is given", place="calls", cure="a suite of recorded turns scores calls: give one")
    made = [
        {"id": f"call_{number}", "type": "function",
         "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}}
        for number, call in enumerate(calls)
    ]  # fmt: skip
    return {"role": "assistant", "content": "", "tool_calls": made}


def _opened(folder: Path) -> Dataset | None:
    """The suite's manifest, None where there is nothing yet."""
    if not folder.exists():
        return None
    manifest = load_manifest(folder)
    if not manifest.facts.get(RECORDED):
        raise InputError("this dataset is no suite of recorded turns", place=folder.name, cure="choose another name")
    return manifest


def _written(folder: Path, items: Sequence[Conversation], day: str) -> Dataset:
    with DatasetWriter(folder, kind="conversations", splits=[SPLIT]) as writer:
        for item in items:
            writer.write(SPLIT, item)
        facts = {KEEP_UNTIL: day, "scrubbed": True, "half": SPLIT, RECORDED: True}
        return writer.finish(name=folder.name, purpose="evaluation", facts=facts)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else changes suites beside this one meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
