"""The discussion of a proposal: who said what, when.

Always holds: comments are only ever added; the ledger has the digest of each one's text, so that a changed or removed
comment can be told. Whoever may propose may speak, also after the decision. Not here: verdicts, whose comment belongs to
the vote (proposals).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection, insert, select

from hat_registry import clock, ledger, pointers, proposals
from hat_registry.accounts import Actor
from hat_registry.errors import InvalidError
from hat_registry.store.tables import proposal_comment

LONGEST = 4000
"""Characters of one comment."""


@dataclass(frozen=True, slots=True)
class Comment:
    """One thing that somebody said."""

    id: str
    author: str
    text: str
    at: str


def add(tx: Connection, actor: Actor, proposal: str, text: str) -> Comment:
    """Say something about a proposal. Raises InvalidError for nothing or too much, NotFoundError, ForbiddenError."""
    found = proposals.get(tx, actor.workspace, proposal)
    actor.require("propose", found.name)
    said = text.strip()
    if not said or len(said) > LONGEST:
        raise InvalidError(f"a comment has 1 to {LONGEST} characters", place=f"proposal {proposal}", cure="shorten it")
    made = Comment(secrets.token_hex(8), actor.account, said, clock.text(clock.now()))
    row = {"workspace": actor.workspace, "proposal": proposal, "author": made.author, "text": said, "at": made.at}
    tx.execute(insert(proposal_comment).values(id=made.id, **row))
    subject = pointers.subject(found.kind, found.name, found.pointer)
    digest = "sha256:" + sha256(said.encode()).hexdigest()
    data = {"proposal": proposal, "comment": made.id, "text": digest}
    ledger.append(tx, actor.workspace, actor.account, "comment", subject, data, made.at)
    return made


def listing(tx: Connection, proposal: str) -> list[Comment]:
    """Comments of a proposal in order of time; the caller has checked that it may be read."""
    table = proposal_comment
    query = select(table).where(table.c.proposal == proposal).order_by(table.c.at, table.c.id)
    return [Comment(row.id, row.author, row.text, row.at) for row in tx.execute(query)]
