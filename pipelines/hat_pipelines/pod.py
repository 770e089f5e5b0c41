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
from pathlib import Path

from hat_components.runner import EXIT_CODES
from hat_components.step import StepResult
from hat_pipelines.errors import DagError
from hat_pipelines.execute import execute
from hat_pipelines.runs import StepFolder, write_text
from hat_pipelines.worker import redirect, write_outcome

Inputs = Mapping[str, tuple[str, str]]
"""Input name → (folder, artifact); artifact "" where the folder itself is meant, which the run brought."""
PROGRESS_MARK = "hatstack-progress "
"""Begins a line of a pod's output that is a record of its progress file, for whoever follows the pod."""
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
        return EXIT_CODES[outcome.kind]
    step.publish(outcome)
    return 0


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
    step: str, component: str, config: str, inputs: Inputs, out: str, metric: str, *, processes: int = 1
) -> float:
    """Body of every KFP component; returns the metric, 0 for none. Ends the process when the step fails."""
    if processes > 1 and not os.environ.get(RUN_VARIABLE):
        return _together(processes, component, config, inputs, Path(out), metric)
    target = Path(out)
    run = os.environ.get(RUN_VARIABLE)
    if run:
        folder = Path(run) / "steps" / step
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_symlink():
            target.symlink_to(folder)
        target = folder
    if code := perform(component, config, inputs, target, log=bool(run)):
        sys.exit(code)
    return measure(target, metric) if metric else 0.0


def _together(processes: int, component: str, config: str, inputs: Inputs, out: Path, metric: str) -> float:
    """Run the step in several processes by torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "hat_pipelines.pod", "--component", component, "--config", config, "--out", str(out)]
    for name, (folder, artifact) in inputs.items():
        command += ["--input", f"{name}={folder}" + (f":{artifact}" if artifact else "")]
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(code)
    return measure(out, metric) if metric else 0.0


def measure(folder: Path, metric: str) -> float:
    """A metric of a finished step, for a condition."""
    result = StepFolder(folder).read_result()
    if result is None or metric not in result.metrics:
        raise DagError(f"a condition needs the metric {metric!r}, which this step did not report", place=str(folder))
    return result.metrics[metric]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of a pod."""
    parser = argparse.ArgumentParser(prog="python -m hat_pipelines.pod", description="Run one step in a pod.")
    parser.add_argument("--component", required=True)
    parser.add_argument("--config", required=True, help="the step's config as JSON")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FOLDER[:ARTIFACT]")
    parser.add_argument("--metric", default="", help="write this metric to --metric-file")
    parser.add_argument("--metric-file", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args(argv)
    inputs = {}
    for text in given.input:
        name, _, place = text.partition("=")
        folder, _, artifact = place.partition(":")
        inputs[name] = (folder, artifact)
    if int(os.environ.get("RANK", "0")):  # one of several processes: the first one writes
        with tempfile.TemporaryDirectory() as scratch:
            return perform(given.component, given.config, inputs, Path(scratch) / "out")
    with relayed(StepFolder(given.out).progress):
        code = perform(given.component, given.config, inputs, given.out)
    if not code and given.metric:
        write_text(given.metric_file, repr(measure(given.out, given.metric)))
    return code


if __name__ == "__main__":
    sys.exit(main())
