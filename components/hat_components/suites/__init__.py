"""Suites as data: what is asked, under which harness states, with which seeds (`suites.yaml`).

Always holds: a suite's dev and sealed seeds differ, and so do those of any two suites, so that nothing tuned on dev
seeds has met the states of a published table. Not here: running a suite (evaluate).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from hat_components.step import InputError
from hat_harness.augment.plan import Preset
from hat_scenarios.base import AttackKind

SuiteKind = Literal["rollout", "instructions", "ifeval", "calls", "bfcl"]


class Suite(BaseModel):
    """One suite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    """What it measures, in a few words for tables."""
    kind: SuiteKind
    """`rollout`: items in their rooms through a session. `instructions`: generated, checkable. `ifeval`: the public
    541. `calls`: the next call of imported conversations. `bfcl`: the held-out half of BFCL by its own rules."""
    holdout: Preset | None = None
    """Which draws of harness states (hat_harness.augment.plan.HOLDOUTS); None: the original harness."""
    attack: AttackKind | None = None
    """Who attacks the same items: viewers, or tool results; None: nobody. Adds the score `attack_success`."""
    states: int = Field(default=1, ge=1)
    """Harness states that each item is played under; its score is the mean over them."""
    scenario: str = ""
    """A scenario of its own, whose items bring their harness (`harness_of`); "": that of the run."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of that scenario."""
    items: int = Field(default=0, ge=0)
    """Items of a suite with a scenario of its own."""
    paired_with: str = ""
    """The suite whose items these are, for paired contrasts."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Part of the items that is played, the first in order: single-factor splits need fewer."""
    dev_seed: int
    sealed_seed: int

    def seed(self, seeds: Literal["dev", "sealed"]) -> int:
        """The seed of the states, for tuning or for the final table."""
        return self.dev_seed if seeds == "dev" else self.sealed_seed


@cache
def all_suites() -> dict[str, Suite]:
    """Every suite of `suites.yaml` by id, in order of the file."""
    document = yaml.safe_load(Path(__file__).with_name("suites.yaml").read_text(encoding="utf-8"))
    return {ident: Suite.model_validate({"id": ident, **fields}) for ident, fields in document["suites"].items()}


def choose(names: Sequence[str]) -> list[Suite]:
    """The suites called `names`, in that order; raises `InputError` that names what there is."""
    known = all_suites()
    for name in names:
        if name not in known:
            raise InputError(f"there is no suite {name!r}", place="suites", cure=f"suites: {', '.join(known)}")
    if not names or len(set(names)) != len(names):
        raise InputError("name at least one suite, each once", place="suites", cure=f"suites: {', '.join(known)}")
    return [known[name] for name in names]
