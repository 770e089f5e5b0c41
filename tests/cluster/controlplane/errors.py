"""Errors of the control-plane fixture.

    PlatformError
    └── ControlPlaneError               root
        ├── NotBuiltError               the programs are not in the cache
        ├── StartError                  a program did not come up; carries the end of its log
        ├── ApiError                    the API server refused a request; carries the status code
        ├── ImageUnknownError           a container without a command, and an image that the table lacks (pods.images)
        └── MissingReferenceError       a pod refers to something that does not exist yet (pods.volumes)

Not here: the errors of hatstack itself.
"""

from __future__ import annotations

from hat_harness.errors import Kind, PlatformError


class ControlPlaneError(PlatformError):
    """Root of everything that the fixture raises."""

    kind: Kind = "unavailable"


class NotBuiltError(ControlPlaneError):
    """The programs of the control plane are not in the cache."""


class StartError(ControlPlaneError):
    """A program ended or did not become ready in time."""


class ApiError(ControlPlaneError):
    """The API server refused a request. `code` is the HTTP status."""

    def __init__(self, code: int, message: str, *, place: str = "") -> None:
        super().__init__(f"{code} {message}", place=place)
        self.code = code
