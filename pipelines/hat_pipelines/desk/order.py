"""What may be asked of the desk: one run, as data (`Order`).

Always holds: an order names profile, harness and pipeline and never a path; its values are keys of the profile that a
form shows. Not here: whether the names exist (catalogue), carrying it out (supervise).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hat_pipelines.runs import RUN_ID

Target = Literal["local", "argo", "kfp"]
FIXED = ("format", "name", "pipeline", "harness", "description")
"""Keys of a profile that an order has fields of its own for."""
MOST_VALUES = 500


class Record(BaseModel):
    """Base of the records here: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Budget(Record):
    """What a run may use before it is stopped; None: no bound."""

    tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens that training steps have seen, all steps together."""
    gpu_seconds: Annotated[float, Field(gt=0)] | None = None
    """Wall time of each step times the GPUs that it asks for, all steps together."""


class Order(Record):
    """One run that somebody asked for."""

    pipeline: str = "train"
    profile: str = "smoke"
    """Name of a profile in the catalogue."""
    harness: str = ""
    """Name of a harness in the catalogue; "": the profile's."""
    values: dict[str, Any] = Field(default_factory=dict)
    """Key of the profile (`steps.sft.fit.tokens`) → value, where it differs from the profile."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """What the pipeline needs besides a harness, from earlier runs: `model` → `RUN/STEP.ARTIFACT`."""
    name: str = ""
    """Id of the run; "": the profile's name and the time."""
    target: Target = "local"
    budget: Budget = Budget()
    cache: bool = True
    """Take equal steps from earlier runs."""
    only: tuple[str, ...] = ()
    """Run these steps and what they need, nothing else."""
    resume: str = ""
    """Id of a run to go on with; values and profile are those it was started with."""
    from_step: str = ""
    """With `resume`: run this step and all behind it again."""
    cloned: str = ""
    """Id of the run whose values were the starting point."""

    @field_validator("name", "resume", "cloned")
    @classmethod
    def _is_run_name(cls, value: str) -> str:
        if value and not RUN_ID.match(value):
            raise ValueError("letters, digits, dots, _ and -, at most 64")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Order:
        if len(self.values) > MOST_VALUES:
            raise ValueError(f"at most {MOST_VALUES} values")
        if fixed := sorted(key for key in self.values if key.split(".")[0] in FIXED):
            raise ValueError(f"{fixed[0]} is no value: it has a field of its own, or is fixed")
        if self.from_step and not self.resume:
            raise ValueError("from_step needs resume")
        if self.resume and (self.values or self.name):
            raise ValueError("a resumed run keeps its name and its values")
        return self

    def overrides(self) -> list[str]:
        """The values as a profile takes them: `a.b=c` with c in YAML."""
        return [f"{key}={json.dumps(value)}" for key, value in sorted(self.values.items())]
