"""Evidence: immutable facts about a digest (`hatstack.evidence/1`), found by subject and kept for good.

Not here: what is decided from it (gates, proposals), how it was measured (evaluation, canary).
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, insert, select

from hat_harness.digest import digest_bytes
from hat_registry import clock, ledger
from hat_registry.accounts import Actor
from hat_registry.errors import NotFoundError
from hat_registry.store.tables import evidence, harness_version, release

Type = Literal["evaluation", "canary", "cost", "diff", "loadtest"]


class Evidence(BaseModel):
    """One piece of evidence. `content` depends on `type`; numbers in it are plain JSON numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["hatstack.evidence/1"] = "hatstack.evidence/1"
    subject: str
    """Digest of the harness, model or release that it speaks about."""
    type: Type
    content: dict[str, Any] = Field(default_factory=dict)
    made_by: dict[str, str] = Field(default_factory=dict)
    """Digests of what made it: config, dataset, judge, code."""


def add(tx: Connection, actor: Actor, piece: Evidence) -> str:
    """Store a piece and return its digest; the same piece again changes nothing."""
    actor.require("evidence")
    content = json.dumps(piece.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = digest_bytes(content.encode())
    here = (evidence.c.workspace == actor.workspace, evidence.c.digest == digest)
    if tx.execute(select(evidence.c.digest).where(*here)).first() is None:
        row = {"workspace": actor.workspace, "digest": digest, "subject": piece.subject, "type": piece.type}
        at = clock.text(clock.now())
        tx.execute(insert(evidence).values(**row, content=content, author=actor.account, created_at=at))
        data = {"digest": digest, "type": piece.type}
        ledger.append(tx, actor.workspace, actor.account, "evidence", piece.subject, data, at)
    return digest


def get(tx: Connection, workspace: str, digest: str) -> Evidence:
    """One piece by digest."""
    found = tx.execute(
        select(evidence.c.content).where(evidence.c.workspace == workspace, evidence.c.digest == digest)
    ).scalar()
    if found is None:
        raise NotFoundError(f"no evidence {digest}", place=workspace)
    return Evidence.model_validate_json(found)


def of_subject(tx: Connection, workspace: str, subject: str, limit: int = 100) -> list[tuple[str, Evidence]]:
    """(digest, piece) about a subject, newest first."""
    found = tx.execute(
        select(evidence.c.digest, evidence.c.content)
        .where(evidence.c.workspace == workspace, evidence.c.subject == subject)
        .order_by(evidence.c.created_at.desc(), evidence.c.digest)
        .limit(limit)
    )
    return [(row.digest, Evidence.model_validate_json(row.content)) for row in found]


def readable(tx: Connection, actor: Actor, subject: str) -> bool:
    """Whether the actor may read something that has the digest `subject`: any harness version or release."""
    names = actor.names("read")
    if names is None:
        return True
    for table in (harness_version, release):
        here = (table.c.workspace == actor.workspace, table.c.digest == subject, table.c.name.in_(sorted(names)))
        if tx.execute(select(table.c.digest).where(*here).limit(1)).first() is not None:
            return True
    return False


def evaluations(tx: Connection, workspace: str, subjects: list[str]) -> dict[str, dict[str, Any]]:
    """Subject → suites (suite → metric → value) of its newest evaluation, for those that have one."""
    query = (
        select(evidence.c.subject, evidence.c.content)
        .where(evidence.c.workspace == workspace, evidence.c.subject.in_(subjects), evidence.c.type == "evaluation")
        .order_by(evidence.c.created_at.desc())
    )
    found: dict[str, dict[str, Any]] = {}
    for row in tx.execute(query):
        suites = json.loads(row.content)["content"].get("suites")
        if isinstance(suites, dict):
            found.setdefault(row.subject, suites)
    return found


def context(tx: Connection, workspace: str, subject: str, baseline: str | None) -> tuple[dict[str, Any], list[str]]:
    """The gates' context from the newest piece of each type, and the digests of the pieces that it came from."""
    made: dict[str, Any] = {}
    used: list[str] = []
    for digest, piece in of_subject(tx, workspace, subject):
        if piece.type == "evaluation":
            suites: dict[str, Any] = made.setdefault("suites", {})
            new = {name: value for name, value in piece.content.get("suites", {}).items() if name not in suites}
            if new:
                suites |= new
                used.append(digest)
        elif piece.type not in made:
            made[piece.type] = piece.content
            used.append(digest)
    if baseline:
        before: dict[str, Any] = {}
        for digest, piece in of_subject(tx, workspace, baseline):
            if piece.type == "evaluation":
                before = piece.content.get("suites", {}) | before
                used.append(digest)
        made["baseline"] = before
    return made, used
