"""A model by what is released: `@NAME/POINTER` among an order's inputs, as the artifact that the pointer leads to.

Always holds: the pointer is read when a run is ordered, so a schedule follows it from night to night, and the order that
is kept names run and step. A model is known by its digest alone. Not here: pointers (hat_registry), choices (catalogue).
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from hat_pipelines.desk.catalogue import UnknownNameError, made
from hat_pipelines.desk.order import Order
from hat_pipelines.runs import StepFolder
from hat_registry import pointers, releases
from hat_registry.store.database import Database
from hat_registry.store.tables import pointer

SIGN = "@"
MODEL = "model"


def names(database: Database, workspace: str) -> list[str]:
    """What may be written for a model: every pointer to a release, `@live/production`."""
    here = (pointer.c.workspace == workspace, pointer.c.kind == "release")
    with database.read() as tx:
        rows = tx.execute(select(pointer.c.name, pointer.c.pointer).where(*here)).all()
    return sorted(f"{SIGN}{row.name}/{row.pointer}" for row in rows)


def pinned(database: Database, workspace: str, order: Order, root: Path) -> Order:
    """The order with the artifact of a run in place of a pointer. NotFoundError or UnknownNameError says what is missing."""
    asked = order.inputs.get(MODEL, "")
    if not asked.startswith(SIGN):
        return order
    name, _, which = asked.removeprefix(SIGN).partition("/")
    with database.read() as tx:
        position = pointers.resolve(tx, workspace, "release", name, which)
        wanted = releases.get(tx, workspace, position.digest).model
    for choice in made(root, MODEL):
        run, _, artifact = choice.partition("/")
        result = StepFolder(root / run / "steps" / artifact.rpartition(".")[0]).read_result()
        if result is not None and result.digests.get(MODEL) == wanted:
            return order.model_copy(update={"inputs": {**order.inputs, MODEL: choice}})
    cure = "run it where the model was trained, or choose a model of a run here"
    raise UnknownNameError(f"no run here made the model of {asked[1:]}: {wanted}", place=MODEL, cure=cure)
