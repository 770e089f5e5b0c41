"""Records and replays sessions."""

from __future__ import annotations

from hat_harness.session import Session
from hat_harness.trace import Trace


def dump(trace: Trace) -> bytes:
    """The trace as JSON lines."""
    raise NotImplementedError


def parse(data: bytes) -> Trace:
    """The trace of `dump`."""
    raise NotImplementedError


def replay(trace: Trace, session: Session) -> Trace:
    """Feeds a recorded trace's events to a fresh session; ReplayError at the first difference."""
    raise NotImplementedError
