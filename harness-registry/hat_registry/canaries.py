"""Moves of canary rollouts, as rows of the ledger: what the controller did, and what people asked for.

Always holds: a move that is told twice stands once; the rollout itself lives in its resource, so a missing row changes
nothing about it. Not here: rollouts (hat_serving.canary), evidence.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from hat_registry import ledger
from hat_registry.accounts import Actor


class Move(BaseModel):
    """One change of a rollout."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    release: str = Field(max_length=200)
    """Digest or name of the candidate release."""
    phase: str = Field(max_length=40)
    step: int = Field(ge=0)
    """Counted from 0; the number of steps while it is promoted."""
    weight: int = Field(ge=0, le=100)
    """Wanted percent of the canary."""
    effective: int | None = Field(default=None, ge=0, le=100)
    """Percent in force; None when it could not be told."""
    reason: str = Field(default="", max_length=80)
    message: str = Field(default="", max_length=1000)


def subject_of(namespace: str, name: str) -> str:
    """How the ledger names a rollout."""
    return f"canary:{namespace}/{name}"


def record(tx: Connection, actor: Actor, namespace: str, name: str, move: Move) -> bool:
    """Write a move down; False when the last row of this rollout says the same."""
    actor.require("evidence")
    subject = subject_of(namespace, name)
    data = move.model_dump(mode="json")
    last = ledger.rows(tx, actor.workspace, kind="canary", subject=subject, limit=1, newest_first=True)
    if last and dict(last[0].data) == data:
        return False
    ledger.append(tx, actor.workspace, actor.account, "canary", subject, data)
    return True


def asked(tx: Connection, actor: Actor, namespace: str, name: str, wish: str) -> None:
    """A person's wish: pause, resume, promote, abort."""
    ledger.append(tx, actor.workspace, actor.account, "canary", subject_of(namespace, name), {"asked": wish})
