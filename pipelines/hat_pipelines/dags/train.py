"""The training pipeline: draw data, augment the harness, train a base and one model for each arm, evaluate, register.

    simulate ─ augment ─ base ─ sft (arm) ─┬─ evaluate (arm) ─ register ─ report
                                           └─ test (arm) ──────────────────┘

Arms are compared and registered by dev items and seeds; `test` plays the sealed ones, for the table that is published,
and nothing is chosen by it. With a data file, `import` stands in for the conversations of the scripted expert.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Resources, Step

TRAINER = Resources(cpu=2, memory_gib=8)


def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
    """The DAG for `arms`; `imported`: conversations come from the input `data` instead of the scripted expert."""
    steps = (
        Step(name="simulate", component="simulate", artifacts=("items_train", "items_dev", "items_test")),
        *((_import(),) if imported else ()),
        Step(
            name="augment",
            component="augment",
            needs={"harness": "input.harness", **_conversations(imported)},
            artifacts=("trajectories",),
        ),
        Step(
            name="base",
            component="base",
            needs={"trajectories": "augment.trajectories"},
            artifacts=("model",),
            resources=TRAINER,
        ),
        Step(
            name="sft",
            component="sft",
            needs={"base": "base.model", "trajectories": "augment.trajectories"},
            artifacts=("model",),
            foreach=arms,
            resources=TRAINER,
        ),
        _evaluate("evaluate", "items_dev", arms, imported),
        _evaluate("test", "items_test", arms, imported),
        Step(
            name="register",
            component="register",
            needs={"model": "sft.model", "evaluation": "evaluate.evaluation", "curves": "sft.progress"},
            artifacts=("registration",),
            retries=2,
            cache=False,
        ),
        Step(name="report", component="report", needs=_shown(imported), artifacts=("report", "tables"), cache=False),
    )
    return Dag(
        name="train",
        description="train a base and one model for each arm, evaluate, register the better one, report",
        inputs=("harness", *(("data",) if imported else ())),
        steps=steps,
    )


def _import() -> Step:
    return Step(
        name="import", component="import", needs={"conversations": "input.data"}, artifacts=("held_in", "held_out")
    )


def _conversations(imported: bool) -> dict[str, str]:
    return {"conversations": "import.held_in"} if imported else {"items": "simulate.items_train"}


def _evaluate(name: str, items: str, arms: tuple[str, ...], imported: bool) -> Step:
    return Step(
        name=name,
        component="evaluate",
        needs={
            "model": "sft.model",
            "items": f"simulate.{items}",
            "harness": "input.harness",
            **({"held_out": "import.held_out"} if imported else {}),
        },
        artifacts=("evaluation", "traces"),
        foreach=arms,
        resources=TRAINER,
    )


def _shown(imported: bool) -> dict[str, str]:
    """What the report is made of."""
    shown = {
        "evaluation": "test.evaluation",
        "traces": "test.traces",
        "curves": "sft.progress",
        "registration": "register.registration",
        "items_train": "simulate.items_train",
        "items_test": "simulate.items_test",
        "trajectories": "augment.trajectories",
    }
    return {**shown, **({"held_in": "import.held_in", "held_out": "import.held_out"} if imported else {})}
