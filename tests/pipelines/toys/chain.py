"""Ten steps, one after the other, that do next to nothing."""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step
from tests.pipelines.toys.pipelines import ADD, DRAW

LENGTH = 10


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """draw -> add-1 -> … -> add-9."""
    steps = [Step(name="draw", component=DRAW, artifacts=("numbers",))]
    for number in range(1, LENGTH):
        need = "draw.numbers" if number == 1 else f"add-{number - 1}.sum"
        steps.append(Step(name=f"add-{number}", component=ADD, needs={"a": need}, artifacts=("sum",)))
    return Dag(name="chain", inputs=("harness",), steps=tuple(steps))
