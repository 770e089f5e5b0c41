"""Training rows drawn while training: every session is new, so that nothing is learned by heart and no file is needed.

A stream (`hatstack.stream/1`, JSON) names scenario, arm, plan and seed; the scripted expert plays each draw through a
real session under a state of the harness. Always holds: a draw consumes nothing but its `random.Random`; only sessions
with every score at 1 are given out. Not here: the same as a file (augment).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.model.batches import Draw
from hat_components.model.codec import Codec, Row
from hat_components.scenarios import load
from hat_components.sessions import States, play_scored, read_harness, training_messages
from hat_components.step import InputError
from hat_harness.augment import AugmentPlan, training_plan

TRIES = 20
"""Draws after which a scenario and a harness count as not fitting together."""


class StreamSpec(BaseModel):
    """What is drawn (`hatstack.stream/1`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["hatstack.stream/1"] = "hatstack.stream/1"
    purpose: Literal["training"]
    """Said explicitly, as for a dataset."""
    arm: str
    """`naive`: the original harness for every session; any other arm draws from `plan`."""
    scenario: str = "live_commerce"
    """Scenario that the items are drawn from; of its split `train`, which shares no room with the others."""
    settings: dict[str, Any] = Field(default={"mix": "balanced"})
    """Settings of the scenario."""
    plan: AugmentPlan = Field(default_factory=training_plan)
    """Distribution over rewrites; not used by the arm `naive`."""
    seed: int = 1
    """Seed of the states."""
    turns: int = Field(default=3, ge=1, le=50)
    """Turns of a session."""


def read_spec(path: Path, arm: str) -> StreamSpec:
    """Read a stream's file; raises InputError where it is broken or of another arm."""
    try:
        spec = StreamSpec.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise InputError(f"this is no stream: {reason}", place=str(path), cure="write a hatstack.stream/1") from error
    if spec.arm != arm:
        raise InputError(f"the stream is of the arm {spec.arm!r}", place=str(path), cure=f"give one of {arm!r}")
    return spec


def fresh_rows(spec: StreamSpec, harness: Path, codec: Codec) -> Draw:
    """A source of rows, one for each segment of a fresh session."""
    scenario = load(spec.scenario, spec.settings)
    states = States(scenario, read_harness(harness), None if spec.arm == "naive" else spec.plan, spec.seed)

    def count(text: str) -> int:
        return len(codec.encode_text(text))

    def draw(rng: random.Random) -> Sequence[Row]:
        for _ in range(TRIES):
            item = next(iter(scenario.items(rng.randrange(2**31), "train", 1, spec.turns)))
            played = next(play_scored(scenario, [(item, states.of(item))], None, label=spec.arm, count=count))
            if played.perfect:
                segments = played.trace.segments
                rows = [codec.row(training_messages(segment), segment.tools) for segment in segments]
                return [row for row in rows if row.supervised()]
        raise InputError(
            f"{TRIES} sessions in a row were not played right",
            place=str(harness),
            cure="check that harness and scenario fit together with the augment step",
        )

    return draw
