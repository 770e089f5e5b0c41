"""The release pipeline: a model that stands plays sealed items; if it passes the gate, its release is proposed and rolled out.

    simulate ─ test ─ gate ─ propose ─ canary

The proposal goes to the registry with its evidence. Approval is a person's; the canary step waits for it where it is told
to, starts the rollout, and waits until it is promoted or taken back. Weights, gates and the way back are the rollout's.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Step, When
from hat_pipelines.dags.train import CLOSE, TRAINER


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG; `arms` and `imported` are those of other pipelines and change nothing here."""
    return Dag(
        name="release",
        description="a model plays sealed items; if it passes the gate, its release is proposed and rolled out as a canary",
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
            Step(
                name="canary",
                component="canary",
                needs={"proposal": "propose.proposal"},
                artifacts=("canary",),
                retries=2,
                cache=False,
            ),
        ),
        on_exit=CLOSE,
    )
