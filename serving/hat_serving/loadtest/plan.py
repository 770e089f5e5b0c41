"""What a load test does: who comes, what they say, how fast, for how long.

Always holds: a plan says everything that a load depends on, so the same plan against the same release draws the same
viewers and comments. Not here: carrying it out (run, users), how many viewers at which moment (shapes).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Shape = Literal["flat", "ramp", "spike", "soak"]
Mix = Literal["published", "balanced"]


class LoadPlan(BaseModel):
    """A load against one gateway."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    """Address of the gateway, without `/v1`."""
    model: str = "live-commerce"
    """Harness or release name that is asked for."""
    users: int = Field(default=50, ge=1, le=100_000)
    """Viewers at the height of the load."""
    duration_s: float = Field(default=60.0, gt=0)
    """Seconds from the first viewer to the last request that is begun."""
    shape: Shape = "flat"
    """`flat`: everybody comes at once and stays. `ramp`: up in equal steps over two thirds, then held. `spike`: a fifth
    of the viewers, all of them in the middle third. `soak`: up in a tenth of the time, then held; meant for hours."""
    spawn_rate: float = Field(default=20.0, gt=0)
    """Viewers that may come in one second."""
    think_s: float = Field(default=2.0, ge=0)
    """Mean seconds between a viewer's reply and the next comment (exponential)."""
    burst_every_s: float = Field(default=0.0, ge=0)
    """An item goes on sale every so many seconds: the room is told, and viewers ask about it; 0 for never."""
    burst_share: float = Field(default=0.5, ge=0, le=1)
    """Share of the waiting viewers whom an item on sale makes speak at once."""
    turns: int = Field(default=4, ge=1, le=100)
    """Comments of a viewer in one conversation; then the viewer begins another."""
    rooms: int = Field(default=1, ge=1)
    """Rooms that the viewers are spread over."""
    route: Literal["chat", "room"] = "chat"
    """`chat`: `/v1/chat/completions`, streamed unless `stream` is off. `room`: `/v1/rooms/{room}/messages`, whose
    answers name harness and release but are not streamed."""
    stream: bool = True
    mix: Mix | dict[str, float] = "published"
    """Shares of the intents (hat_scenarios.live_commerce.settings)."""
    difficulty: Literal[1, 2, 3] = 1
    room_seed: int = 1
    """Seed of the room that the gateway's tools serve (`hat scenario serve --seed`)."""
    seed: int = 1
    """Draws comments and think times."""
    limit_s: float = Field(default=15.0, gt=0)
    """A reply within this counts as in time (goodput)."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds after which a request is given up as failed."""
