"""Errors of hat_pipelines.

    PipelineError
    ├── DagError          a DAG is inconsistent: cycle, unknown step or artifact, duplicate
    ├── ProfileError      a profile says something that no step understands; lists every problem at once
    ├── RunConflictError       a run of that name stands already, is running, or was saved under another config
    ├── RunNotFoundError       no run of that name
    ├── ScheduleError          a cron schedule that is not understood or never comes due
    ├── RemoteError            a cluster's workflow engine does not answer, or refuses; carries what it said
    ├── StepFailedError        a step ended with an error; carries the step's own kind
    └── InterruptedRunError       somebody pressed Ctrl-C; the run can be resumed

Not here: exit codes (hatstack.cli.failure).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hat_harness.errors import Kind, PlatformError, Problem


def resumption(run: Path) -> str:
    """The command that goes on with the run in this folder."""
    where = "" if run.parent == Path("runs") else f" --runs-dir {run.parent}"
    return f"hat run --resume {run.name}{where}"


class PipelineError(PlatformError):
    """Root of everything that hat_pipelines raises."""


class DagError(PipelineError):
    """A DAG cannot be run as written."""

    kind: Kind = "invalid_input"


class ProfileError(PipelineError):
    """A profile is invalid; `problems` holds all findings with their lines."""

    kind: Kind = "invalid_input"

    def __init__(self, place: str, problems: Sequence[Problem]) -> None:
        count = len(problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the profile", place=place)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([f"{self.place}: {self.message}", *(f"  {problem}" for problem in self.problems)])


class RunConflictError(PipelineError):
    """The run folder is taken, in use, or belongs to another config."""

    kind: Kind = "conflict"


class RunNotFoundError(PipelineError):
    """There is no run of that name."""

    kind: Kind = "invalid_input"


class ScheduleError(PipelineError):
    """A cron schedule is not understood."""

    kind: Kind = "invalid_input"


class RemoteError(PipelineError):
    """A workflow engine on a cluster does not answer or refuses; `kind` says which."""

    def __init__(self, message: str, *, kind: Kind = "unavailable", place: str = "", cure: str = "") -> None:
        super().__init__(message, place=place, cure=cure)
        self.kind = kind


class StepFailedError(PipelineError):
    """A step ended with an error. `kind` is the step's own, so that the exit code says what went wrong."""

    def __init__(self, message: str, *, step: str, kind: Kind, place: str = "", cure: str = "") -> None:
        super().__init__(message, place=place, cure=cure)
        self.step = step
        self.kind = kind
        self.log = ""
        """The step's log, once it has one."""
        self.resume = ""
        """The command that goes on with the run."""


class InterruptedRunError(PipelineError):
    """The run was stopped by a signal; nothing half-written stands under a final name."""

    interrupted = True
    """How the command line knows that this is no fault of anyone."""

    def __init__(self, *, run: Path, steps: Sequence[str]) -> None:
        names = ", ".join(steps) or "no step"
        super().__init__(f"interrupted in {names}", place=str(run), cure=resumption(run))
        self.steps = tuple(steps)
