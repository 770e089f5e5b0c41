"""Releases: the one unit that goes live (`hatstack.release/1`): model + harness + serving profile, each by digest.

Always holds: a release is immutable and content-addressed; its digest covers the three parts, not the evidence that
came later. Not here: rolling one out (hat_serving.canary), MLflow's side of the model.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, insert, select

from hat_harness.digest import digest_json
from hat_registry import clock, ledger, pages
from hat_registry.accounts import Actor
from hat_registry.errors import NotFoundError
from hat_registry.store.tables import harness_version, release

DIGEST = r"^sha256:[0-9a-f]{64}$"


class Release(BaseModel):
    """A release. Digests are `sha256:` + 64 hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["hatstack.release/1"] = "hatstack.release/1"
    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    model: str = Field(pattern=DIGEST)
    model_reference: str = ""
    """Where the model is registered, e.g. `models:/live-commerce/7`; told, not trusted."""
    harness: str = Field(pattern=DIGEST)
    profile: str = Field(pattern=DIGEST)
    """The serving profile: engine, flags, speculation preset."""

    @property
    def digest(self) -> str:
        """Digest of name and parts."""
        return digest_json({"name": self.name, "model": self.model, "harness": self.harness, "profile": self.profile})


def add(tx: Connection, actor: Actor, new: Release) -> tuple[str, bool]:
    """Register a release whose harness is known here; (digest, changed)."""
    actor.require("push", new.name)
    digest = new.digest
    here = (release.c.workspace == actor.workspace, release.c.digest == digest)
    if tx.execute(select(release.c.digest).where(*here)).first() is not None:
        return digest, False
    known = select(harness_version.c.digest).where(
        harness_version.c.workspace == actor.workspace, harness_version.c.digest == new.harness
    )
    if tx.execute(known).first() is None:
        raise NotFoundError(f"no harness {new.harness}", place=actor.workspace, cure="hat harness push first")
    at = clock.text(clock.now())
    content = json.dumps(new.model_dump(mode="json"), sort_keys=True)
    row = {"workspace": actor.workspace, "digest": digest, "name": new.name, "content": content}
    tx.execute(insert(release).values(**row, author=actor.account, created_at=at))
    data = {"digest": digest, "model": new.model, "harness": new.harness, "profile": new.profile}
    ledger.append(tx, actor.workspace, actor.account, "release", f"release:{new.name}", data, at)
    return digest, True


def get(tx: Connection, workspace: str, digest: str) -> Release:
    """One release by digest."""
    here = (release.c.workspace == workspace, release.c.digest == digest)
    found = tx.execute(select(release.c.content).where(*here)).scalar()
    if found is None:
        raise NotFoundError(f"no release {digest}", place=workspace)
    return Release.model_validate_json(found)


def harness_name(tx: Connection, workspace: str, digest: str) -> str:
    """A name under which a release's harness was pushed, the first in the alphabet."""
    here = (harness_version.c.workspace == workspace, harness_version.c.digest == digest)
    found = tx.execute(select(harness_version.c.name).where(*here).order_by(harness_version.c.name)).scalar()
    if found is None:
        raise NotFoundError(f"no harness {digest}", place=workspace)
    return str(found)


def listing(
    tx: Connection,
    workspace: str,
    *,
    name: str | None = None,
    after: str = "",
    limit: int = 50,
    only: frozenset[str] | None = None,
) -> list[dict[str, Any]]:
    """Releases with author and time, newest first; `after` is the `pages.cursor` of the page before.

    `only` are the names that may be seen; None for all.
    """
    query = select(release).where(release.c.workspace == workspace)
    if only is not None:
        query = query.where(release.c.name.in_(sorted(only)))
    if name is not None:
        query = query.where(release.c.name == name)
    return [
        {"digest": row.digest, "author": row.author, "created_at": row.created_at, **json.loads(row.content)}
        for row in tx.execute(pages.newest_first(query, release.c.created_at, release.c.digest, after, limit))
    ]
