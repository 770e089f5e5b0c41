"""A pipeline whose second step asks for a GPU and waits for a file."""

from __future__ import annotations

from hat_pipelines.dag import Dag, Resources, Step
from tests.pipelines.toys.pipelines import ADD, DRAW

HOLD = "tests.pipelines.toys.hold"


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """draw -> hold -> total."""
    return Dag(
        name="holding",
        description="waits for a file",
        inputs=("harness",),
        steps=(
            Step(name="draw", component=DRAW, artifacts=("numbers",)),
            Step(
                name="hold",
                component=HOLD,
                needs={"numbers": "draw.numbers"},
                artifacts=("model",),
                resources=Resources(gpus=1),
            ),
            Step(name="total", component=ADD, needs={"a": "draw.numbers", "b": "hold.model"}, artifacts=("sum",)),
        ),
    )
