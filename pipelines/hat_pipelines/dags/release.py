"""The release pipeline: a model that stands plays sealed items; if it passes the gate, its release is proposed.

    simulate ─ test ─ gate ─ propose

The proposal goes to the registry with its evidence. Approval is a person's; the canary, and the way forward or back, is
the rollout's, which runs for as long as it takes and belongs to no pipeline.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step, When
from hat_pipelines.dags.train import CLOSE, TRAINER


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG; `arms` and `imported` are those of other pipelines and change nothing here."""
    return Dag(
        name="release",
        description="a model plays sealed items; if it passes the gate, its release is proposed to the registry",
        inputs=("harness", "model"),
        steps=(
            Step(name="simulate", component="simulate", artifacts=("items_test",)),
            Step(
                name="test",
                component="evaluate",
                needs={"model": "input.model", "items": "simulate.items_test", "harness": "input.harness"},
                artifacts=("evaluation", "traces"),
                resources=TRAINER,
            ),
            Step(name="gate", component="gate", needs={"evaluation": "test.evaluation"}, artifacts=("gate",)),
            Step(
                name="propose",
                component="release",
                needs={"model": "input.model", "harness": "input.harness", "evaluation": "test.evaluation"},
                artifacts=("proposal",),
                when=When(step="gate", metric="passed", value=1),
                retries=2,
                cache=False,
            ),
        ),
        on_exit=CLOSE,
    )
