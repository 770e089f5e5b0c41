"""`hat evolve`: edits of a harness measured with a fixed policy; the best is kept and checked once on other items."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import ConflictError, UsageError
from hatstack.cli.output import DryRun, Output, RunsDir, emit, say, table

if TYPE_CHECKING:
    from hat_components.evolve.config import Config
    from hat_components.evolve.result import Evolution

SHIPPED = ("evolution-1", "evolution-2", "evolution-3", "evolution-4")
HEADS = ("stage", "policy", "Accuracy", "Effectiveness", "wrong", "fixed", "broken", "over-refused", "outcome")


class Objective(StrEnum):
    """What an edit must raise to be kept."""

    AVERAGE = "average"
    ACCURACY = "accuracy"
    EFFECTIVENESS = "effectiveness"


def add(app: typer.Typer) -> None:
    """Give the application its command."""
    app.command("evolve")(evolve)


Base = Annotated[str, typer.Argument(help="Harness to begin with: a folder, or a shipped one.")]
Candidates = Annotated[
    list[str] | None,
    typer.Option(
        "--candidate",
        help="Edited harness to try, in this order; may be repeated.",
        show_default="the shipped evolution-1 to 4",
    ),
]
Copies = Annotated[
    list[Path] | None, typer.Option("--working-copy", help="Harness folder that you are editing; tried last.")
]
Model = Annotated[Path | None, typer.Option("--model", help="Policy: folder of a trained model.")]
Endpoint = Annotated[str, typer.Option("--endpoint", help="Policy: base URL of a server, up to /v1.")]
EndpointModel = Annotated[str, typer.Option("--endpoint-model", help="Model name at that endpoint.")]
Scripted = Annotated[
    str, typer.Option("--scripted", help="Policy: the scripted expert with faults (a YAML file, heeding, ignoring).")
]
Policies = Annotated[
    str,
    typer.Option("--policies", help="Several policies: NAME=FOLDER, NAME=URL|MODEL or NAME=scripted:X, by commas."),
]
Proposer = Annotated[str, typer.Option("--proposer", help="Base URL of a model that writes edits.")]
ProposerModel = Annotated[str, typer.Option("--proposer-model", help="Model name at the proposer.")]
Proposals = Annotated[int, typer.Option("--proposals", min=0, max=20, help="Edits that it writes.")]
Items = Annotated[
    Path | None, typer.Option("--items", help="Development items (tagged evolution).", show_default="drawn")
]
HeldOut = Annotated[
    Path | None, typer.Option("--held-out", help="Items for the check (tagged evaluation).", show_default="drawn")
]
Dev = Annotated[int, typer.Option("--dev", min=1, help="Development items to draw.")]
Test = Annotated[int, typer.Option("--test", min=1, help="Held-out items to draw.")]
Goal = Annotated[Objective, typer.Option("--objective", help="What an edit must raise.")]
Patience = Annotated[
    int, typer.Option("--patience", min=0, help="Edits in a row without a gain that end it; 0: try all.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of items, sampling and intervals.")]
Target = Annotated[
    Path | None, typer.Option("--to", help="Folder for the result; it must not exist.", show_default="in the runs")
]


def evolve(  # each parameter is an option of the command line
    harness: Base = "live-commerce",
    candidate: Candidates = None,
    working_copy: Copies = None,
    model: Model = None,
    endpoint: Endpoint = "",
    endpoint_model: EndpointModel = "",
    scripted: Scripted = "",
    policies: Policies = "",
    proposer: Proposer = "",
    proposer_model: ProposerModel = "",
    proposals: Proposals = 0,
    items: Items = None,
    held_out: HeldOut = None,
    dev: Dev = 120,
    test: Test = 120,
    objective: Goal = Objective.AVERAGE,
    patience: Patience = 2,
    seed: Seed = 1,
    target: Target = None,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Search for a better harness with the weights fixed: what each edit fixes and breaks, and which to keep."""
    from hat_components.evolve.result import load_evolution
    from hat_components.evolve.step import run
    from hat_components.runner import FileProgress

    base = paths.harness(harness)
    copies = list(working_copy or ())
    folders = _folders(base, candidate, copies, proposals)
    config, models = _config(
        _policies(model, endpoint, endpoint_model, scripted, policies),
        candidates=list(folders), working_copies=[path.resolve().name for path in copies], objective=objective.value,
        patience=patience, seed=seed, proposals=proposals,
        proposer={"url": proposer, "model": proposer_model} if proposer else None,
    )  # fmt: skip
    root = paths.runs_dir(runs_dir)
    out = target or paths.fresh(root, f"evolution-{base.name}")
    if out.exists():
        raise ConflictError("it exists already", place=str(out), cure="choose another folder")
    if dry_run:
        named = [one.name for one in config.policies]
        emit(
            {"base": str(base), "candidates": list(folders), "policies": named, "folder": str(out), "changed": False},
            f"would try {', '.join(folders) or 'proposals'} with {', '.join(named)} and write {out}",
        )
        return
    inputs = {"harness": base, **models, **{f"candidate-{name}": path for name, path in folders.items()}}
    inputs |= _items(items, held_out, dev, test, seed, out)
    say(f"evolution in {out}")
    with FileProgress(out / "progress.jsonl", "evolve") as progress:
        run(config, inputs, out, _Narrated(progress))
    found = load_evolution(out)
    emit({"folder": str(out), **found.model_dump(mode="json")}, lambda: told(found, out))


class _Narrated:
    """A progress file whose steps are told on stderr too."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def progress(self, done: int, total: int, note: str = "") -> None:
        """A harness is about to be played."""
        self._file.progress(done, total, note)
        if note:
            say(f"  {note}")

    def warning(self, message: str) -> None:
        """Told as well as kept."""
        self._file.warning(message)
        say(f"  note: {message}")

    def metric(self, name: str, value: float, step: int) -> None:
        """Kept."""
        self._file.metric(name, value, step)

    def artifact(self, name: str, path: Path) -> None:
        """Kept."""
        self._file.artifact(name, path)


def _folders(base: Path, candidates: list[str] | None, copies: list[Path], proposals: int) -> dict[str, Path]:
    """Name → harness folder, in the order in which they are tried."""
    names = list(candidates or ())
    if candidates is None and not copies and not proposals:
        if base.name != "live-commerce":
            raise UsageError(
                "name an edit to try", place="hat evolve", cure="--candidate, --working-copy or --proposer"
            )
        names = list(SHIPPED)
    paths_ = [*(paths.harness(name) for name in names), *copies]
    folders = {path.resolve().name: path for path in paths_}
    if len(folders) < len(paths_):
        raise UsageError("two candidates have one name", place="hat evolve", cure="rename one of the folders")
    return folders


def _policies(model: Path | None, endpoint: str, endpoint_model: str, scripted: str, several: str) -> dict[str, str]:
    """Name → where it is: a folder, `URL|MODEL`, or `scripted:FAULTS`."""
    single = [str(model)] if model else []
    single += [f"{endpoint}|{endpoint_model}"] if endpoint else []
    single += [f"scripted:{scripted}"] if scripted else []
    if len(single) + bool(several) != 1:
        raise UsageError("name one policy", place="hat evolve", cure="--model, --endpoint, --scripted or --policies")
    if single:
        return {"policy": single[0]}
    found: dict[str, str] = {}
    for part in several.split(","):
        name, equals, where = part.strip().partition("=")
        if not equals or not name or name in found:
            raise UsageError(f"{part!r} is not NAME=POLICY", place="--policies", cure="naive=FOLDER,hsa=FOLDER")
        found[name] = where
    return found


def _config(policies: Mapping[str, str], **fields: Any) -> tuple[Config, dict[str, Path]]:
    """The step's config and the model folders as its inputs."""
    from pydantic import ValidationError

    from hat_components.evolve.config import Config
    from hat_components.evolve.faults import read_faults

    made: list[dict[str, Any]] = []
    models: dict[str, Path] = {}
    for name, where in policies.items():
        if where.startswith("scripted:"):
            made.append({"type": "expert", "name": name, "faults": read_faults(where.removeprefix("scripted:"))})
        elif re.match(r"^https?://", where):
            url, _, model = where.partition("|")
            made.append({"type": "endpoint", "name": name, "url": url, "model": model})
        else:
            made.append({"type": "model", "name": name})
            models[f"model-{name}"] = Path(where)
    try:
        return Config.model_validate({**fields, "policies": made}), models
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{where}: {first['msg']}", place="hat evolve", cure="hat evolve --help") from None


def _items(items: Path | None, held_out: Path | None, dev: int, test: int, seed: int, out: Path) -> dict[str, Path]:
    """The item sets that were given; those that were not are drawn, disjoint, beside the result."""
    given = {"items": items, "held_out": held_out}
    found = {name: path for name, path in given.items() if path is not None}
    if len(found) == len(given):
        return found
    if items is not None:
        return found
    from hat_components.simulate.config import Config
    from hat_components.simulate.step import run
    from hat_components.step import NullProgress

    run(Config(train=1, dev=1, test=test, evolve=dev, seed=seed), {}, out / "data", NullProgress())
    return {"items": out / "data" / "items_evolve", "held_out": out / "data" / "items_test", **found}


def told(found: Evolution, out: Path) -> str:
    """The trajectory as a table, the selection, the held-out check in words."""
    rows: list[tuple[object, ...]] = []
    for stage in found.stages:
        for name, made in stage.measured.items():
            scores = [f"{100 * made.scores[metric].mean:.1f}" for metric in ("accuracy", "effectiveness")]
            effect = made.effect
            moved = (effect.fixed, effect.broken) if effect else ("-", "-")
            over = f"{made.over_refusal.count} of {made.over_refusal.n}"
            rows.append((stage.name, name, *scores, made.errors, *moved, over, stage.outcome.replace("_", " ")))
        if not stage.measured:
            rows.append((stage.name, "-", "-", "-", "-", "-", "-", "-", "not tried"))
    lines = [table(HEADS, rows), "", f"selected {found.selected}  {found.stage(found.selected).harness}"]
    for name, held in found.held_out.items():
        share = "" if held.reduction is None else f", {100 * held.reduction:.1f} % fewer"
        interval = f" [{100 * held.reduction_low:.1f}, {100 * held.reduction_high:.1f}]" if share else ""
        lines.append(
            f"held out, {name}: {held.errors_before} wrong turns before, {held.errors_after} after{share}{interval}"
        )
        lines.append(f"  {held.effect.objective.text}")
    if found.selected == "base":
        lines.append("no edit was better than the base")
    lines.append(f"next    hat report paper --item t14 --runs-dir {out.parent}")
    return "\n".join(lines)
