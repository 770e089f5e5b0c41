"""`hat judge calibrate|show`: how far a judge agrees with labels, and how that went from revision to revision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.compare import evaluation_file
from hatstack.cli.failure import ConflictError
from hatstack.cli.output import DryRun, Output, RunsDir, emit, say, table

if TYPE_CHECKING:
    from hat_components.judge.calibration import JudgeCalibration

app = typer.Typer(no_args_is_help=True, help="Judges and their calibration.")
JudgeName = Annotated[str, typer.Option("--judge", help="A built-in judge, or the folder of one.")]
HEADS = ("criterion", "n", "agreement", "kappa", "95 % interval", "missing", "disputed")


@app.command("calibrate")
def calibrate(
    evaluation: Annotated[str, typer.Argument(help="Evaluation whose sessions are judged: file, folder, run.")],
    judge: JudgeName = "live-commerce",
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Labels of people (JSONL); without, the simulation's own truth.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option("--history", help="history.jsonl of earlier calibrations, to compare with and go on.")
    ] = None,
    suite: Annotated[str, typer.Option("--suite", help="Suite whose sessions are judged.")] = "t1",
    subjects: Annotated[
        int | None, typer.Option("--subjects", min=1, help="Turns to judge, the first in order.")
    ] = None,
    endpoint: Annotated[str, typer.Option("--endpoint", help="Base URL for endpoint members, up to /v1.")] = "",
    endpoint_model: Annotated[str, typer.Option("--endpoint-model", help="Model name at that endpoint.")] = "",
    cost: Annotated[float | None, typer.Option("--cost", min=0.0, help="Most that the run may cost.")] = None,
    target: Annotated[
        Path | None, typer.Option("--to", help="Folder for the result; it must not exist.", show_default="in the runs")
    ] = None,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Hold a judge against labels: agreement, kappa, errors by class, drift since the last calibration."""
    from hat_components.judge.calibration import JudgeCalibration
    from hat_components.judge.config import Config
    from hat_components.judge.spec import load_judge
    from hat_components.judge.step import run
    from hat_components.runner import FileProgress

    root = paths.runs_dir(runs_dir)
    file = evaluation_file(evaluation, root)
    spec = load_judge(judge)
    out = target or paths.fresh(root, f"judge-{spec.name}-r{spec.revision}")
    if out.exists():
        raise ConflictError("it exists already", place=str(out), cure="choose another folder")
    fields = {"judge": judge, "suite": suite, "subjects": subjects, "endpoint": endpoint, "cost": cost or None}
    config = Config.model_validate({**fields, "mode": "calibrate", "endpoint_model": endpoint_model})
    given = {"evaluation": file, "labels": labels, "history": history, "judge": _folder(judge)}
    inputs = {name: path for name, path in given.items() if path is not None}
    if dry_run:
        shown = {name: str(path) for name, path in inputs.items()}
        emit({"judge": spec.digest, "inputs": shown, "folder": str(out), "changed": False}, f"would write {out}")
        return
    with FileProgress(out / "progress.jsonl", "judge") as progress:
        run(config, inputs, out, progress)
    made = JudgeCalibration.model_validate_json((out / "calibration.json").read_bytes())
    say(f"calibration in {out}")
    emit({"folder": str(out), **made.model_dump(mode="json")}, lambda: _told(made))


@app.command("show")
def show(
    judge: Annotated[str, typer.Argument(help="A built-in judge, or the folder of one.")] = "live-commerce",
    history: Annotated[
        Path | None, typer.Option("--history", help="history.jsonl whose agreement by revision is shown.")
    ] = None,
    output: Output = None,
) -> None:
    """Show a judge: rubric, members, voting, digest; with a history its agreement by revision."""
    from hat_components.judge.history import agreement_by_revision, read_history
    from hat_components.judge.spec import load_judge
    from hatstack.cli.failure import InputError

    spec = load_judge(judge)
    if history is not None and not history.is_file():
        raise InputError("there is no history", place=str(history), cure="hat judge calibrate writes history.jsonl")
    rows = agreement_by_revision(read_history(history)) if history else []
    data: dict[str, Any] = {"digest": spec.digest, **spec.model_dump(mode="json"), "history": rows}
    lines = [
        f"{spec.name} revision {spec.revision}  {spec.digest}",
        spec.note,
        *(f"  member  {member.name} ({member.type})" for member in spec.members),
        f"  voting  {spec.voting.rule}, quorum {spec.voting.quorum}",
        *(f"  check   {use.check}: {use.criterion} {use.label}" for use in spec.checks),
        "",
        table(
            ("criterion", "level", "score", "anchor"),
            [
                (one.name, level.label, level.score, level.anchor[:90])
                for one in spec.rubric.criteria
                for level in one.levels
            ],
        ),
    ]
    if rows:
        shown = [
            (f"{row['revision']} {str(row['judge'])[7:15]}", row["criterion"], row["n"], _percent(row["agreement"]),
             _decimal(row["kappa"]), str(row["note"] or "")[:60])
            for row in rows
        ]  # fmt: skip
        lines += ["", table(("revision", "criterion", "n", "agreement", "kappa", "note"), shown)]
    emit(data, "\n".join(line for line in lines))


def _folder(judge: str) -> Path | None:
    """The judge's folder where it is none of the built-in ones."""
    path = Path(judge)
    return path if (path / "judge.yaml").is_file() else None


def _told(made: JudgeCalibration) -> str:
    rows = [
        (name, sum(map(sum, one.confusion)), _percent(one.agreement), _decimal(one.kappa.value),
         f"[{one.kappa.low:.2f}, {one.kappa.high:.2f}]", sum(one.missing.values()), one.disputed)
        for name, one in made.criteria.items()
    ]  # fmt: skip
    undefined = [
        f"{name}: kappa is undefined, since every rating is the same"
        for name, one in made.criteria.items()
        if one.kappa.state == "one_class"
    ]
    return "\n".join(
        [f"{made.name} revision {made.revision} on {made.n} labelled turns", table(HEADS, rows), *undefined]
    )


def _percent(value: Any) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) else "-"


def _decimal(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "undefined"
