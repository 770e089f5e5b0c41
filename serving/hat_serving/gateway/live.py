"""What is live under a name: arms, each with a harness and an engine, from a folder or from a registry's pointers.

Always holds: a name is resolved to digests before a turn starts, and a turn sees one consistent answer. While the
registry is away the last good answer stands. Not here: assignment (experiment.assignment), rollouts (canary).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hat_harness.digest import harness_digest
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.load import load_harness
from hat_harness.spec import Harness
from hat_registry.client import Client, ClientError
from hat_serving.errors import RequestError, UpstreamError
from hat_serving.experiment.assignment import Arm, Split


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


class Source(Protocol):
    """Where deployments come from."""

    def deployment(self, name: str) -> Deployment:
        """What `name` serves now. RequestError for an unknown name."""

    def harness(self, digest: str) -> Harness:
        """A harness that a running conversation is still on."""


def live_arm(name: str, harness: Harness, *, release: str = "", engine: str = "", urgent: bool = False) -> LiveArm:
    """An arm from a harness."""
    return LiveArm(name, release, harness_digest(harness), harness, compile_hooks(harness), engine, urgent)


class FolderSource:
    """Harness folders by name, one arm each; `set` replaces a deployment in place (tests, canaries without a cluster)."""

    def __init__(self, folders: Mapping[str, Path] | None = None) -> None:
        self._deployments: dict[str, Deployment] = {}
        self._harnesses: dict[str, Harness] = {}
        for name, folder in (folders or {}).items():
            arm = live_arm("stable", load_harness(folder))
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
        if found is None:
            raise UpstreamError(f"no harness {digest}")
        return found


class RegistrySource:
    """The pointer `production` of a harness in a registry, through its caching client."""

    def __init__(self, client: Client, pointer: str = "production") -> None:
        self._client = client
        self._pointer = pointer
        self._arms: dict[tuple[str, str, bool], LiveArm] = {}
        self._names: dict[str, str] = {}

    def deployment(self, name: str) -> Deployment:
        """What the pointer says now."""
        try:
            resolved, harness = self._client.harness(name, self._pointer)
        except ClientError as error:
            if error.kind == "unavailable":
                raise UpstreamError(error.message, cure="start the registry; nothing is cached yet") from None
            raise RequestError(error.message, place="model") from None
        key = (name, resolved.digest, resolved.urgent)
        if key not in self._arms:
            self._arms[key] = live_arm("stable", harness, urgent=resolved.urgent)
            self._names[resolved.digest] = name
        return Deployment(name, Split(name, (Arm("stable", 100),)), {"stable": self._arms[key]})

    def harness(self, digest: str) -> Harness:
        """A harness by digest, from the cache or the registry."""
        return self._client.by_digest(self._names.get(digest, ""), digest)
