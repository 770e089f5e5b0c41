"""The canary step: starts a rollout of the release that was proposed, and waits until it is promoted or taken back.

Input: `proposal` (of the step `release`). Always holds: the decision is the controller's, this step only asks for a
rollout and reads how it ends; started twice, it is one rollout; it never waits longer than its config says. Not here:
steps, gates and weights of a rollout (hat_serving.canary).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hat_components.canary.config import Config
from hat_components.data import digest_path, require_path, write_text
from hat_components.registry_http import RegistryError, RegistryHttp
from hat_components.step import InputError, Progress, StepError, StepResult
from hat_harness.errors import Kind

T = TypeVar("T")
ENDS = ("Healthy", "Degraded")


class NotPromotedError(StepError):
    """The release was taken back, was refused, or did not end in time."""

    kind: Kind = "check_failed"


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Write `canary.json`: the rollout as the console tells it at its end. Raises InputError, RegistryError, NotPromotedError."""
    proposal = json.loads(require_path(inputs, "proposal").read_text(encoding="utf-8"))
    if not (config.registry and config.spec and proposal.get("digest")):
        return _done(out, {"started": False, "why": _nothing(config, proposal), "proposal": proposal})
    spec = _filled(config.spec, proposal)
    name = config.name or f"{proposal['release']['name']}-{proposal['digest'].removeprefix('sha256:')[:12]}"
    console = RegistryHttp(config.registry, config.token_variable, config.request_s)
    if config.approval_s:
        _approved(console, config, str(proposal["proposal"]), progress)
    asked = {"namespace": config.namespace, "name": name, "spec": {**spec, "release": proposal["digest"]}}
    console.post("/canaries", asked)
    path = f"/canaries/{config.namespace}/{name}"
    last, ended = _watch(console, config, path, progress)
    said = f"{last.get('reason', 'the console does not answer')} {last.get('message', '')}".strip()
    if not ended:
        progress.warning(f"the rollout has not ended after {config.timeout_s:g} s: {said}")
        if config.on_timeout == "abort":
            console.post(f"{path}/abort", {})
    result = _done(out, {"started": True, "ended": ended, **last})
    if config.alarm and last.get("phase") != "Healthy":
        what = "was taken back" if ended else "has not ended in time"
        cure = f"hat canary status {name} -n {config.namespace}"
        raise NotPromotedError(f"{what}: {said}", place=f"{config.namespace}/{name}", cure=cure)
    return result


def _nothing(config: Config, proposal: Mapping[str, Any]) -> str:
    if not config.registry:
        return "no console is given"
    return "no rollout is given" if proposal.get("digest") else "the release was not sent to a registry"


def _filled(spec: Any, proposal: Mapping[str, Any]) -> Any:
    """The spec with the release's own digests. InputError for a release of its own."""
    if "release" in spec:
        raise InputError(
            "the rollout names a release; it is the proposed one", place="spec.release", cure="leave it out"
        )
    release, digest = proposal["release"], str(proposal["digest"])
    words = {"digest": digest, "short": digest.removeprefix("sha256:")[:12]}
    words |= {"model": str(release["model"]), "harness": str(release["harness"])}

    def filled(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: filled(value) for key, value in node.items()}
        if isinstance(node, list):
            return [filled(value) for value in node]
        for word, value in words.items():
            node = node.replace(f"<{word}>", value) if isinstance(node, str) else node
        return node

    return filled(spec)


def _approved(console: RegistryHttp, config: Config, identity: str, progress: Progress) -> None:
    """Waits for a person. NotPromotedError when the proposal is turned down, or nobody decides in time."""

    def state() -> str | None:
        found = str(console.get(f"/proposals/{identity}")["state"])
        return None if found == "open" else found

    decided = _until(state, config, config.approval_s)
    if decided not in ("approved", "moved"):
        what = f"the proposal is {decided}" if decided else f"nobody has decided in {config.approval_s:g} s"
        raise NotPromotedError(what, place=f"proposal {identity}", cure="approve it, then run the step again")
    progress.progress(0, 100, "the proposal is approved")


def _watch(console: RegistryHttp, config: Config, path: str, progress: Progress) -> tuple[dict[str, Any], bool]:
    """The rollout as it was seen last, and whether it has ended."""
    last: dict[str, Any] = {}
    looks = 0

    def ended() -> bool:
        nonlocal looks
        before = (last.get("phase"), last.get("step"), last.get("reason"))
        last.clear()
        last.update(console.get(path))
        looks += 1
        progress.metric("effective_weight", float(last["effective_weight"] or 0), looks)
        if (last["phase"], last["step"], last["reason"]) != before:
            note = f"{last['phase']}: {last['what']} {last['reason']}".strip()
            progress.progress(int(last["effective_weight"] or 0), 100, note)
        return last["phase"] in ENDS

    return last, bool(_until(ended, config, config.timeout_s))


def _until(fact: Callable[[], T | None], config: Config, seconds: float) -> T | None:
    """Asks until the answer is true, for at most `seconds`; an outage of the console shorter than its patience is sat out."""
    deadline, away = time.monotonic() + seconds, 0.0
    while True:
        try:
            if found := fact():
                return found
            away = 0.0
        except RegistryError as error:
            away = away or time.monotonic()
            if error.kind != "unavailable" or time.monotonic() - away > config.patience_s:
                raise
        if time.monotonic() >= deadline:
            return None
        time.sleep(config.interval_s)


def _done(out: Path, told: Mapping[str, Any]) -> StepResult:
    write_text(out / "canary.json", json.dumps(dict(told), indent=2) + "\n")
    phase = told.get("phase")
    return StepResult(
        artifacts={"canary": "canary.json"},
        digests={"canary": digest_path(out / "canary.json")},
        metrics={
            "started": float(bool(told["started"])),
            "promoted": float(phase == "Healthy"),
            "taken_back": float(phase == "Degraded"),
        },
    )
