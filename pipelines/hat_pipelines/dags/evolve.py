"""The evolution pipeline: draw items, measure an edit of a harness with one model, keep the better one.

    simulate ─ evolve

It brings the edit as `candidate`; several edits, or a model that writes them, are `hat evolve`'s. Not here: promotion.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step
from hat_pipelines.dags.train import TRAINER


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG; `arms` and `imported` are those of other pipelines and change nothing here."""
    return Dag(
        name="evolve",
        description="measure an edit of a harness with one model, keep the better one, check it once on other items",
        inputs=("harness", "model", "candidate"),
        steps=(
            Step(name="simulate", component="simulate", artifacts=("items_evolve", "items_test")),
            Step(
                name="evolve",
                component="evolve",
                needs={
                    "harness": "input.harness",
                    "candidate-edit": "input.candidate",
                    "model": "input.model",
                    "items": "simulate.items_evolve",
                    "held_out": "simulate.items_test",
                },
                artifacts=("evolution", "selected", "traces"),
                resources=TRAINER,
            ),
        ),
    )
