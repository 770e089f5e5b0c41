"""Config of the import step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hat_components.data import Purpose
from hat_components.step import StepConfig


class Config(StepConfig):
    """What is imported, for which purpose, and how people in it are protected."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    """Name of the dataset."""
    purpose: Purpose
    """What the data may be used for. It has no default: whoever imports says it, and training refuses the others."""
    held_out: float = Field(default=0.2, ge=0, le=1)
    """Share of conversations that go to `held_out`, by hash of their id: the same id always falls on the same side."""
    key_file: str = ""
    """File with the key of viewer pseudonyms (16 bytes or more); "" for the environment's HATSTACK_PSEUDONYM_KEY."""
    viewer_fields: tuple[str, ...] = ("viewer", "viewer_id", "user", "user_id")
    """Top-level fields that name the viewer; their values never reach the dataset in clear."""
    scrub: bool = True
    """Replace e-mail addresses, phone numbers and long id numbers in every text and string argument."""
    keep_days: int = Field(default=365, ge=1, le=3650)
    """Days that the datasets may be kept; then steps refuse them and `hat data erase --expired` removes them."""
    on_error: Literal["refuse", "skip"] = "refuse"
    """`refuse`: one bad line refuses the whole import; `skip`: bad lines are left out and listed in `rejected`."""
    max_problems: int = Field(default=200, ge=1)
    """How many problems are kept word for word; the rest is counted."""
    max_line_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """A longer line is a problem, not a reason to run out of memory."""
