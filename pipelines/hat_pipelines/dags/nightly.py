"""The nightly pipeline: the model in production plays fresh items; a score below its bound is an alarm.

    simulate ─ evaluate (seed) ─ watch (seed)

Fresh means: every run draws items of its own, also a scheduled one; with `seeds` it plays those of the seeds. The run
goes red when a bound is broken, and the exit handler closes what it left open in MLflow.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step
from hat_pipelines.dags.train import CLOSE, TRAINER


def build(arms: tuple[str, ...], *, imported: bool = False, seeds: tuple[int, ...] = ()) -> Dag:
    """The DAG; with `seeds` items and states are drawn and played once for each."""
    items = tuple(str(seed) for seed in seeds)
    return Dag(
        name="nightly",
        description="the model in production on fresh items; a score below its bound is an alarm",
        inputs=("harness", "model"),
        steps=(
            Step(
                name="simulate",
                component="simulate",
                artifacts=("items_dev",),
                config={} if items else {"fresh": True},
                foreach=items,
                cache=bool(items),
            ),
            Step(
                name="evaluate",
                component="evaluate",
                needs={"model": "input.model", "items": "simulate.items_dev", "harness": "input.harness"},
                artifacts=("evaluation", "traces"),
                foreach=items,
                resources=TRAINER,
            ),
            Step(
                name="watch",
                component="gate",
                needs={"evaluation": "evaluate.evaluation"},
                artifacts=("gate",),
                foreach=items,
                cache=False,
            ),
        ),
        on_exit=CLOSE,
    )
