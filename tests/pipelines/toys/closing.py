"""A pipeline with an exit handler."""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step
from tests.pipelines.toys.pipelines import ADD, DRAW


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """draw -> add; whatever happens, close."""
    return Dag(
        name="closing",
        inputs=("harness",),
        steps=(
            Step(name="draw", component=DRAW, artifacts=("numbers",)),
            Step(name="add", component=ADD, needs={"numbers": "draw.numbers"}, artifacts=("sum",)),
        ),
        on_exit=Step(name="close", component=ADD, artifacts=("sum",), cache=False),
    )
