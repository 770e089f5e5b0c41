"""Runs one step in a pod: step folders come in as artifacts, one step folder goes out.

    python -m hat_pipelines.pod --component sft --config '{…}' --input base=/in/simulate:items --out /out

Always holds: `--out` holds a whole step folder (config, result, progress, artifacts) when the exit code is 0.
Not here: what the pod is asked to mount (to_kfp, to_hera).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from hat_components.runner import EXIT_CODES
from hat_components.step import StepResult
from hat_pipelines.errors import DagError
from hat_pipelines.execute import execute
from hat_pipelines.runs import Fault, StepFolder, write_text
from hat_pipelines.worker import read_outcome, redirect, write_outcome

Inputs = Mapping[str, tuple[str, str]]
"""Input name → (folder, artifact); artifact "" where the folder itself is meant, which the run brought."""
PROGRESS_MARK = "hatstack-progress "
"""Begins a line of a pod's output that is a record of its progress file, for whoever follows the pod."""
FAULT_MARK = "hatstack-fault "
"""Begins the line of a pod's output that says why its step failed, as JSON."""
RUN_VARIABLE = "HATSTACK_RUN_FOLDER"
"""Set by the local KFP runner: step folders are made there, and KFP's artifact is a link to them."""


def resolve(folder: Path, artifact: str) -> Path:
    """Path of an artifact in a published step folder; with "" the folder itself."""
    if not artifact:
        return folder
    path = StepFolder(folder).artifact(artifact)
    if path is None:
        raise DagError(f"the step before made no {artifact!r}", place=str(folder))
    return path


def perform(component: str, config: str, inputs: Inputs, out: Path, *, log: bool = False) -> int:
    """Run a step into the step folder `out`; returns the exit code. `log`: what it prints goes to the folder's log."""
    step = StepFolder(out)
    step.prepare(json.loads(config))
    if log:
        redirect(step.log)
    paths = {name: resolve(Path(folder), artifact) for name, (folder, artifact) in inputs.items()}
    outcome = execute(component, step.config, paths, step.work, step.progress)
    if not isinstance(outcome, StepResult):
        step.discard()
        write_outcome(step.outcome, outcome)
        sys.stderr.write(f"step {component} failed: {outcome.message}\n  cure: {outcome.cure or 'read the log'}\n")
        sys.stdout.write(f"{FAULT_MARK}{outcome.model_dump_json()}\n")
        return EXIT_CODES[outcome.kind]
    step.publish(outcome)
    return 0


def split_log(text: str) -> tuple[str, str, Fault | None]:
    """What a pod wrote for people, the progress records in it, and what it said of its failure."""
    plain, points = [], []
    fault = None
    for line in text.splitlines(keepends=True):
        if line.startswith(PROGRESS_MARK):
            points.append(line.removeprefix(PROGRESS_MARK))
        elif line.startswith(FAULT_MARK):
            with contextlib.suppress(ValidationError):  # a step may print what it likes
                fault = Fault.model_validate_json(line.removeprefix(FAULT_MARK))
        elif not _is_argo(line):
            plain.append(line)
    return "".join(plain), "".join(points), fault


def _is_argo(line: str) -> bool:
    """Whether the executor wrote a line about itself."""
    return line.startswith('time="') and " argo=true" in line


@contextmanager
def relayed(progress: Path, every_s: float = 0.5) -> Iterator[None]:
    """Repeat the records of a progress file on stdout while they are written."""
    over = threading.Event()

    def follow() -> None:
        offset, last = 0, False
        while not last:
            last = over.wait(every_s)
            with contextlib.suppress(OSError), progress.open("rb") as stream:
                stream.seek(offset)
                block = stream.read()
                whole = block[: block.rfind(b"\n") + 1]
                offset += len(whole)
                for line in whole.decode(errors="replace").splitlines():
                    sys.stdout.write(f"{PROGRESS_MARK}{line}\n")
                sys.stdout.flush()

    thread = threading.Thread(target=follow, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def in_kfp(
    step: str, component: str, config: str, inputs: Inputs, out: str, metric: str, *, processes: int = 1, job: str = ""
) -> float:
    """Body of every KFP component; returns the metric, 0 for none. Ends the process when the step fails.

    `job`: the TrainJob that the step becomes, as JSON. On this machine one process does the work of several.
    """
    target = Path(out)
    run = os.environ.get(RUN_VARIABLE)
    if (job or processes > 1) and not run:
        if (
            code := _as_job(job, component, config, inputs, target)
            if job
            else _together(processes, component, config, inputs, target)
        ):
            sys.exit(code)
        return measure(target, metric) if metric else 0.0
    if run:
        folder = Path(run) / "steps" / step
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_symlink():
            target.symlink_to(folder)
        target = folder
    if code := perform(component, config, inputs, target, log=bool(run)):
        sys.exit(code)
    return measure(target, metric) if metric else 0.0


def _as_job(job: str, component: str, config: str, inputs: Inputs, out: Path) -> int:
    from hat_pipelines import train_job

    return train_job.run(train_job.TrainJob.model_validate_json(job), component, config, inputs, out)


def _together(processes: int, component: str, config: str, inputs: Inputs, out: Path) -> int:
    """Run the step in several processes by torchrun; returns the exit code that one process would have."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "hat_pipelines.pod", *arguments(component, config, inputs, out)]
    return fault_code(StepFolder(out), subprocess.run(command, check=False).returncode)


def fault_code(step: StepFolder, code: int) -> int:
    """What the step said of its failure as an exit code, since torchrun ends with 1 whatever it was; else `code`."""
    fault = read_outcome(step.outcome) if code else None
    return EXIT_CODES[fault.kind] if isinstance(fault, Fault) else code


def measure(folder: Path, metric: str) -> float:
    """A metric of a finished step, for a condition."""
    result = StepFolder(folder).read_result()
    if result is None or metric not in result.metrics:
        raise DagError(f"a condition needs the metric {metric!r}, which this step did not report", place=str(folder))
    return result.metrics[metric]


@dataclass(frozen=True)
class Arguments:
    """What a pod is told on its command line."""

    component: str
    config: str
    inputs: Inputs
    out: Path
    metric: str = ""
    """Write this metric to `metric_file`."""
    metric_file: Path | None = None
    processes: int = 1


def arguments(component: str, config: str, inputs: Inputs, out: Path) -> list[str]:
    """The command line that `read_arguments` reads back."""
    found = ["--component", component, "--config", config, "--out", str(out)]
    for name, (folder, artifact) in inputs.items():
        found += ["--input", f"{name}={folder}" + (f":{artifact}" if artifact else "")]
    return found


def read_arguments(argv: Sequence[str] | None) -> Arguments:
    """The command line of a pod."""
    parser = argparse.ArgumentParser(prog="python -m hat_pipelines.pod", description="Run one step in a pod.")
    parser.add_argument("--component", required=True)
    parser.add_argument("--config", required=True, help="the step's config as JSON")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FOLDER[:ARTIFACT]")
    parser.add_argument("--metric", default="", help="write this metric to --metric-file")
    parser.add_argument("--metric-file", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--processes", type=int, default=1, help="processes that run the step together")
    given = parser.parse_args(argv)
    inputs = {}
    for text in given.input:
        name, _, place = text.partition("=")
        folder, _, artifact = place.partition(":")
        inputs[name] = (folder, artifact)
    return Arguments(given.component, given.config, inputs, given.out, given.metric, given.metric_file, given.processes)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of a pod."""
    given = read_arguments(argv)
    if int(os.environ.get("RANK", "0")):  # one of several processes: the first one writes
        with tempfile.TemporaryDirectory() as scratch:
            return perform(given.component, given.config, given.inputs, Path(scratch) / "out")
    if given.processes > 1:
        code = _together(given.processes, given.component, given.config, given.inputs, given.out)
    else:
        with relayed(StepFolder(given.out).progress):
            code = perform(given.component, given.config, given.inputs, given.out)
    if not code and given.metric and given.metric_file is not None:
        write_text(given.metric_file, repr(measure(given.out, given.metric)))
    return code


if __name__ == "__main__":
    sys.exit(main())
