"""The evaluation pipeline: draw items, play them with a model that stands already, report.

simulate ─ evaluate ─ report
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step
from hat_pipelines.dags.train import TRAINER


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG; `arms` and `imported` are those of other pipelines and change nothing here."""
    return Dag(
        name="evaluate",
        description="play the suites of a profile with one model folder, report",
        inputs=("harness", "model"),
        steps=(
            Step(name="simulate", component="simulate", artifacts=("items_train", "items_dev", "items_test")),
            Step(
                name="evaluate",
                component="evaluate",
                needs={"model": "input.model", "items": "simulate.items_dev", "harness": "input.harness"},
                artifacts=("evaluation", "traces"),
                resources=TRAINER,
            ),
            Step(
                name="report",
                component="report",
                needs={
                    "evaluation": "evaluate.evaluation",
                    "traces": "evaluate.traces",
                    "items_dev": "simulate.items_dev",
                },
                artifacts=("report", "tables"),
                cache=False,
            ),
        ),
    )
