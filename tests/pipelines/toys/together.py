"""A pipeline whose last step trains one model in two processes."""

from __future__ import annotations

from hat_pipelines.dag import Dag, Resources, Step


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """simulate -> augment -> base (two processes)."""
    return Dag(
        name="together",
        description="trains a base in two processes",
        inputs=("harness",),
        steps=(
            Step(name="simulate", component="simulate", artifacts=("items_train", "items_dev", "items_test")),
            Step(
                name="augment",
                component="augment",
                needs={"harness": "input.harness", "items": "simulate.items_train"},
                artifacts=("trajectories",),
            ),
            Step(
                name="base",
                component="base",
                needs={"trajectories": "augment.trajectories"},
                artifacts=("model",),
                resources=Resources(memory_gib=4),
                processes=2,
            ),
        ),
    )
