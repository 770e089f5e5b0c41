"""The training pipeline: draw data, augment the harness, train a base and one model for each arm, evaluate, register.

    simulate ─ augment ─ base ─ sft (arm) ─ [opd ─ rl ─ mtp] ─┬─ evaluate (arm) ─ register ─ report
                                                              └─ test (arm) ──────────────────┘

Arms are compared and registered by dev items and seeds; `test` plays the sealed ones, for the table that is published,
and nothing is chosen by it. With a data file, `import` stands in for the conversations of the scripted expert. What
stands in brackets are branches that a profile switches on (`branches: [opd, rl, mtp]`), each over the arms; every one
goes on from the model before it. `collect` lets a teacher play the training items, and sft learns from that; `release`
proposes the registered arm to the registry. However a run ends, what it left open in MLflow is closed.
"""

from __future__ import annotations

from hat_pipelines.dag import Dag, Resources, Step, suggest
from hat_pipelines.errors import DagError

TRAINER = Resources(cpu=2, memory_gib=8)
STAGES = ("opd", "rl", "mtp")
"""Stages after sft, in the order in which they run."""
BRANCHES = (*STAGES, "collect", "release")
"""What a profile may switch on: stages; conversations of a teacher in place of the expert's; a proposal at the end."""
CLOSE = Step(name="close", component="close", artifacts=("closed",), cache=False, time_limit_s=120.0)
"""Exit handler of every pipeline that writes to MLflow."""


def build(arms: tuple[str, ...], *, imported: bool = False, branches: tuple[str, ...] = ()) -> Dag:
    """The DAG for `arms`; `imported`: conversations come from the input `data` instead of the scripted expert."""
    for name in branches:
        if name not in BRANCHES:
            raise DagError(f"pipeline train has no branch {name!r}", place="branches", cure=suggest(name, BRANCHES))
    stages = [name for name in STAGES if name in branches]
    taught = "collect.trajectories" if "collect" in branches else "augment.trajectories"
    last = stages[-1] if stages else "sft"
    steps = (
        Step(name="simulate", component="simulate", artifacts=("items_train", "items_dev", "items_test")),
        *((_import(),) if imported else ()),
        Step(
            name="augment",
            component="augment",
            needs={"harness": "input.harness", **_conversations(imported)},
            artifacts=("trajectories",),
        ),
        *((_collect(arms),) if "collect" in branches else ()),
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
            needs={"base": "base.model", "trajectories": taught},
            artifacts=("model",),
            foreach=arms,
            resources=TRAINER,
        ),
        *(_stage(name, before, arms) for name, before in zip(stages, ["sft", *stages], strict=False)),
        _evaluate("evaluate", "items_dev", arms, imported, last),
        _evaluate("test", "items_test", arms, imported, last),
        Step(
            name="register",
            component="register",
            needs={"model": f"{last}.model", "evaluation": "evaluate.evaluation", "curves": f"{last}.progress"},
            artifacts=("registration",),
            retries=2,
            cache=False,
        ),
        *((_propose(last),) if "release" in branches else ()),
        Step(
            name="report", component="report", needs=_shown(imported, last), artifacts=("report", "tables"), cache=False
        ),
    )
    return Dag(
        name="train",
        description="train a base and one model for each arm, evaluate, register the better one, report",
        inputs=("harness", *(("data",) if imported else ())),
        steps=steps,
        on_exit=CLOSE,
    )


def _collect(arms: tuple[str, ...]) -> Step:
    """A teacher's conversations for each arm; the arm's section says under which harness states it plays."""
    return Step(
        name="collect",
        component="collect",
        needs={"items": "simulate.items_train", "harness": "input.harness"},
        artifacts=("trajectories",),
        foreach=arms,
        retries=2,
    )


def _propose(last: str) -> Step:
    """The proposal of the registered arm, with what it scored on sealed seeds."""
    return Step(
        name="propose",
        component="release",
        needs={
            "model": f"{last}.model",
            "evaluation": "test.evaluation",
            "registration": "register.registration",
            "harness": "input.harness",
        },
        artifacts=("proposal",),
        retries=2,
        cache=False,
    )


def _stage(name: str, before: str, arms: tuple[str, ...]) -> Step:
    """One stage after sft, which goes on from the model of the stage before it."""
    teacher = {"teacher": "base.model"} if name == "opd" else {}
    return Step(
        name=name,
        component=name,
        needs={"start": f"{before}.model", **teacher, "harness": "input.harness"},
        artifacts=("model",),
        foreach=arms,
        resources=TRAINER,
    )


def _import() -> Step:
    return Step(
        name="import", component="import", needs={"conversations": "input.data"}, artifacts=("held_in", "held_out")
    )


def _conversations(imported: bool) -> dict[str, str]:
    return {"conversations": "import.held_in"} if imported else {"items": "simulate.items_train"}


def _evaluate(name: str, items: str, arms: tuple[str, ...], imported: bool, last: str) -> Step:
    return Step(
        name=name,
        component="evaluate",
        needs={
            "model": f"{last}.model",
            "items": f"simulate.{items}",
            "harness": "input.harness",
            **({"held_out": "import.held_out"} if imported else {}),
        },
        artifacts=("evaluation", "traces"),
        foreach=arms,
        resources=TRAINER,
    )


def _shown(imported: bool, last: str) -> dict[str, str]:
    """What the report is made of."""
    shown = {
        "evaluation": "test.evaluation",
        "traces": "test.traces",
        "curves": f"{last}.progress",
        "registration": "register.registration",
        "items_train": "simulate.items_train",
        "items_test": "simulate.items_test",
        "trajectories": "augment.trajectories",
    }
    return {**shown, **({"held_in": "import.held_in", "held_out": "import.held_out"} if imported else {})}
