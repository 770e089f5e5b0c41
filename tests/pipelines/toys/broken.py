"""A pipeline whose steps need each other in a circle."""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step
from tests.pipelines.toys.pipelines import ADD


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """one -> two -> one."""
    one = Step(name="one", component=ADD, needs={"a": "two.sum"}, artifacts=("sum",))
    two = Step(name="two", component=ADD, needs={"a": "one.sum"}, artifacts=("sum",))
    return Dag(name="broken", inputs=("harness",), steps=(one, two))
