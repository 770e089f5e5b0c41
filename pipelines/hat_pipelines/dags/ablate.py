"""The ablation: every stage of training added to the one before, on two pathways, and each policy on the same suites.

    base ─┬─ sft-naive ─┬─ opd-naive ─ rl-naive
          │             └─ cell-std-std, cell-std-aug
          └─ sft-hsa ───┬─ opd-hsa ─┬─ rl-hsa, hat
                        │           └─ distil-orig, distil-aug (teachers: rl-hsa, hat)
                        └─ cell-aug-std, cell-aug-aug
    evaluate (each policy)

`rl-*` play the original harness, `hat` drawn ones; `cell-<sft>-<rl>` leave general distillation out; `distil-*` are agentic
distillation from the policy of the same environment. Always holds: what makes a policy what it is (arm, harness states)
is fixed here; a profile gives sizes and rates. Not here: what the rows of a table are (hat_components.ablation).
"""

from __future__ import annotations

from typing import Any

from hat_components.ablation.policies import POLICIES
from hat_pipelines.dag import Dag, Step
from hat_pipelines.dags.train import TRAINER

HARNESS = "input.harness"
RL = {
    "rl-naive": ("opd-naive", "original"),
    "rl-hsa": ("opd-hsa", "original"),
    "hat": ("opd-hsa", "augmented"),
    "cell-std-std": ("sft-naive", "original"),
    "cell-std-aug": ("sft-naive", "augmented"),
    "cell-aug-std": ("sft-hsa", "original"),
    "cell-aug-aug": ("sft-hsa", "augmented"),
}
"""RL step → the policy that it begins with, and the harness states that it plays."""
DISTILLED = {"distil-orig": ("rl-hsa", "original"), "distil-aug": ("hat", "augmented")}
"""Agentic distillation → its teacher, and the harness states that the student plays."""


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG; `arms` and `imported` are those of other pipelines and change nothing here."""
    return Dag(
        name="ablate",
        description="measure what each stage of training adds, on two pathways",
        inputs=("harness",),
        steps=(
            Step(name="simulate", component="simulate", artifacts=("items_train", "items_dev", "items_test")),
            Step(
                name="augment",
                component="augment",
                needs={"harness": HARNESS, "items": "simulate.items_train"},
                artifacts=("trajectories",),
            ),
            _trained("base", "base", {"trajectories": "augment.trajectories"}),
            *(
                _trained(
                    f"sft-{arm}",
                    "sft",
                    {"base": "base.model", "trajectories": "augment.trajectories"},
                    {"arm": arm},
                )
                for arm in ("naive", "hsa")
            ),
            *(
                _trained(f"opd-{arm}", "opd", {"start": f"sft-{arm}.model", "teacher": "base.model"})
                for arm in ("naive", "hsa")
            ),
            *(
                _trained(name, "rl", {"start": f"{start}.model", "harness": HARNESS}, {"states": states})
                for name, (start, states) in RL.items()
            ),
            *(
                _trained(
                    name,
                    "opd",
                    {"start": "opd-hsa.model", "teacher": f"{teacher}.model", "harness": HARNESS},
                    {"play": {"states": states}, "trainer": "plain"},
                )
                for name, (teacher, states) in DISTILLED.items()
            ),
            Step(
                name="evaluate",
                component="evaluate",
                needs={"model": "{item}.model", "items": "simulate.items_test", "harness": HARNESS},
                artifacts=("evaluation",),
                foreach=tuple(POLICIES),
                resources=TRAINER,
            ),
        ),
    )


def _trained(name: str, component: str, needs: dict[str, str], config: dict[str, Any] | None = None) -> Step:
    return Step(
        name=name, component=component, needs=needs, config=config or {}, artifacts=("model",), resources=TRAINER
    )
