"""`hat compare A B`: two evaluations of the same items, suite by suite, in figures and words."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hatstack import paths
from hatstack.cli.failure import InputError, UsageError
from hatstack.cli.output import Output, RunsDir, emit, table

Side = Annotated[
    str,
    typer.Argument(help="evaluation.json, the folder that holds it, a run, or RUN/STEP for one evaluation of a run."),
]
HEADS = ("contrast", "n", "A", "B", "difference", "95 % interval", "p, Holm", "says")


class Across(StrEnum):
    """What may differ between the two."""

    MODEL = "model"
    HARNESS = "harness"


def add(app: typer.Typer) -> None:
    """Give the application its command."""
    app.command("compare")(compare)


def compare(
    a: Side,
    b: Side,
    suite: Annotated[list[str] | None, typer.Option("--suite", help="Suite to compare; may be repeated.")] = None,
    across: Annotated[
        Across, typer.Option("--across", help="What may differ: the model under one harness, or the harness.")
    ] = Across.MODEL,
    families: Annotated[
        bool, typer.Option("--families", help="Compare each suite by rewrite family too; all p are Holm-adjusted.")
    ] = False,
    margin: Annotated[
        float | None,
        typer.Option("--margin", min=0.0, max=100.0, help="Points within which the two count as equivalent."),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", min=100, help="Draws of the paired bootstrap.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the draws.")] = 1,
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Compare two evaluations item by item: intervals, adjusted p, and a verdict in words."""
    from hat_components.evaluate.compare import compare as contrasts
    from hat_components.evaluate.compare import names
    from hat_components.evaluate.compare_read import read_lean

    root = paths.runs_dir(runs_dir)
    left, right = (read_lean(evaluation_file(one, root)) for one in (a, b))
    found = contrasts(
        left, right,
        suites=suite or (), across=across.value, families=families,
        margin=None if margin is None else margin / 100, draws=draws, seed=seed,
    )  # fmt: skip
    called = names(left, right)
    rows = [
        (row.label, row.n, f"{100 * row.a:.1f}", f"{100 * row.b:.1f}", f"{100 * row.delta:+.1f}",
         f"[{100 * row.low:+.1f}, {100 * row.high:+.1f}]", f"{row.p:.3g}", row.kind.replace("_", " "))
        for row in found
    ]  # fmt: skip
    emit(
        {"a": called[0], "b": called[1], "across": across.value, "contrasts": [asdict(row) for row in found]},
        lambda: "\n".join(
            [
                f"A {called[0]}, B {called[1]}; percent, differences in points, paired over items",
                "",
                table(HEADS, rows),
                "",
                *(f"{row.label.split(':')[0]}: {row.text}" for row in found if not row.family),
            ]
        ),
    )


def evaluation_file(name: str, root: Path) -> Path:
    """The evaluation that a path, a run or `RUN/STEP` names; a run's test evaluation goes before its others."""
    path = Path(name)
    if path.exists() and (path.is_file() or (path / "evaluation.json").is_file()):
        return path
    run = path if (path / "steps").is_dir() else root / name
    if (run / "steps").is_dir():
        found = {file.parts[-3]: file for file in sorted(run.glob("steps/*/artifacts/evaluation.json"))}
        tests = [step for step in found if step.startswith("test")] or list(found)
        if len(tests) == 1:
            return found[tests[0]]
        if not tests:
            raise InputError("this run has no evaluation", place=name, cure="hat evaluate")
        shown = ", ".join(f"{name}/{step}" for step in tests)
        raise UsageError("this run has several evaluations", place=name, cure=f"one of: {shown}")
    step = root / path.parent / "steps" / path.name / "artifacts" / "evaluation.json"
    if step.is_file():
        return step
    raise InputError("there is no such evaluation", place=name, cure="a file, a folder, a run, or RUN/STEP")
