"""Tools of MCP servers: found, frozen into a harness, and compared with what the server says later.

    found = discover("http://127.0.0.1:8740/mcp")        # or ["python", "-m", "my_server"] over stdio
    harness = harness.model_copy(update={"tools": found.tools})
    changes = drift(harness.tools, discover(...))         # what the server has changed since

Always holds: discovery ends within its time limit, holds at most `MAX_TOOLS` definitions of `MAX_BYTES` in all, and
never calls a tool; a definition that no harness can hold is left out and named in `problems`, one whose name OpenAI
refuses gets another name under its own id; the same definitions give the same tools in the same order (by id). Policies
at the start of a session: `refuse` starts none against a server that changed; `warn` tells; `pin` goes on. In every
policy the model sees the frozen definitions, and its calls are checked against them. Not here: calling tools (the
gateway's toolbox), bindings.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from hat_harness.diff import Change, diff
from hat_harness.digest import part_digest
from hat_harness.errors import DigestError, Kind
from hat_harness.names import FILE_ID, fold
from hat_harness.schema_checks import schema_problems
from hat_harness.spec import NAME_PATTERN, Harness, Tool
from hat_registry import outbound
from hat_registry.errors import InvalidError, RegistryError

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger("hatstack.mcp")
MAX_TOOLS = 512
MAX_PAGES = 64
MAX_BYTES = 4 << 20
"""Characters of all definitions together, as JSON."""
TIMEOUT_S = 10.0
Policy = Literal["refuse", "warn", "pin"]
Server = str | Sequence[str]
"""Address of a streamable HTTP endpoint, or a command that speaks MCP over stdio."""
_NAME = re.compile(NAME_PATTERN)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class McpError(RegistryError):
    """An MCP server does not answer, answers nonsense, or offers more than is taken."""

    kind: Kind = "unavailable"


class DriftError(RegistryError):
    """A server's tools are not those that the harness froze, and the policy is to refuse; `changes` says what."""

    kind: Kind = "conflict"

    def __init__(self, place: str, changes: Sequence[Change]) -> None:
        told = "; ".join(map(str, changes[:5])) + (f"; and {len(changes) - 5} more" if len(changes) > 5 else "")
        cure = "take the new definitions into the harness, or set the policy to warn or pin"
        super().__init__(f"tools changed since they were frozen: {told}", place=place, cure=cure)
        self.changes = tuple(changes)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a server offers."""

    server: str
    tools: tuple[Tool, ...]
    """By id; the id is the server's own name wherever that can name a file."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Tool id → the server's own name, where they differ: calls must use the latter (`names` in bindings.yaml)."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Tool id → digest of its definition."""
    problems: tuple[str, ...] = ()
    """What was left out or changed, with the server's own name."""


def discover(
    server: Server,
    *,
    token: str = "",
    timeout_s: float = TIMEOUT_S,
    networks_allowed: Sequence[outbound.Network] | None = None,
) -> Discovery:
    """The tools of a server. McpError when it does not answer in time or not in MCP.

    `networks_allowed` says that the address is somebody else's: it must be public, or in one of these networks, else
    InvalidError and nothing is sent. None: the caller trusts the address, as a command line or bindings do.
    """
    return asyncio.run(discover_async(server, token=token, timeout_s=timeout_s, networks_allowed=networks_allowed))


async def discover_async(
    server: Server,
    *,
    token: str = "",
    timeout_s: float = TIMEOUT_S,
    networks_allowed: Sequence[outbound.Network] | None = None,
) -> Discovery:
    """The same inside an event loop."""
    if networks_allowed is not None:
        if not isinstance(server, str):
            raise InvalidError("a command is not taken from elsewhere", cure="give the address of an MCP server")
        await asyncio.to_thread(outbound.check, server, networks_allowed)
    place = server if isinstance(server, str) else " ".join(server)
    cure = "check the address or command, and that it speaks MCP"
    try:
        async with asyncio.timeout(timeout_s):
            found = await _listed(_transport(server, token))
    except TimeoutError:
        raise McpError(f"no list of tools within {timeout_s:g} s", place=place, cure=cure) from None
    except McpError as error:
        raise McpError(error.message, place=place, cure=error.cure) from None
    except Exception as error:  # the SDK raises groups of anything for a server that breaks
        raise McpError(f"does not answer in MCP ({_reason(error)})", place=place, cure=cure) from None
    return frozen(found, place)


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, McpError):
        return error.message
    text = " ".join(str(error).split())[:160]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _transport(server: Server, token: str) -> Any:
    if not isinstance(server, str):
        from mcp import StdioServerParameters

        if not server:
            raise McpError("an empty command", cure="give a command or an address")
        return StdioServerParameters(command=server[0], args=list(server[1:]))
    if not token:
        return server
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})
    return streamable_http_client(server, http_client=client)


async def _listed(transport: Any) -> list[dict[str, Any]]:
    """Every definition, as JSON data."""
    from mcp import Client

    async with Client(transport) as client:
        return await _pages(client)


async def _pages(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    size, cursor = 0, None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            data = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
            size += len(str(data))
            found.append(data)
            if len(found) > MAX_TOOLS or size > MAX_BYTES:
                limit = f"more than {MAX_TOOLS} tools or {MAX_BYTES >> 20} MiB of definitions"
                raise McpError(limit, cure="offer fewer tools")
        cursor = page.next_cursor
        if not cursor:
            return found
    raise McpError(f"more than {MAX_PAGES} pages of tools", cure="offer fewer tools")


# ---- freezing -------------------------------------------------------------------------------------------------


def frozen(definitions: Sequence[Mapping[str, Any]], server: str = "") -> Discovery:
    """MCP definitions (JSON data) as tools of a harness."""
    tools: dict[str, Tool] = {}
    names: dict[str, str] = {}
    digests: dict[str, str] = {}
    problems: list[str] = []
    seen: set[str] = set()
    taken: set[str] = set()
    for data in sorted(definitions, key=lambda one: str(one.get("name", ""))):
        own = str(data.get("name", ""))
        shown = own[:80] or "a tool without a name"
        identifier = own if FILE_ID.match(own) else _named(own, taken)
        if own in seen or not own or fold(identifier) in taken:
            problems.append(f"{shown}: left out, another tool has this name" if own else f"{shown}: left out")
            continue
        seen.add(own)
        tool = _tool(data, identifier, shown, problems)
        if tool is None:
            continue
        taken.add(fold(identifier))
        tools[identifier] = tool
        if identifier != own:
            names[identifier] = own
        digests[identifier] = part_digest(tool)
    called = _called(tools)
    for key, new in called.items():
        if new != names.get(key, key):
            problems.append(f"{names.get(key, key)[:80]}: the model calls it {new}")
    made = tuple(tools[key].model_copy(update={"name": called[key]}) for key in sorted(tools))
    return Discovery(server, made, names, digests, tuple(problems))


def _called(tools: Mapping[str, Tool]) -> dict[str, str]:
    """Id → the name that the model calls by: the id itself wherever OpenAI takes it. Those choose first."""
    taken = {key for key in tools if _NAME.match(key)}
    return {key: key if key in taken else _named(key, taken, add=True) for key in sorted(tools)}


def _named(own: str, taken: set[str], *, add: bool = False) -> str:
    """A name like `own` that OpenAI and files take, told apart by a hash of `own` where it must be."""
    text = re.sub(r"[^A-Za-z0-9_-]+", "_", own).strip("_") or "tool"
    text = text if _NAME.match(text[:64]) else f"_{text}"
    if len(text) > 64 or text in taken:
        text = f"{text[:55]}_{hashlib.sha256(own.encode(errors='replace')).hexdigest()[:8]}"
    if add:
        taken.add(text)
    return text


def _tool(data: Mapping[str, Any], identifier: str, shown: str, problems: list[str]) -> Tool | None:
    """The tool, or None with a problem."""
    schema, output = data.get("inputSchema", {"type": "object"}), data.get("outputSchema")
    wrong = schema_problems(schema)
    if wrong:
        problems.append(f"{shown}: left out, inputSchema: {wrong[0]}")
        return None
    if output is not None and (wrong := schema_problems(output)):
        problems.append(f"{shown}: outputSchema is passed over: {wrong[0]}")
        output = None
    hints = data.get("annotations") or {}
    try:
        tool = Tool(
            id=identifier,
            name="pending",
            title=_CONTROL.sub("", data.get("title") or ""),
            description=_CONTROL.sub("", data.get("description") or ""),
            parameters=schema,
            output=output,
            # MCP's own defaults: a tool that says nothing may have effects.
            read_only=bool(hints.get("readOnlyHint", False)),
            idempotent=bool(hints.get("idempotentHint", False)),
        )
        part_digest(tool)
    except (ValidationError, DigestError, TypeError) as error:
        reason = error.message if isinstance(error, DigestError) else "not a tool definition"
        problems.append(f"{shown}: left out, {reason}")
        return None
    return tool


# ---- drift ----------------------------------------------------------------------------------------------------

_OURS = ("name", "title", "timeout_s", "parameter_names", "adapters")
"""Fields that a harness may set as it likes; what the server says is in the others."""


def drift(known: Sequence[Tool], found: Discovery) -> tuple[Change, ...]:
    """What the server changed since `known` were frozen: added, removed, changed tools. Names for the model are ours.

    `known` are a harness's canonical tools; rewritten ones (renamed parameters, adapters) are compared by presence.
    """
    by_id = {tool.id: tool for tool in found.tools}
    after = []
    for tool in known:
        other = by_id.get(tool.id)
        if other is None:
            continue
        same = tool.parameter_names or tool.adapters
        after.append(tool if same else other.model_copy(update={name: getattr(tool, name) for name in _OURS}))
    ids = {tool.id for tool in known}
    after += [tool for tool in found.tools if tool.id not in ids]
    return diff(_stub(known), _stub(after))


def _stub(tools: Sequence[Tool]) -> Harness:
    return Harness(name="tools", sections=("tools",), tools=tuple(sorted(tools, key=lambda tool: tool.id)))


def admit(known: Sequence[Tool], found: Discovery, policy: Policy) -> tuple[Change, ...]:
    """At the start of a session: the drift that it goes on with. DriftError when the policy is to refuse any.

    A tool that the server added is drift that is told, but refused by no policy: the model never sees it.
    """
    changes = drift(known, found)
    ids = {tool.id for tool in known}
    told = [change for change in changes if change.kind != "added" or _of(change) in ids]
    if told and policy == "refuse":
        raise DriftError(found.server, told)
    if changes and policy == "warn":
        log.warning("tools of %s changed since they were frozen: %s", found.server, "; ".join(map(str, changes[:20])))
    return changes


def _of(change: Change) -> str:
    """The tool that a change is of."""
    return change.path.removeprefix("tool ").split(" / ")[0]
