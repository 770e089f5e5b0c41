"""MLflow beside the registry: models stay there, and their aliases follow this ledger.

A pointer of a model, `model:NAME@P`, is alias `P` of MLflow's model `<workspace>.NAME`. A pointer of a release,
`release:NAME@P`, is alias `P` of the model that the release names, where both have one name, else `NAME-P`; where both
kinds ask for one alias, the release decides, since it is what goes live. A model is found by its digest, in the tag
`hatstack.model` of its version.

Always holds: only aliases that a pointer stands for are set; one that a protected pointer's name stands on without any
ledger row is told, never removed. MLflow is asked within a time limit, and what fails there is `unavailable`. The
package mlflow is imported at the first question. Not here: prompts (mlflow_prompts).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, select

from hat_registry import pointers, releases
from hat_registry.errors import InvalidError, NotFoundError, RegistryError, StoreError
from hat_registry.store.tables import ledger, ledger_head, pointer

if TYPE_CHECKING:
    from hat_registry.registry import Registry

log = logging.getLogger("hatstack.registry")
MODEL_TAG = "hatstack.model"
TIMEOUT_S = 5
State = Literal["follows", "missing", "elsewhere", "unregistered", "unledgered"]


@dataclass(frozen=True, slots=True)
class Alias:
    """An alias as the ledger wants it and as MLflow has it."""

    model: str
    """MLflow's registered model, `<workspace>.<name>`."""
    alias: str
    subject: str
    """What the ledger calls the pointer; "" where there is none."""
    digest: str
    """Of the model that the ledger says; "" where there is none."""
    version: str
    """MLflow's version with that digest; "" where none is registered."""
    found: str
    """The version that the alias is on; "" where there is no alias."""
    state: State

    def told(self) -> str:
        """The state in words."""
        return {
            "follows": f"version {self.found}, as the ledger says",
            "missing": f"no such alias; {self.subject} is version {self.version}",
            "elsewhere": f"it is on version {self.found}; {self.subject} is version {self.version}",
            "unregistered": f"{self.subject} is {self.digest[:19]}, which MLflow does not have",
            "unledgered": f"it is on version {self.found}, and the ledger knows of no such pointer",
        }[self.state]


class Mlflow:
    """A bounded client of one MLflow: the URL of a server, or of a store's database."""

    def __init__(self, uri: str) -> None:
        if not uri.startswith(("http://", "https://", "sqlite:///", "postgresql", "mysql")):
            raise InvalidError(
                "this is no MLflow tracking URI", cure="http://…, https://…, sqlite:///… or postgresql://…"
            )
        self.uri = uri
        self.place = uri.rsplit("@", maxsplit=1)[-1]
        self._client: Any = None
        self._lock = threading.Lock()

    @contextmanager
    def asked(self) -> Iterator[Any]:
        """MLflow's client; whatever it, its database or its transport raise becomes StoreError."""
        with self._lock:
            client = self._client = self._client or self._made()
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield client
        except (MlflowException, SQLAlchemyError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise StoreError(f"MLflow cannot be used: {reason}", place=self.place, cure="check that it runs") from None

    def _made(self) -> Any:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(TIMEOUT_S))
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            cure = "install mlflow, or mlflow-skinny for a server's address"
            raise StoreError("the package mlflow is not installed", place=self.place, cure=cure) from None
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)

    def aliases(self, model: str) -> dict[str, str]:
        """Alias → version of a registered model; {} where there is none."""
        from mlflow.exceptions import MlflowException

        with self.asked() as client:
            try:
                return {name: str(number) for name, number in client.get_registered_model(model).aliases.items()}
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return {}
                raise

    def version_of(self, model: str, digest: str) -> str:
        """The newest version of a model that is tagged with a digest; "" where there is none."""
        with self.asked() as client:
            wanted = f"name = '{_quoted(model)}' and tags.`{MODEL_TAG}` = '{_quoted(digest)}'"
            found = [int(one.version) for one in client.search_model_versions(wanted)]
        return str(max(found)) if found else ""

    def set_alias(self, model: str, alias: str, version: str) -> None:
        """Put an alias on a version."""
        with self.asked() as client:
            client.set_registered_model_alias(model, alias, version)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An alias that a pointer stands for, and the model digest that it should be on."""

    model: str
    alias: str
    subject: str
    digest: str


def drift(wanted: list[Wanted], mlflow: Mlflow) -> list[Alias]:
    """Every alias that the ledger wants, and every protected name that stands in MLflow without it; by model and alias."""
    found: list[Alias] = []
    for model in sorted({one.model for one in wanted}):
        there = mlflow.aliases(model)
        mine = {one.alias: one for one in wanted if one.model == model}
        for alias, one in sorted(mine.items()):
            version, now = mlflow.version_of(model, one.digest), there.get(alias, "")
            state: State = "unregistered"
            if version:
                state = "missing" if not now else ("follows" if now == version else "elsewhere")
            found.append(Alias(model, alias, one.subject, one.digest, version, now, state))
        for alias in sorted((there.keys() & pointers.DEFAULT_PROTECTED.keys()) - mine.keys()):
            found.append(Alias(model, alias, "", "", "", there[alias], "unledgered"))
    return found


def follow(wanted: list[Wanted], mlflow: Mlflow) -> tuple[list[Alias], int]:
    """Set what is missing or elsewhere: (aliases as they are now, how many were set)."""
    wrong = [one for one in drift(wanted, mlflow) if one.state in {"missing", "elsewhere"}]
    for one in wrong:
        mlflow.set_alias(one.model, one.alias, one.version)
    return drift(wanted, mlflow), len(wrong)


def beside(wanted: list[Wanted], mlflow: Mlflow | None, model: str) -> dict[str, Any]:
    """The aliases of one model digest for an API field: `state` is `none`, `unavailable` or `asked`; never raises."""
    if mlflow is None:
        return {"state": "none", "aliases": []}
    try:
        found = [one for one in drift(wanted, mlflow) if one.digest == model]
    except RegistryError as error:
        return {"state": "unavailable", "message": error.message, "aliases": []}
    return {"state": "asked", "aliases": [{**asdict(one), "message": one.told()} for one in found]}


def projection(tx: Connection, workspace: str) -> list[Wanted]:
    """The aliases that the pointers of a workspace stand for. Ask MLflow after the transaction: it may take seconds."""
    query = select(pointer).where(pointer.c.workspace == workspace, pointer.c.kind.in_(("model", "release")))
    made: dict[tuple[str, str], Wanted] = {}
    for row in tx.execute(query.order_by(pointer.c.kind, pointer.c.name, pointer.c.pointer)).all():
        name, digest = row.name, row.digest
        alias = row.pointer
        if row.kind == "release":
            try:
                told = releases.get(tx, workspace, row.digest)
            except NotFoundError:
                continue  # the consistency check names it
            name, digest = _model_name(told.model_reference, workspace) or row.name, told.model
            alias = row.pointer if name == row.name else f"{row.name}-{row.pointer}"
        model = f"{workspace}.{name}"
        made[model, alias] = Wanted(model, alias, pointers.subject(row.kind, row.name, row.pointer), digest)
    return list(made.values())


def _model_name(reference: str, workspace: str) -> str:
    """NAME of `models:/<workspace>.NAME/7` or `models:/NAME@alias`; "" where it is none."""
    bare = reference.removeprefix("models:/").split("/")[0].split("@")[0] if reference.startswith("models:/") else ""
    return bare.removeprefix(f"{workspace}.")


def _quoted(text: str) -> str:
    if "'" in text or "`" in text:
        raise InvalidError(f"MLflow has no name {text[:80]!r}", cure="letters, digits, - and .")
    return text


class Follower:
    """A thread that looks at the ledger every `every_s` seconds and lets MLflow follow new moves of models and releases."""

    def __init__(self, registry: Registry, mlflow: Mlflow, *, every_s: float = 5.0) -> None:
        self.registry, self.mlflow, self.every_s = registry, mlflow, every_s
        self._seen: dict[str, int] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mlflow-follower", daemon=True)

    def start(self) -> None:
        """Begin; what happened before is caught up with first."""
        self._thread.start()

    def stop(self) -> None:
        """End, within the time that MLflow may take for one answer."""
        self._end.set()
        self._thread.join(4 * TIMEOUT_S)

    def step(self) -> int:
        """Look once; how many aliases were set. What MLflow refuses is tried again at the next look."""
        done = 0
        with self.registry.database.read() as tx:
            heads = tx.execute(select(ledger_head.c.workspace, ledger_head.c.seq)).all()
            moved = {row.workspace: projection(tx, row.workspace) for row in heads if self._moved(tx, row.workspace)}
        for workspace, seq in heads:
            if workspace in moved:
                done += follow(moved[workspace], self.mlflow)[1]
            self._seen[workspace] = seq
        return done

    def _moved(self, tx: Connection, workspace: str) -> bool:
        """Whether a model or release moved since the last look; at the first look always."""
        if workspace not in self._seen:
            return True
        new = (ledger.c.workspace == workspace, ledger.c.seq > self._seen[workspace])
        about = ledger.c.subject.like("model:%") | ledger.c.subject.like("release:%")
        query = select(ledger.c.seq).where(*new, ledger.c.kind.in_(("move", "rollback")), about).limit(1)
        return tx.execute(query).first() is not None

    def _run(self) -> None:
        told = ""
        while not self._end.is_set():
            try:
                self.step()
                told = ""
            except Exception as error:  # whatever it is, the next look may find it gone
                if str(error) != told:  # once an outage, not every few seconds
                    reason = error.message if isinstance(error, RegistryError) else type(error).__name__
                    log.warning("MLflow does not follow the ledger: %s", reason)
                told = str(error)
            self._end.wait(self.every_s)
