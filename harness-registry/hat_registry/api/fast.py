"""The one read that every client repeats, without the framework's work around it: where a pointer stands.

Always holds: same rights, same body, same headers as the described route behind it (a test compares them); one
connection, two statements, both built once. Not here: anything else.
"""

from __future__ import annotations

import json

from sqlalchemy import bindparam, select
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hat_registry import pointers
from hat_registry.api.access import identify
from hat_registry.registry import Registry
from hat_registry.store.tables import pointer as table

_STANDS = select(
    table.c.kind, table.c.name, table.c.pointer, table.c.digest, table.c.revision, table.c.urgent, table.c.moved_by,
    table.c.moved_at,
).where(
    table.c.workspace == bindparam("workspace"),
    table.c.kind == "harness",
    table.c.name == bindparam("name"),
    table.c.pointer == bindparam("pointer"),
)  # fmt: skip


async def pointer(request: Request) -> Response:
    """`GET /harnesses/{name}/pointers/{pointer}`. ETag is the revision."""
    name, which = request.path_params["name"], request.path_params["pointer"]
    registry: Registry = request.app.state.registry
    with registry.database.read() as tx:
        actor = identify(request, tx)
        actor.require("read", name)
        row = tx.execute(_STANDS, {"workspace": actor.workspace, "name": name, "pointer": which}).first()
        if row is None:
            pointers.resolve(tx, actor.workspace, "harness", name, which)  # raises the error that says what to do
    stands = dict(row._mapping)  # type: ignore[union-attr]  # resolve has raised where there is none
    tag = f'"{stands["revision"]}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    content = json.dumps({**stands, "urgent": bool(stands["urgent"])}, ensure_ascii=False, separators=(",", ":"))
    return Response(content.encode(), media_type="application/json", headers={"ETag": tag})


def routes(prefix: str) -> list[BaseRoute]:
    """The routes, to be put before the described ones."""
    return [Route(f"{prefix}/harnesses/{{name}}/pointers/{{pointer}}", pointer, methods=["GET"])]
