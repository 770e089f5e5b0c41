"""Errors of the registry.

    RegistryError             root of hat_registry
    ├── NotFoundError         no such harness, pointer, proposal, release or account in this workspace
    ├── InvalidError          a request that can never succeed as it stands
    ├── ConflictError         somebody else was faster, or the state does not allow it; says who and when
    ├── ForbiddenError        the account may not; says which role may
    ├── AuthenticationError   no, wrong or expired credentials
    ├── LimitedError          too many requests or attempts; `retry_after_s` says how long to wait
    ├── GateError             a gate failed or has no evidence
    ├── LedgerError           a row of the ledger was changed, removed or reordered
    └── StoreError            the database or the blob store cannot be reached or is full

Not here: HTTP statuses (hat_registry.api.problem).
"""

from __future__ import annotations

from hat_harness.errors import Kind, PlatformError


class RegistryError(PlatformError):
    """Root of everything that hat_registry raises."""


class NotFoundError(RegistryError):
    """The named thing is not in this workspace."""

    kind: Kind = "invalid_input"


class InvalidError(RegistryError):
    """The request is malformed or breaks a rule that no retry changes."""

    kind: Kind = "invalid_input"


class ConflictError(RegistryError):
    """The state moved on or does not allow the change."""

    kind: Kind = "conflict"


class ForbiddenError(RegistryError):
    """The account lacks the permission; `cure` names the role that has it."""

    kind: Kind = "forbidden"


class AuthenticationError(RegistryError):
    """Credentials are absent, wrong, expired or revoked. Says no more than that."""

    kind: Kind = "forbidden"


class LimitedError(RegistryError):
    """Too many requests or attempts in a short time."""

    kind: Kind = "exhausted"
    retry_after_s: int = 1


class GateError(RegistryError):
    """A required gate did not pass; nothing moved."""

    kind: Kind = "check_failed"


class LedgerError(RegistryError):
    """The chain is broken; `place` names the workspace and the sequence number."""

    kind: Kind = "check_failed"


class StoreError(RegistryError):
    """The database or the blob store does not answer, or refuses the write."""

    kind: Kind = "unavailable"
