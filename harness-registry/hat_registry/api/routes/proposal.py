"""`/proposals`, `/evidence`, `/policies`: how a protected pointer moves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field

from hat_registry import comments, evidence, pages, pointers, proposals
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.errors import NotFoundError
from hat_registry.gates import Gate
from hat_registry.registry import plain

router = APIRouter(tags=["proposal"])
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=128)]


class NewProposal(BaseModel):
    """Body that opens a proposal."""

    model_config = ConfigDict(extra="forbid")
    kind: pointers.Kind = "harness"
    name: str = Field(min_length=1, max_length=128)
    pointer: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    reason: str = Field(min_length=1, max_length=4000)
    urgent: bool = False


class Decision(BaseModel):
    """Body of an approval or rejection."""

    model_config = ConfigDict(extra="forbid")
    verdict: Literal["approve", "reject"]
    comment: str = Field(default="", max_length=4000)


class NewComment(BaseModel):
    """Body of a comment."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1, max_length=comments.LONGEST)


class NewPolicy(BaseModel):
    """Body that protects a pointer."""

    model_config = ConfigDict(extra="forbid")
    approvals: int = Field(ge=0, le=9)
    gates: list[Gate] = Field(default_factory=list, max_length=50)


@router.get("/proposals")
async def list_proposals(
    actor: CurrentActor,
    registry: CurrentRegistry,
    state: proposals.State | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: str = "",
) -> dict[str, Any]:
    """Proposals, newest first; `next` continues the listing as `after`."""
    actor.require_some("read")
    with registry.database.read() as tx:
        rows = proposals.listing(tx, actor.workspace, state=state, after=after, limit=limit, only=actor.names("read"))
    found = [plain(one) for one in rows]
    return {"items": found, "next": pages.cursor(found, "id", limit)}


@router.post("/proposals", status_code=201)
def open_proposal(body: NewProposal, actor: CurrentActor, registry: CurrentRegistry, key: Key = None) -> dict[str, Any]:
    """Propose to move a protected pointer."""

    def run(tx: Any) -> tuple[int, Any]:
        made = proposals.propose(
            tx, actor, body.kind, body.name, body.pointer, body.digest, reason=body.reason, urgent=body.urgent
        )
        return 201, plain(made)

    made: dict[str, Any] = registry.once(actor, key, ["propose", body.model_dump()], run)[1]
    return made


@router.get("/proposals/{identity}")
async def get_proposal(identity: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """A proposal with its policy, verdicts, discussion and the gates as they would come out now."""
    actor.require_some("read")
    with registry.database.read() as tx:
        found = proposals.get(tx, actor.workspace, identity)
        if not actor.may("read", found.name):
            raise NotFoundError(f"no proposal {identity[:32]}", place=actor.workspace)
        needed = pointers.protection(tx, actor.workspace, found.kind, found.pointer)
        results = proposals.preview(tx, found)
        verdicts = proposals.approvals(tx, identity)
        said = comments.listing(tx, identity)
    return {
        **plain(found),
        "needs_approvals": needed.approvals if needed else 0,
        "approvals": [plain(one) for one in verdicts],
        "comments": [plain(one) for one in said],
        "gates": [one.model_dump() for one in results],
    }


@router.post("/proposals/{identity}/gates")
def run_gates(identity: str, actor: CurrentActor, registry: CurrentRegistry, key: Key = None) -> dict[str, Any]:
    """Evaluate the gates over the evidence there is and keep the results."""

    def run(tx: Any) -> tuple[int, Any]:
        return 200, {"gates": [one.model_dump() for one in proposals.run_gates(tx, actor, identity)]}

    done: dict[str, Any] = registry.once(actor, key, ["gates", identity], run)[1]
    return done


@router.post("/proposals/{identity}/decision")
def decide(
    identity: str, body: Decision, actor: CurrentActor, registry: CurrentRegistry, key: Key = None
) -> dict[str, Any]:
    """Approve or reject; the author cannot approve."""

    def run(tx: Any) -> tuple[int, Any]:
        return 200, plain(proposals.decide(tx, actor, identity, body.verdict, body.comment))

    done: dict[str, Any] = registry.once(actor, key, ["decide", identity, body.model_dump()], run)[1]
    return done


@router.post("/proposals/{identity}/comments", status_code=201)
def add_comment(
    identity: str, body: NewComment, actor: CurrentActor, registry: CurrentRegistry, key: Key = None
) -> dict[str, Any]:
    """Say something about a proposal; comments are never changed or removed."""

    def run(tx: Any) -> tuple[int, Any]:
        return 201, plain(comments.add(tx, actor, identity, body.text))

    made: dict[str, Any] = registry.once(actor, key, ["comment", identity, body.model_dump()], run)[1]
    return made


@router.post("/proposals/{identity}/promote")
def promote(identity: str, actor: CurrentActor, registry: CurrentRegistry, key: Key = None) -> dict[str, Any]:
    """Move the pointer as proposed, if approved and all required gates pass now."""

    def run(tx: Any) -> tuple[int, Any]:
        return 200, plain(proposals.promote(tx, actor, identity))

    done: dict[str, Any] = registry.once(actor, key, ["promote", identity], run)[1]
    return done


@router.post("/evidence", status_code=201)
def add_evidence(body: evidence.Evidence, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, str]:
    """Add evidence about a digest; the same piece again changes nothing."""
    with registry.database.write() as tx:
        return {"digest": evidence.add(tx, actor, body)}


@router.get("/evidence")
async def list_evidence(subject: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Evidence about a digest, newest first."""
    actor.require_some("read")
    with registry.database.read() as tx:
        if not evidence.readable(tx, actor, subject):
            return {"items": []}
        found = evidence.of_subject(tx, actor.workspace, subject)
    return {"items": [{"digest": digest, **piece.model_dump(mode="json")} for digest, piece in found]}


@router.put("/policies/{kind}/{pointer}")
def set_policy(
    kind: pointers.Kind, pointer: str, body: NewPolicy, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """Protect a pointer with approvals and gates."""
    with registry.database.write() as tx:
        pointers.set_policy(tx, actor, kind, pointer, body.approvals, body.gates)
    return {"kind": kind, "pointer": pointer, **body.model_dump(mode="json")}
