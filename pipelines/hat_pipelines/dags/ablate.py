"""The ablation: every stage of training added to the one before, on two pathways, and each policy on the same suites.

    base ─┬─ sft-naive ─┬─ opd-naive ─ rl-naive
          │             └─ cell-std-std, cell-std-aug
          └─ sft-hsa ───┬─ opd-hsa ─┬─ rl-hsa, hat
                        │           └─ distil-orig, distil-aug (teachers: rl-hsa, hat)
                        └─ cell-aug-std, cell-aug-aug
    evaluate (each policy)

`rl-*` play the original harness, `hat` drawn ones; `cell-<sft>-<rl>` leave general distillation out; `distil-*` are agentic
distillation from the policy of the same environment. Config sections say which states are played (profile `ablate`). Not
here: what the rows of a table are (hat_components.ablation).
"""

from __future__ import annotations

from hat_components.ablation.policies import POLICIES
from hat_pipelines.dag import Dag, Step
from hat_pipelines.dags.train import TRAINER

HARNESS = "input.harness"
STARTS = {
    "rl-naive": "opd-naive",
    "rl-hsa": "opd-hsa",
    "hat": "opd-hsa",
    "cell-std-std": "sft-naive",
    "cell-std-aug": "sft-naive",
    "cell-aug-std": "sft-hsa",
    "cell-aug-aug": "sft-hsa",
}
"""RL step → the policy that it begins with."""
DISTILLED = {"distil-orig": "rl-hsa", "distil-aug": "hat"}
"""Agentic distillation → its teacher."""


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
                _trained(f"sft-{arm}", "sft", {"base": "base.model", "trajectories": "augment.trajectories"})
                for arm in ("naive", "hsa")
            ),
            *(
                _trained(f"opd-{arm}", "opd", {"start": f"sft-{arm}.model", "teacher": "base.model"})
                for arm in ("naive", "hsa")
            ),
            *(_trained(name, "rl", {"start": f"{start}.model", "harness": HARNESS}) for name, start in STARTS.items()),
            *(
                _trained(name, "opd", {"start": "opd-hsa.model", "teacher": f"{teacher}.model", "harness": HARNESS})
                for name, teacher in DISTILLED.items()
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


def _trained(name: str, component: str, needs: dict[str, str]) -> Step:
    return Step(name=name, component=component, needs=needs, artifacts=("model",), resources=TRAINER)
