"""What is live under a name: arms, each with a harness and an engine, from a folder or from a registry's pointers.

Always holds: a name is resolved to digests before a turn starts, and a turn sees one consistent answer. While the
registry is away the last good answer stands. Not here: assignment (experiment.assignment), rollouts (canary).
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from hat_harness.digest import harness_digest
from hat_harness.errors import PlatformError
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.load import load_harness
from hat_harness.spec import Harness
from hat_registry.client import Client, ClientError
from hat_registry.client.watch import Event, Watch
from hat_serving.errors import RequestError, UpstreamError
from hat_serving.experiment.assignment import Arm, Split, Trial
from hat_serving.experiment.steering import Former

log = logging.getLogger("hatstack.gateway")


@dataclass(frozen=True, slots=True)
class LiveArm:
    """One arm, ready to serve. `engine` is the logical name of the engine that serves its model; "" is the primary."""

    name: str
    release: str
    digest: str
    harness: Harness
    hooks: CompiledHooks
    engine: str = ""
    urgent: bool = False
    """Running conversations on this arm change over at their next message rather than at their end."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a name serves now; `split` names the arms."""

    name: str
    split: Split
    arms: Mapping[str, LiveArm] = field(default_factory=dict)
    aborted: frozenset[str] = frozenset()
    """Arms that were taken back: everyone on them moves to the control at the next message."""
    former: Mapping[tuple[str, str], Former] = field(default_factory=dict)
    """(harness digest, release) → an arm that was replaced or withdrawn."""
    revision: int = 0
    """Of the steering; 0: none."""
    exposes: int = 0
    """The split that a rollout's exposures are counted by; 0: no rollout is in progress."""
    trials: tuple[Trial, ...] = ()
    """Running experiments; their arms stand in `arms` too."""

    @property
    def control(self) -> LiveArm:
        """The arm that has what the others leave."""
        return self.arms[self.split.arms[0].name]

    @property
    def compares(self) -> bool:
        """Whether arms are compared, so that turns are recorded by unit."""
        return bool(self.exposes or self.trials)


Move = Literal["", "abort", "urgent", "promoted", "gone"]
"""Why a running conversation changes arms: `promoted` renames the arm and changes nothing else."""


@dataclass(frozen=True, slots=True)
class Going:
    """How a running conversation goes on."""

    arm: LiveArm
    move: Move = ""
    digest: str = ""
    """When set: the harness that the conversation began with, to be used instead of the arm's."""


def going_on(deployment: Deployment, name: str, digest: str, release: str) -> Going:
    """How a conversation on arm `name` with this harness and release goes on (CONTRACTS.md "Assignment, promotion, abort")."""
    former = deployment.former.get((digest, release))
    arm = deployment.arms.get(name)
    taken_back = former is not None and former.state == "withdrawn"
    if arm is not None and (arm.digest, arm.release) == (digest, release) and name not in deployment.aborted:
        return Going(arm)
    if arm is None:
        same = next((one for one in deployment.arms.values() if (one.digest, one.release) == (digest, release)), None)
        if same is not None:
            return Going(same, "promoted")
    if (arm is not None and name in deployment.aborted) or taken_back:
        return Going(deployment.control, "abort")
    if arm is None and former is not None:
        return Going(replace(deployment.control, name=name, engine=former.engine, release=release), "", digest)
    if arm is None:
        return Going(deployment.control, "gone")
    if arm.urgent:
        return Going(arm, "urgent")
    engine = former.engine if former is not None else arm.engine
    return Going(replace(arm, engine=engine, release=release), "", digest)


class Source(Protocol):
    """Where deployments come from."""

    def deployment(self, name: str) -> Deployment:
        """What `name` serves now. RequestError for an unknown name."""

    def harness(self, digest: str) -> Harness:
        """A harness that a running conversation is still on."""

    def known(self, name: str) -> bool:
        """Whether `deployment` answers at once."""

    def names(self) -> list[str]:
        """Names that are served: all, or those that were asked for so far."""

    def resolve(self, reference: str, name: str) -> tuple[str, Harness]:
        """(`NAME@sha256:…`, harness) of `NAME`, `NAME@POINTER` or `NAME@sha256:…`; "" is what `name` serves by itself.

        RequestError for what does not exist.
        """


def live_arm(name: str, harness: Harness, *, release: str = "", engine: str = "", urgent: bool = False) -> LiveArm:
    """An arm from a harness."""
    return LiveArm(name, release, harness_digest(harness), harness, compile_hooks(harness), engine, urgent)


class FolderSource:
    """Harness folders by name, one arm each; `set` replaces a deployment in place.

    `keep` holds a copy of every version that was served, so that conversations go on after a folder was edited and the
    gateway started again.
    """

    def __init__(self, folders: Mapping[str, Path] | None = None, *, keep: Path | None = None) -> None:
        self._deployments: dict[str, Deployment] = {}
        self._harnesses: dict[str, Harness] = {}
        self._keep = keep
        for name, folder in (folders or {}).items():
            arm = live_arm("stable", load_harness(folder))
            if keep is not None:
                _copy(folder, keep / arm.digest.removeprefix("sha256:"))
            self.set(Deployment(name, Split(name, (Arm("stable", 100),)), {"stable": arm}))

    def set(self, deployment: Deployment) -> None:
        """Serve `deployment` under its name from the next turn."""
        for arm in deployment.arms.values():
            self._harnesses[arm.digest] = arm.harness
        self._deployments[deployment.name] = deployment

    def deployment(self, name: str) -> Deployment:
        """What `name` serves now."""
        found = self._deployments.get(name)
        if found is None:
            raise RequestError(
                f"no harness or release called {name[:80]!r}",
                place="model",
                cure=f"one of: {', '.join(self._deployments)}",
            )
        return found

    def harness(self, digest: str) -> Harness:
        """A harness that was served."""
        found = self._harnesses.get(digest)
        if found is None and self._keep is not None:
            folder = self._keep / digest.removeprefix("sha256:")
            if folder.is_dir():
                found = self._harnesses[digest] = load_harness(folder)
        if found is None:
            raise UpstreamError(f"no harness {digest}")
        return found

    def known(self, name: str) -> bool:
        """A folder is always at hand."""
        return True

    def names(self) -> list[str]:
        """All of them."""
        return list(self._deployments)

    def resolve(self, reference: str, name: str) -> tuple[str, Harness]:
        """A folder's name, or a digest that was served."""
        wanted, selector = _parts(reference, name)
        if selector.startswith("sha256:"):
            try:
                return f"{wanted}@{selector}", self.harness(selector)
            except UpstreamError as error:
                raise RequestError(error.message, place="harness") from None
        if selector or wanted not in self._deployments:
            known = ", ".join(self._deployments)
            raise RequestError(f"no harness called {reference[:80]!r}", place="harness", cure=f"one of: {known}")
        arm = self._deployments[wanted].control
        return f"{wanted}@{arm.digest}", arm.harness


class RegistrySource:
    """The pointer `production` of a harness or a release in a registry, through its caching client.

    A name is a harness's, and where there is none, a release's; `harness:NAME` and `release:NAME` say which. A release is
    served by the engine of its own name where `engines` has one, else by the primary. A turn never waits for the registry:
    what was served once is answered from memory, and `follow` keeps that fresh.
    """

    def __init__(self, client: Client, pointer: str = "production", engines: Collection[str] = ()) -> None:
        self._client = client
        self._pointer = pointer
        self._engines = frozenset(engines)
        self._live: dict[str, Deployment] = {}
        self._names: dict[str, str] = {}
        self._watch: Watch | None = None
        self.muted: frozenset[str] = frozenset()
        """Rooms that the registry silenced; "*" is all."""

    def follow(self) -> None:
        """Hear of moves and mutes from now on, in a thread."""
        self._watch = Watch(self._client, self._heard)
        self._watch.start()

    def close(self) -> None:
        """Stop hearing."""
        if self._watch is not None:
            self._watch.close()

    def known(self, name: str) -> bool:
        """Whether `name` is answered from memory."""
        return name in self._live

    def deployment(self, name: str) -> Deployment:
        """What the pointer said last; a name that was never served is asked for, which may take seconds."""
        found = self._live.get(name)
        return found if found is not None else self._look(name)

    def _look(self, name: str) -> Deployment:
        try:
            arm = self._stands(name)
        except ClientError as error:
            if error.kind == "unavailable":
                raise UpstreamError(error.message, cure="start the registry; nothing is cached yet") from None
            raise RequestError(error.message, place="model") from None
        known = self._live.get(name)
        if known is not None and _same(known.control, arm):
            return known
        made = Deployment(name, Split(name, (Arm("stable", 100),)), {"stable": arm})
        self._live[name] = made
        return made

    def _stands(self, name: str) -> LiveArm:
        """The arm where the pointer stands: of a harness, else of a release. ClientError when there is neither."""
        plain = name.removeprefix("release:")
        if plain != name:
            return self._released(plain)
        try:
            plain = name.removeprefix("harness:")
            resolved, harness = self._client.harness(plain, self._pointer)
        except ClientError:
            if plain != name:
                raise
            # Also while the registry is away: a harness that was never served under this name is in no cache.
            with suppress(ClientError):
                return self._released(name)
            raise
        self._names[resolved.digest] = plain
        return live_arm("stable", harness, urgent=resolved.urgent)

    def _released(self, plain: str) -> LiveArm:
        """The arm of the release where the pointer stands."""
        released = self._client.release(plain, self._pointer)
        harness = self._client.by_digest(released.harness_name, released.harness)
        self._names[released.harness] = released.harness_name
        engine = plain if plain in self._engines else ""
        return live_arm("stable", harness, release=released.digest, engine=engine, urgent=released.urgent)

    def refresh(self) -> None:
        """Ask for everything that is served, and for mutes: what happened while nothing was heard. Blocking."""
        for name in list(self._live):
            self._look(name)
        self.muted = frozenset(json.loads(self._client.get("/api/v1/mutes"))["rooms"])

    def _heard(self, event: Event) -> None:
        """One event of the registry; what cannot be fetched now stays as it is."""
        try:
            if event.kind == "mute":
                room = str(event.data["room"])
                self.muted = self.muted | {room} if event.data["muted"] else self.muted - {room}
            elif event.kind == "pointer":
                moved = str(event.data.get("name"))
                for name in {moved, f"harness:{moved}", f"release:{moved}"} & set(self._live):
                    self._look(name)
            elif event.kind == "reset":
                self.refresh()
        except PlatformError as error:
            log.warning("the last good version goes on: %s", error.message)

    def harness(self, digest: str) -> Harness:
        """A harness by digest, from the cache or the registry."""
        return self._client.by_digest(self._names.get(digest, ""), digest)

    def names(self) -> list[str]:
        """Those that were asked for so far."""
        return sorted(self._live)

    def resolve(self, reference: str, name: str) -> tuple[str, Harness]:
        """A pointer of a harness, or one of its versions."""
        wanted, selector = _parts(reference, name)
        try:
            digest = selector if selector.startswith("sha256:") else ""
            if not digest:
                digest = self._client.resolve(wanted, selector or self._pointer).digest
            harness = self._client.by_digest(wanted, digest)
        except ClientError as error:
            if error.kind == "unavailable":
                raise UpstreamError(error.message, cure="start the registry") from None
            raise RequestError(error.message, place="harness") from None
        self._names[digest] = wanted
        return f"{wanted}@{digest}", harness


def _same(one: LiveArm, other: LiveArm) -> bool:
    parts = ((arm.digest, arm.release, arm.engine, arm.urgent) for arm in (one, other))
    return next(parts) == next(parts)


def _parts(reference: str, name: str) -> tuple[str, str]:
    """(harness name, pointer or digest) of a reference; a name alone has no selector."""
    wanted, _, selector = reference.removeprefix("harness:").partition("@")
    return wanted or name, selector


def _copy(folder: Path, target: Path) -> None:
    """A copy of a folder under its final name, whole or not at all."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as temporary:
        made = Path(temporary) / "harness"
        shutil.copytree(folder, made)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():
                raise
