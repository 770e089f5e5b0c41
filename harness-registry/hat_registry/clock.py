"""Time as the registry writes it: UTC, ISO 8601, microseconds, `Z`. Sorts as text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)


def text(moment: datetime) -> str:
    """`moment` in the one written form."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(value: str) -> datetime:
    """Read ISO 8601 with a zone, or a date or time without one as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
