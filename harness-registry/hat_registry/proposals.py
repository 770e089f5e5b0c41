"""Proposals: how a protected pointer moves. Diff and reason → gates → approval by another account → move.

Always holds: the author's own approval does not count; what moves is exactly what was proposed, from the position it
was proposed at; gates are evaluated again in the moving transaction, so that no approval outlives its evidence.
Not here: gate semantics (gates), the move itself (pointers).
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from hat_registry import clock, evidence, gates, ledger, pages, pointers
from hat_registry.accounts import Actor
from hat_registry.errors import ConflictError, ForbiddenError, GateError, InvalidError, NotFoundError
from hat_registry.store.tables import approval, gate_result, proposal

State = Literal["open", "approved", "rejected", "moved", "superseded"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed move and where it stands."""

    id: str
    workspace: str
    kind: str
    name: str
    pointer: str
    from_digest: str | None
    from_revision: int
    to_digest: str
    reason: str
    urgent: bool
    author: str
    state: State
    created_at: str
    decided_at: str | None


@dataclass(frozen=True, slots=True)
class Approval:
    """One account's verdict."""

    account: str
    verdict: Literal["approve", "reject"]
    comment: str
    at: str


def propose(
    tx: Connection,
    actor: Actor,
    kind: pointers.Kind,
    name: str,
    pointer_name: str,
    digest: str,
    *,
    reason: str,
    urgent: bool = False,
) -> Proposal:
    """Open a proposal to move `pointer_name` to `digest` from where it stands now."""
    actor.require("propose", name)
    if not reason.strip():
        raise InvalidError("a proposal needs a reason", cure="say in a sentence why it should go live")
    known = pointers.of_name(tx, actor.workspace, kind, name)
    present = next((position for position in known if position.pointer == pointer_name), None)
    if present is not None and present.digest == digest:
        raise ConflictError(f"{pointer_name} of {name} is at {digest} already", cure="nothing to do")
    pointers.require_known(tx, actor.workspace, kind, name, digest)
    identity, at = secrets.token_hex(8), clock.text(clock.now())
    row: dict[str, Any] = {
        "id": identity,
        "workspace": actor.workspace,
        "kind": kind,
        "name": name,
        "pointer": pointer_name,
        "from_digest": present.digest if present else None,
        "from_revision": present.revision if present else 0,
        "to_digest": digest,
        "reason": reason.strip(),
        "urgent": urgent,
        "author": actor.account,
        "state": "open",
        "created_at": at,
    }
    tx.execute(insert(proposal).values(**row))
    data = {
        "proposal": identity,
        "from": row["from_digest"] or "",
        "to": digest,
        "urgent": urgent,
        "reason": row["reason"],
    }
    ledger.append(tx, actor.workspace, actor.account, "propose", pointers.subject(kind, name, pointer_name), data, at)
    return get(tx, actor.workspace, identity)


def get(tx: Connection, workspace: str, identity: str) -> Proposal:
    """One proposal."""
    row = tx.execute(select(proposal).where(proposal.c.id == identity, proposal.c.workspace == workspace)).first()
    if row is None:
        raise NotFoundError(f"no proposal {identity[:32]}", place=workspace)
    return _proposal(row)


def listing(
    tx: Connection,
    workspace: str,
    *,
    state: str | None = None,
    after: str = "",
    limit: int = 50,
    only: frozenset[str] | None = None,
) -> list[Proposal]:
    """Proposals, newest first; `after` is the `pages.cursor` of the page before, `only` the names that may be seen."""
    query = select(proposal).where(proposal.c.workspace == workspace)
    if only is not None:
        query = query.where(proposal.c.name.in_(sorted(only)))
    if state:
        query = query.where(proposal.c.state == state)
    paged = pages.newest_first(query, proposal.c.created_at, proposal.c.id, after, limit)
    return [_proposal(row) for row in tx.execute(paged)]


def approvals(tx: Connection, identity: str) -> list[Approval]:
    """Verdicts in order of time."""
    query = select(approval).where(approval.c.proposal == identity).order_by(approval.c.at)
    return [Approval(row.account, row.verdict, row.comment, row.at) for row in tx.execute(query)]


def run_gates(tx: Connection, actor: Actor, identity: str) -> list[gates.Result]:
    """Evaluate the policy's gates over the evidence there is, keep the results, and record that it was done."""
    found = get(tx, actor.workspace, identity)
    actor.require("propose", found.name)
    results, used = _evaluate(tx, found)
    run = (tx.execute(select(func.max(gate_result.c.run)).where(gate_result.c.proposal == identity)).scalar() or 0) + 1
    at = clock.text(clock.now())
    for result in results:
        tx.execute(
            insert(gate_result).values(
                proposal=identity,
                gate=result.gate,
                run=run,
                observed=result.observed,
                threshold=result.threshold,
                outcome=result.outcome,
                evidence=json.dumps(used),
                at=at,
            )
        )
    told = {result.gate: f"{result.observed or 'missing'} {result.threshold} {result.outcome}" for result in results}
    data = {"proposal": identity, "run": run, "results": told, "evidence": used}
    subject = pointers.subject(found.kind, found.name, found.pointer)
    ledger.append(tx, actor.workspace, actor.account, "gate", subject, data, at)
    return results


def decide(
    tx: Connection, actor: Actor, identity: str, verdict: Literal["approve", "reject"], comment: str = ""
) -> Proposal:
    """Approve or reject. The author cannot approve; enough approvals make it `approved`, one rejection ends it."""
    found = get(tx, actor.workspace, identity)
    actor.require("approve", found.name)
    if found.state not in {"open", "approved"}:
        raise ConflictError(f"proposal {identity} is {found.state}", cure="open a new one")
    if actor.account == found.author and verdict == "approve":
        raise ForbiddenError("the author cannot approve the own proposal", cure="ask another approver")
    at = clock.text(clock.now())
    try:
        tx.execute(
            insert(approval).values(
                proposal=identity, account=actor.account, verdict=verdict, comment=comment.strip(), at=at
            )
        )
    except IntegrityError:
        raise ConflictError(f"{actor.account} has decided on {identity} already") from None
    needed = pointers.protection(tx, actor.workspace, found.kind, found.pointer)
    count = sum(1 for given in approvals(tx, identity) if given.verdict == "approve")
    state: State = found.state
    if verdict == "reject":
        state = "rejected"
    elif needed is None or count >= needed.approvals:
        state = "approved"
    tx.execute(update(proposal).where(proposal.c.id == identity).values(state=state, decided_at=at))
    subject = pointers.subject(found.kind, found.name, found.pointer)
    data = {"proposal": identity, "comment": comment.strip(), "approvals": count}
    ledger.append(tx, actor.workspace, actor.account, verdict, subject, data, at)
    return get(tx, actor.workspace, identity)


def promote(tx: Connection, actor: Actor, identity: str) -> pointers.Position:
    """Move the pointer as proposed. Refused unless approved, all required gates pass now, and nobody moved it since."""
    found = get(tx, actor.workspace, identity)
    actor.require("move", found.name)
    if found.state == "moved":
        return pointers.resolve(tx, actor.workspace, found.kind, found.name, found.pointer)
    needed = pointers.protection(tx, actor.workspace, found.kind, found.pointer)
    count = sum(1 for given in approvals(tx, identity) if given.verdict == "approve" and given.account != found.author)
    if found.state in {"rejected", "superseded"}:
        raise ConflictError(f"proposal {identity} is {found.state}", cure="open a new one")
    if needed is not None and count < needed.approvals:
        raise ForbiddenError(
            f"proposal {identity} has {count} of {needed.approvals} approvals", cure="ask another account to approve"
        )
    results, used = _evaluate(tx, found)
    failed = gates.blocking(results)
    if failed:
        told = "; ".join(
            f"{one.title}: {one.observed or one.note or 'no evidence'}, needs {one.threshold}" for one in failed
        )
        raise GateError(f"{len(failed)} gates did not pass: {told}", place=f"proposal {identity}", cure="add evidence")
    data = {"proposal": identity, "approvals": count, "evidence": used, "reason": found.reason}
    position = pointers.move(
        tx,
        actor,
        found.kind,
        found.name,
        found.pointer,
        found.to_digest,
        revision=found.from_revision,
        urgent=found.urgent,
        data=data,
    )
    at = clock.text(clock.now())
    tx.execute(update(proposal).where(proposal.c.id == identity).values(state="moved", decided_at=at))
    same = (proposal.c.workspace == found.workspace, proposal.c.kind == found.kind, proposal.c.name == found.name)
    still = (proposal.c.pointer == found.pointer, proposal.c.state.in_(("open", "approved")))
    tx.execute(update(proposal).where(*same, *still).values(state="superseded", decided_at=at))
    return position


def preview(tx: Connection, found: Proposal) -> list[gates.Result]:
    """The gates as they would come out now; nothing is kept."""
    return _evaluate(tx, found)[0]


def _evaluate(tx: Connection, found: Proposal) -> tuple[list[gates.Result], list[str]]:
    needed = pointers.protection(tx, found.workspace, found.kind, found.pointer)
    context, used = evidence.context(tx, found.workspace, found.to_digest, found.from_digest)
    given = approvals(tx, found.id)
    context["approvals"] = sum(1 for one in given if one.verdict == "approve" and one.account != found.author)
    return [gates.evaluate(gate, context) for gate in (needed.gates if needed else ())], used


def _proposal(row: Any) -> Proposal:
    return Proposal(
        row.id,
        row.workspace,
        row.kind,
        row.name,
        row.pointer,
        row.from_digest,
        row.from_revision,
        row.to_digest,
        row.reason,
        bool(row.urgent),
        row.author,
        row.state,
        row.created_at,
        row.decided_at,
    )
