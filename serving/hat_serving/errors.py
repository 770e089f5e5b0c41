"""Errors of serving.

    ServingError          root of hat_serving
    ├── RequestError      a request that the gateway does not take; names the field
    ├── OverloadedError   admission is full; come back later
    ├── MovedError        another replica has the conversation, or it went on meanwhile
    ├── UpstreamError     an engine or a tool does not answer
    ├── SettingsError     settings that cannot work; names the setting
    ├── SteeringError     a change of arms or weights that their present state does not allow
    └── RolloutError      a canary that cannot go on; says what would let it

Not here: failures inside a turn; those are events of the session (hat_harness.events.Failure).
"""

from __future__ import annotations

from hat_harness.errors import Kind, PlatformError


class ServingError(PlatformError):
    """Root of everything that hat_serving raises."""


class RequestError(ServingError):
    """The request cannot be served as it stands; `place` is the field."""

    kind: Kind = "invalid_input"


class OverloadedError(ServingError):
    """Too many turns are open; nothing was started."""

    kind: Kind = "exhausted"


class MovedError(ServingError):
    """The conversation changed under the turn; nothing of it was kept."""

    kind: Kind = "conflict"


class UpstreamError(ServingError):
    """An engine, tool server or registry cannot be reached."""

    kind: Kind = "unavailable"


class SettingsError(ServingError):
    """A setting is missing or contradicts another."""

    kind: Kind = "invalid_input"


class SteeringError(ServingError):
    """Arms and weights as they stand do not allow the change; nothing was changed."""

    kind: Kind = "conflict"


class RolloutError(ServingError):
    """A canary's spec or state does not allow the step."""

    kind: Kind = "check_failed"
