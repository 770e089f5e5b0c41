"""Pipelines over the toy steps; a profile names one as `tests.pipelines.toys.pipelines`."""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step, When

DRAW, ADD, WAIT = (f"tests.pipelines.toys.{name}" for name in ("draw", "add", "wait"))


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """draw -> add for each arm -> total of all, if the first drew enough."""
    return Dag(
        name="toys",
        inputs=("harness",),
        steps=(
            Step(name="draw", component=DRAW, artifacts=("numbers",)),
            Step(
                name="add",
                component=ADD,
                needs={"numbers": "draw.numbers"},
                artifacts=("sum",),
                foreach=arms,
                retries=1,
            ),
            Step(
                name="total",
                component=ADD,
                needs={"sum": "add.sum", "curves": "draw.progress"},
                artifacts=("sum",),
                when=When(step="draw", metric="count", value=4),
            ),
        ),
    )
