"""The judging pipeline: sessions that an evaluation kept are judged, again or for the first time.

judge

The evaluation and its sessions come from an earlier run; which judge asks whom stands in the profile's section `judge`.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG; `arms` and `imported` are those of other pipelines and change nothing here."""
    return Dag(
        name="judge",
        description="judge the sessions that an evaluation kept",
        inputs=("evaluation", "traces"),
        steps=(
            Step(
                name="judge",
                component="judge",
                needs={"evaluation": "input.evaluation", "traces": "input.traces"},
                artifacts=("judged", "judgements"),
            ),
        ),
    )
