"""A pipeline whose second step never ends."""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step
from tests.pipelines.toys.pipelines import DRAW, WAIT


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """draw -> wait."""
    return Dag(
        name="waiting",
        inputs=("harness",),
        steps=(
            Step(name="draw", component=DRAW, artifacts=("numbers",)),
            Step(name="wait", component=WAIT, needs={"numbers": "draw.numbers"}, artifacts=("nothing",)),
        ),
    )
