"""Errors of the platform's lowest layer, and the base class that every package above derives its own tree from.

    PlatformError                 what, where, cure; one closed `kind`
    └── HarnessError              root of hat_harness
        ├── LoadError             a harness folder does not say what it must; lists every problem at once
        ├── DigestError           content differs from the digest that names it
        ├── HookError             a hook expression does not type-check
        ├── SessionError          an event that the session cannot take in its present state
        ├── AugmentError          an operator, plan or trajectory that augmentation cannot carry out
        ├── ReplayError           a tape does not match the session that replays it
        └── ModelError            a model, tool or transport failed past its retries

Not here: exit codes and HTTP statuses. `hatstack.cli` and `hat_registry.api` map `kind` to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "check_failed", "usage", "invalid_input", "conflict", "forbidden", "unavailable", "exhausted", "internal"
]


class PlatformError(Exception):
    """An error that a person can act on.

    `message` names the thing, `place` where it stands (a file with its line, a step, a route), `cure` what to do.
    """

    kind: Kind = "internal"

    def __init__(self, message: str, *, place: str = "", cure: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.cure = cure

    def __str__(self) -> str:
        head = f"{self.place}: {self.message}" if self.place else self.message
        return f"{head} ({self.cure})" if self.cure else head


class HarnessError(PlatformError):
    """Root of everything that hat_harness raises."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of a check: `path` relative to the harness folder, `line` counted from 1 (0: the whole file)."""

    path: str
    line: int
    message: str
    cure: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.message}" + (f" ({self.cure})" if self.cure else "")


class LoadError(HarnessError):
    """A harness folder is invalid; `problems` holds all findings, in order of file and line."""

    kind: Kind = "invalid_input"

    def __init__(self, place: str, problems: Sequence[Problem]) -> None:
        count = len(problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the harness", place=place)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([f"{self.place}: {self.message}", *(f"  {problem}" for problem in self.problems)])


class DigestError(HarnessError):
    """Content does not have the digest that it is named by."""

    kind: Kind = "invalid_input"


class HookError(HarnessError):
    """A hook's CEL expression is unknown to the typed context, or does not return a boolean."""

    kind: Kind = "invalid_input"


class SessionError(HarnessError):
    """The session was given an event that cannot follow what it asked for last."""


class AugmentError(HarnessError):
    """An operator cannot be applied as asked, or a trajectory or conversation is not one that can be rewritten."""

    kind: Kind = "invalid_input"


class ReplayError(HarnessError):
    """The recorded tape and the replayed session disagree; `place` is the index of the first difference."""

    kind: Kind = "check_failed"


class ModelError(HarnessError):
    """A model or tool call failed and the retries of its scope are used up."""

    kind: Kind = "unavailable"
