"""Tools that a client brings to a conversation, as OpenAI's clients do: read, joined to the harness's own, kept, named in calls.

Always holds: only a harness that says how many (`client_tools`) takes any; the joined harness is as valid as one that was
loaded, so that no name stands twice; calls of a client's tool are never made here, and never tried again by themselves, since
nobody here knows what they do. The id of such a call names its conversation, so that a client that keeps nothing but its
messages comes back to it. Not here: turns (host), bodies (chat).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
from pydantic import ValidationError
from sqlalchemy import Column, Connection, MetaData, String, Table, Text, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from hat_harness.digest import harness_digest
from hat_harness.errors import PlatformError
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.spec import Harness, Tool
from hat_harness.validate import validate
from hat_registry.store.database import Database
from hat_serving.errors import RequestError

metadata = MetaData()
table = Table(
    "conversation_tools",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("conversation", String(128), primary_key=True),
    Column("harness", String(71), primary_key=True),
    Column("base", String(71), nullable=False),
    Column("tools", Text, nullable=False),
)
"""`harness`: digest of the joined one, as turns name it; `base`: of the harness by itself; `tools`: the client's, as JSON."""
MOST_BYTES = 64 * 1024
WAIT_S = 120.0
"""Written into the tool; the client has as long as it likes, since the agent's clock stands still meanwhile."""
KEPT = 256
"""Joined harnesses in memory."""
_ID = re.compile(r"call_([0-9a-z]{24,25})_(.{1,512})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Brought:
    """A client's tools; `raw` is their JSON with sorted keys."""

    raw: bytes
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """A harness with a client's tools beside its own."""

    harness: Harness
    digest: str
    hooks: CompiledHooks
    theirs: frozenset[str]
    """Ids of the client's tools."""


def read(given: Any, *, flat: bool = False) -> Brought:
    """The field `tools` of a chat completion, or of a response where they are `flat`. RequestError names what cannot be taken."""
    if not isinstance(given, list) or not given:
        raise RequestError("needs a list of at least one tool", place="tools", cure="or leave the field out")
    if flat:
        given = [_nested(one) for one in given]
    raw = orjson.dumps(given, option=orjson.OPT_SORT_KEYS)
    if len(raw) > MOST_BYTES:
        raise RequestError(f"tools of more than {MOST_BYTES} bytes", place="tools")
    return _read(raw)


def _nested(given: Any) -> Any:
    """A tool as responses write it, as chat completions do."""
    if not isinstance(given, dict):
        return given
    return {"type": given.get("type"), "function": {name: value for name, value in given.items() if name != "type"}}


@lru_cache(KEPT)
def _read(raw: bytes) -> Brought:
    return Brought(raw, tuple(_tool(index, one) for index, one in enumerate(orjson.loads(raw))))


def _tool(index: int, given: Any) -> Tool:
    place = f"tools[{index}]"
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or given.get("type") != "function" or set(given) - {"type", "function"}:
        raise RequestError('a tool is {"type": "function", "function": {…}}', place=place)
    for name in function:
        if name not in ("name", "description", "parameters", "strict"):
            raise RequestError("this field is not honoured", place=f"{place}.function.{str(name)[:64]}")
    name = function.get("name")
    values = {
        "id": name,
        "name": name,
        "description": function.get("description") or name,
        "parameters": function.get("parameters") or {"type": "object", "properties": {}},
        "read_only": False,
        "idempotent": False,
        "timeout_s": WAIT_S,
    }
    try:
        return Tool.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(first["msg"], place=f"{place}.function.{first['loc'][0]}") from None


class Joins:
    """Joined harnesses by harness and tools, the last used ones kept."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, bytes], Joined] = OrderedDict()

    def of(self, harness: Harness, digest: str, brought: Brought) -> Joined:
        """`harness` with the tools. RequestError where it takes none, not as many, or not these."""
        key = (digest, brought.raw)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = _join(harness, brought)
            if len(self._made) > KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return found


def _join(harness: Harness, brought: Brought) -> Joined:
    most, count = harness.client_tools, len(brought.tools)
    if most == 0:
        raise RequestError("the release brings its own tools", place="tools", cure="leave the field out")
    if count > most:
        raise RequestError(f"the release takes {most} tools of a client, not {count}", place="tools")
    joined = harness.model_copy(update={"tools": (*harness.tools, *brought.tools)})
    try:
        known = {problem.message for problem in validate(harness)}
        problems = [problem for problem in validate(joined) if problem.message not in known]
        if problems:
            raise RequestError(problems[0].message, place="tools", cure=problems[0].cure)
        digest = harness_digest(joined)
        return Joined(joined, digest, compile_hooks(joined), frozenset(tool.id for tool in brought.tools))
    except RequestError:
        raise
    except PlatformError as error:  # what validation cannot see: a number that has no place in a digest
        raise RequestError(error.message, place="tools", cure=error.cure) from None


# ---- ids of calls ---------------------------------------------------------------------------------------------


def call_id(conversation: str, own: str) -> str:
    """The id under which a client gets a call of the session's own id."""
    return f"call_{conversation}_{own}"


def read_call_id(given: str, conversation: str) -> tuple[str, str] | None:
    """(conversation, the session's own id); None for an id that was not given out, or for another than `conversation`.

    "" takes the conversation from the id, where the gateway named it.
    """
    if conversation:
        own = given.removeprefix(call_id(conversation, ""))
        return (conversation, own) if own and own != given else None
    found = _ID.fullmatch(given)
    return (found[1], found[2]) if found else None


# ---- the store ------------------------------------------------------------------------------------------------


def keep(tx: Connection, workspace: str, conversation: str, base: str, joined: Joined, brought: Brought) -> None:
    """Write down what turns of a conversation were run under; once per joined harness."""
    told = postgresql.insert(table) if tx.dialect.name == "postgresql" else sqlite.insert(table)
    key = {"workspace": workspace, "conversation": conversation, "harness": joined.digest}
    tx.execute(told.values(**key, base=base, tools=brought.raw.decode()).on_conflict_do_nothing())


def forget(tx: Connection, workspace: str, conversation: str) -> None:
    """Delete a conversation's."""
    tx.execute(delete(table).where(table.c.workspace == workspace, table.c.conversation == conversation))


def played(
    database: Database,
    workspace: str,
    conversation: str,
    digests: Sequence[str],
    harness: Callable[[str], Harness],
) -> tuple[Mapping[str, Harness], Mapping[str, Brought]]:
    """(digest → harness, digest → the client's tools in it) of every digest that a conversation's turns name.

    `harness` gives a harness by digest. Blocking.
    """
    query = select(table.c.harness, table.c.base, table.c.tools)
    here = (table.c.workspace == workspace, table.c.conversation == conversation)
    with database.read() as tx:
        rows = {row.harness: row for row in tx.execute(query.where(*here))}
    found: dict[str, Harness] = {}
    brought: dict[str, Brought] = {}
    for digest in digests:
        row = rows.get(digest)
        if row is None:
            found[digest] = harness(digest)
            continue
        brought[digest] = _read(row.tools.encode())
        base = harness(row.base)
        found[digest] = base.model_copy(update={"tools": (*base.tools, *brought[digest].tools)})
    return found, brought
