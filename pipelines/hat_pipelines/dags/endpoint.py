"""The evaluation of a served model: draw items, play them against an OpenAI-compatible endpoint, report.

simulate ─ evaluate ─ report

Called by its module name (`hat evaluate --endpoint`), since it is only ever run on this machine.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG; `arms` and `imported` are those of other pipelines and change nothing here."""
    return Dag(
        name="endpoint",
        description="play the suites of a profile against an endpoint, report",
        inputs=("harness",),
        steps=(
            Step(name="simulate", component="simulate", artifacts=("items_train", "items_dev", "items_test")),
            Step(
                name="evaluate",
                component="evaluate",
                needs={"items": "simulate.items_dev", "harness": "input.harness"},
                artifacts=("evaluation", "traces"),
                cache=False,
            ),
            Step(
                name="report",
                component="report",
                needs={"evaluation": "evaluate.evaluation", "items_dev": "simulate.items_dev"},
                artifacts=("report", "tables"),
                cache=False,
            ),
        ),
    )
