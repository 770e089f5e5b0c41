"""Imported conversations as two arms. Placeholder until hat_harness.augment.conversation stands."""

from __future__ import annotations

from typing import Any


def imported_arms(*args: Any) -> Any:
    """Not yet."""
    raise NotImplementedError
