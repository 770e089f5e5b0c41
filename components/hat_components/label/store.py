"""Projects, tasks and ratings in a database: who may label, what comes next, how far it is, who disagrees.

Always holds: everything needs the permission `label` in the actor's workspace; a rater's second rating of an item takes
the place of the first and is counted; a write is whole or not at all. Not here: tables (hat_registry.store), JSONL
(exchange), pages.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from hat_components.label.model import PREFERENCE, SIDES, Decision, Project, Rating, Task
from hat_components.step import InputError
from hat_registry import clock
from hat_registry.accounts import Actor
from hat_registry.errors import ConflictError, NotFoundError
from hat_registry.store import label_tables as t
from hat_registry.store.database import Database


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a project is."""

    items: int
    mine: int
    """Items that the asking account has rated in full."""
    ratings: dict[int, int]
    """Number of raters → items that so many have rated in full."""
    disputed: int
    """Items on which raters disagree and nobody has decided."""
    decided: int


class LabelStore:
    """Labels over a migrated database, the registry's or one of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- projects -------------------------------------------------------------------------------------------

    def create(self, actor: Actor, project: Project, tasks: Sequence[Task]) -> None:
        """Make a project with its tasks; ConflictError when the name is taken, InputError for tasks that clash."""
        actor.require("label")
        doubled = [ident for ident, count in Counter(task.id for task in tasks).items() if count > 1]
        if doubled or not tasks:
            raise InputError(f"item {doubled[0]!r} stands twice" if doubled else "no items", place=project.name)
        key = {"workspace": actor.workspace, "name": project.name}
        rows = [
            {"workspace": actor.workspace, "project": project.name, "id": task.id, "position": index,
             "content": task.model_dump_json()}
            for index, task in enumerate(tasks)
        ]  # fmt: skip
        with self._database.write() as tx:
            try:
                made = {"content": project.model_dump_json(), "created_by": actor.account, "created_at": _now()}
                tx.execute(insert(t.project).values(**key, **made))
            except IntegrityError:
                raise ConflictError(f"a labelling project called {project.name} exists", cure="another name") from None
            tx.execute(insert(t.item), rows)

    def projects(self, actor: Actor) -> list[tuple[Project, Progress]]:
        """All projects of the workspace, by name."""
        actor.require("label")
        with self._database.read() as tx:
            rows = tx.execute(
                select(t.project.c.content).where(t.project.c.workspace == actor.workspace).order_by(t.project.c.name)
            ).scalars()
            found = [Project.model_validate_json(content) for content in rows]
        return [(project, self.progress(actor, project.name)) for project in found]

    def project(self, actor: Actor, name: str) -> Project:
        """One project; NotFoundError names those that there are."""
        actor.require("label")
        with self._database.read() as tx:
            return _project(tx, actor.workspace, name)

    def tasks(self, actor: Actor, name: str) -> list[Task]:
        """All tasks of a project, hidden parts included: for exports and summaries, never for pages."""
        actor.require("label")
        with self._database.read() as tx:
            _project(tx, actor.workspace, name)
            return _tasks(tx, actor.workspace, name)

    # ---- rating ---------------------------------------------------------------------------------------------

    def next(self, actor: Actor, name: str, *, after: str = "", back: bool = False) -> Task | None:
        """The next task in the rater's own order: unrated ones that still want raters; after `after`, whichever comes.

        None when there is nothing left, or nothing beyond `after`.
        """
        actor.require("label")
        with self._database.read() as tx:
            project = _project(tx, actor.workspace, name)
            ids = _ids(tx, actor.workspace, name)
            order = sorted(ids, key=lambda ident: _hash(project.seed, actor.account, ident))
            if after in ids:
                place = order.index(after) + (-1 if back else 1)
                wanted = order[place] if 0 <= place < len(order) else ""
            else:
                rated = _complete(project, _ratings(tx, actor.workspace, name))
                wanted = next((ident for ident in order if _wants(project, actor, rated.get(ident, set()))), "")
            return _task(tx, actor.workspace, name, wanted) if wanted else None

    def task(self, actor: Actor, name: str, item: str) -> Task:
        """One task."""
        actor.require("label")
        with self._database.read() as tx:
            return _task(tx, actor.workspace, name, item)

    def rate(
        self, actor: Actor, name: str, item: str, labels: Mapping[str, str], *, cause: str = "", comment: str = ""
    ) -> None:
        """Rate an item. Pairs are rated by side (first, tie, second), everything else by the criteria's labels."""
        actor.require("label")
        with self._database.write() as tx:
            project = _project(tx, actor.workspace, name)
            _task(tx, actor.workspace, name, item)
            said = dict(labels)
            if project.kind == "pair" and said.get(PREFERENCE) in SIDES:
                said[PREFERENCE] = winner(project, actor.account, item, said[PREFERENCE])
            for criterion, label in said.items():
                _check(project, criterion, label, cause)
                self._put(tx, actor.workspace, name, Rating(
                    item=item, account=actor.account, criterion=criterion, label=label, cause=_kept(label, cause),
                    comment=comment[:4000],
                ))  # fmt: skip

    def mine(self, actor: Actor, name: str, item: str) -> dict[str, Rating]:
        """What the actor said of an item, by criterion."""
        actor.require("label")
        with self._database.read() as tx:
            found = _ratings(tx, actor.workspace, name, t.rating.c.item == item, t.rating.c.account == actor.account)
        return {one.criterion: one for one in found}

    def _put(self, tx: Connection, workspace: str, name: str, one: Rating) -> None:
        key = {"workspace": workspace, "project": name, "item": one.item, "account": one.account}
        here = [t.rating.c[column] == value for column, value in {**key, "criterion": one.criterion}.items()]
        earlier = tx.execute(select(t.rating.c.label, t.rating.c.changes).where(*here)).first()
        values = {"label": one.label, "cause": one.cause, "comment": one.comment, "at": _now()}
        if earlier is None:
            _pseudonym(tx, workspace, name, one.account)
            tx.execute(insert(t.rating).values(**key, criterion=one.criterion, **values, changes=0))
        else:
            changed = earlier.changes + (earlier.label != one.label)
            tx.execute(update(t.rating).where(*here).values(**values, changes=changed))

    # ---- looking at it --------------------------------------------------------------------------------------

    def progress(self, actor: Actor, name: str) -> Progress:
        """How far the project is."""
        actor.require("label")
        with self._database.read() as tx:
            project = _project(tx, actor.workspace, name)
            here = (t.item.c.workspace == actor.workspace, t.item.c.project == name)
            items = tx.execute(select(func.count()).select_from(t.item).where(*here)).scalar_one()
            ratings = _ratings(tx, actor.workspace, name)
            decisions = _decisions(tx, actor.workspace, name)
        rated = _complete(project, ratings)
        counts = Counter(len(raters) for raters in rated.values() if raters)
        open_ = {key for key in disputes(ratings) if key not in {(one.item, one.criterion) for one in decisions}}
        return Progress(
            items=items,
            mine=sum(actor.account in raters for raters in rated.values()),
            ratings={0: items - sum(counts.values()), **dict(sorted(counts.items()))},
            disputed=len({ident for ident, _ in open_}),
            decided=len(decisions),
        )

    def ratings(self, actor: Actor, name: str) -> list[Rating]:
        """All ratings of a project."""
        actor.require("label")
        with self._database.read() as tx:
            _project(tx, actor.workspace, name)
            return _ratings(tx, actor.workspace, name)

    def decisions(self, actor: Actor, name: str) -> list[Decision]:
        """All adjudications of a project."""
        actor.require("label")
        with self._database.read() as tx:
            return _decisions(tx, actor.workspace, name)

    def pseudonyms(self, actor: Actor, name: str) -> dict[str, str]:
        """Account → name under which its ratings leave the store."""
        actor.require("label")
        here = (t.rater.c.workspace == actor.workspace, t.rater.c.project == name)
        with self._database.read() as tx:
            found = tx.execute(select(t.rater.c.account, t.rater.c.pseudonym).where(*here))
            return {row.account: row.pseudonym for row in found}

    def decide(
        self, actor: Actor, name: str, item: str, criterion: str, label: str, *, cause: str = "", reason: str = ""
    ) -> None:
        """Adjudicate an item that raters disagree on; it stands above their majority."""
        actor.require("label")
        with self._database.write() as tx:
            project = _project(tx, actor.workspace, name)
            _task(tx, actor.workspace, name, item)
            _check(project, criterion, label, cause)
            if (item, criterion) not in disputes(_ratings(tx, actor.workspace, name, t.rating.c.item == item)):
                raise ConflictError(f"nobody disagrees on {criterion} of {item}", place=name, cure="rate it instead")
            key = {"workspace": actor.workspace, "project": name, "item": item, "criterion": criterion}
            tx.execute(delete(t.decision).where(*(t.decision.c[column] == value for column, value in key.items())))
            made = {"label": label, "cause": _kept(label, cause), "reason": reason[:4000]}
            tx.execute(insert(t.decision).values(**key, **made, decided_by=actor.account, at=_now()))

    def put_all(self, actor: Actor, name: str, ratings: Iterable[Rating], pseudonyms: Mapping[str, str]) -> int:
        """Take over ratings from elsewhere, all or none; `pseudonyms` names the accounts that are new."""
        actor.require("label")
        count = 0
        with self._database.write() as tx:
            project = _project(tx, actor.workspace, name)
            known, raters = _ids(tx, actor.workspace, name), set[str]()
            for one in ratings:
                count += 1
                if one.item not in known:
                    raise InputError(f"there is no item {one.item[:80]!r}", place=name, cure="import its tasks first")
                _check(project, one.criterion, one.label, one.cause)
                if one.account not in raters:
                    _pseudonym(tx, actor.workspace, name, one.account, pseudonyms.get(one.account, ""))
                    raters.add(one.account)
                self._put(tx, actor.workspace, name, one)
        return count

    def erase(self, actor: Actor, items: Iterable[str]) -> int:
        """Remove tasks with everything that was said of them, from every project of the workspace; for erasure."""
        actor.require("label")
        gone = 0
        with self._database.write() as tx:
            for ident in items:
                for table, column in ((t.rating, "item"), (t.decision, "item"), (t.item, "id")):
                    here = (table.c.workspace == actor.workspace, table.c[column] == ident)
                    removed = tx.execute(delete(table).where(*here)).rowcount
                    gone += removed if table is t.item else 0
        return gone


# ---- pure parts -----------------------------------------------------------------------------------------------


def flipped(project: Project, account: str, item: str) -> bool:
    """Whether a rater sees the reply of arm b first; even over items, and the same at every look."""
    return bool(_hash(project.seed, account, f"side\x1f{item}") & 1)


def winner(project: Project, account: str, item: str, side: str) -> str:
    """The arm (a, tie, b) that a side stands for with this rater."""
    if side == "tie":
        return "tie"
    return "b" if (side == "first") == flipped(project, account, item) else "a"


def disputes(ratings: Iterable[Rating]) -> dict[tuple[str, str], Counter[str]]:
    """(item, criterion) → votes, where raters differ."""
    votes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in ratings:
        votes[one.item, one.criterion][one.label] += 1
    return {key: counted for key, counted in votes.items() if len(counted) > 1}


def settled(ratings: Iterable[Rating], decisions: Iterable[Decision]) -> dict[tuple[str, str], tuple[str, str]]:
    """(item, criterion) → (label, cause): the adjudication, else the majority; ties without one are left out."""
    votes: dict[tuple[str, str], list[Rating]] = defaultdict(list)
    for one in ratings:
        votes[one.item, one.criterion].append(one)
    found = {}
    for key, said in votes.items():
        label, count = Counter(one.label for one in said).most_common(1)[0]
        if 2 * count > len(said):
            causes = Counter(one.cause for one in said if one.label == label and one.cause)
            found[key] = (label, sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))[0][0] if causes else "")
    found |= {(one.item, one.criterion): (one.label, one.cause) for one in decisions}
    return found


def _wants(project: Project, actor: Actor, raters: set[str]) -> bool:
    """Whether an item still waits for this rater."""
    return actor.account not in raters and len(raters) < project.ratings_per_item


def _complete(project: Project, ratings: Iterable[Rating]) -> dict[str, set[str]]:
    """Item → accounts that rated every criterion of it."""
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for one in ratings:
        said[one.item][one.account] += 1
    need = len(project.criteria)
    return {item: {account for account, count in counted.items() if count >= need} for item, counted in said.items()}


def _check(project: Project, criterion: str, label: str, cause: str) -> None:
    known = project.criterion(criterion)
    if known is None:
        names = ", ".join(one.name for one in project.criteria)
        raise InputError(f"there is no criterion {criterion[:80]!r}", place=project.name, cure=f"criteria: {names}")
    if label not in known.labels:
        raise InputError(f"{label[:80]!r} is no label of {criterion}", place=project.name, cure=", ".join(known.labels))
    if cause and cause not in project.causes:
        cure = ", ".join(project.causes) or "none is asked for"
        raise InputError(f"{cause[:80]!r} is no cause", place=project.name, cure=cure)


def _kept(label: str, cause: str) -> str:
    return "" if label == "tie" else cause


def _hash(seed: int, account: str, text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\x1f{account}\x1f{text}".encode()).digest()[:8], "big")


def _now() -> str:
    return clock.text(clock.now())


def _project(tx: Connection, workspace: str, name: str) -> Project:
    here = t.project.c.workspace == workspace
    content = tx.execute(select(t.project.c.content).where(here, t.project.c.name == name)).scalar()
    if content is None:
        known = ", ".join(tx.execute(select(t.project.c.name).where(here).order_by(t.project.c.name)).scalars())
        raise NotFoundError(f"no labelling project {name[:80]}", place=workspace, cure=f"projects: {known or 'none'}")
    return Project.model_validate_json(content)


def _tasks(tx: Connection, workspace: str, name: str) -> list[Task]:
    rows = tx.execute(
        select(t.item.c.content)
        .where(t.item.c.workspace == workspace, t.item.c.project == name)
        .order_by(t.item.c.position)
    ).scalars()
    return [Task.model_validate_json(content) for content in rows]


def _ids(tx: Connection, workspace: str, name: str) -> set[str]:
    here = (t.item.c.workspace == workspace, t.item.c.project == name)
    return set(tx.execute(select(t.item.c.id).where(*here)).scalars())


def _task(tx: Connection, workspace: str, name: str, item: str) -> Task:
    here = (t.item.c.workspace == workspace, t.item.c.project == name, t.item.c.id == item)
    content = tx.execute(select(t.item.c.content).where(*here)).scalar()
    if content is None:
        raise NotFoundError(f"no item {item[:80]}", place=name)
    return Task.model_validate_json(content)


def _ratings(tx: Connection, workspace: str, name: str, *more: Any) -> list[Rating]:
    columns = [t.rating.c[column] for column in Rating.model_fields]
    here = (t.rating.c.workspace == workspace, t.rating.c.project == name, *more)
    order = (t.rating.c.item, t.rating.c.criterion, t.rating.c.account)
    return [
        Rating.model_validate(dict(row._mapping)) for row in tx.execute(select(*columns).where(*here).order_by(*order))
    ]


def _decisions(tx: Connection, workspace: str, name: str) -> list[Decision]:
    here = (t.decision.c.workspace == workspace, t.decision.c.project == name)
    return [
        Decision(
            item=row.item,
            criterion=row.criterion,
            label=row.label,
            cause=row.cause,
            reason=row.reason,
            by=row.decided_by,
        )
        for row in tx.execute(select(t.decision).where(*here).order_by(t.decision.c.item, t.decision.c.criterion))
    ]


def _pseudonym(tx: Connection, workspace: str, name: str, account: str, wanted: str = "") -> None:
    """Give an account its pseudonym in a project the first time that it rates."""
    here = (t.rater.c.workspace == workspace, t.rater.c.project == name)
    taken = {row.account: row.pseudonym for row in tx.execute(select(t.rater).where(*here))}
    if account in taken:
        return
    number = len(taken) + 1
    while not wanted or wanted in taken.values():
        wanted, number = f"rater-{number}", number + 1
    tx.execute(insert(t.rater).values(workspace=workspace, project=name, account=account, pseudonym=wanted))
