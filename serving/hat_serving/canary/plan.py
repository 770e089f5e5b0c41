"""From few words to a whole rollout: target, arms, and steps with gates, as they stand in a manifest.

Not here: what the fields mean (spec), which gates there are (presets).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from hat_serving.canary.errors import InvalidRolloutError
from hat_serving.canary.presets import Engine, gate


def service_target(
    name: str, service: str, uri: str, replicas: int, arguments: Sequence[str], digest: str = ""
) -> dict[str, Any]:
    """An InferenceService's canary, called by the last word of the rollout's name."""
    if not re.match(r"[a-z0-9+]+://", uri) or uri.startswith("models:"):
        raise InvalidRolloutError(
            f"{uri[:80]!r} is no concrete URI of weights", place="--uri", cure="e.g. s3://models/chat/v8"
        )
    canary: dict[str, Any] = {"name": name.rpartition("-")[2], "storageUri": uri, "replicas": replicas}
    if digest:
        canary["digest"] = digest
    if arguments:
        canary["patch"] = {"model": {"args": list(arguments)}}
    return {"backend": "httproute", "inferenceService": service, "canary": canary}


def group_target(stable: str, member: str) -> dict[str, Any]:
    """Two LLMInferenceServices of one route group."""
    if not stable or stable == member:
        raise InvalidRolloutError(
            "a route group's canary needs the member that serves now", place="target", cure="--stable with --member"
        )
    return {"backend": "llmisvc", "stable": stable, "canaryMember": member}


def gateway_target(url: str, deployment: str, harness: str, engine: str, urgent: bool) -> dict[str, Any]:
    """A deployment of a gateway; without a harness or an engine of its own the canary would be the stable one."""
    if not deployment or not (harness or engine):
        raise InvalidRolloutError(
            "a gateway's canary needs a deployment, and a harness or an engine that differs",
            place="target",
            cure="--deployment with --harness NAME@sha256:… or --gateway-engine",
        )
    made: dict[str, Any] = {"backend": "gateway", "url": url, "deployment": deployment}
    made |= {key: value for key, value in (("harness", harness), ("engine", engine)) if value}
    return made | ({"urgent": True} if urgent else {})


def arms(target: dict[str, Any], stable: str = "") -> dict[str, Any]:
    """Label values that tell the arms apart: the predictors' names, or the gateway's arms."""
    if target["backend"] == "gateway":
        return {"arms": {"stable": "stable", "canary": "canary"}}
    if target["backend"] == "llmisvc":
        return {"arms": {"stable": target["stable"], "canary": target["canaryMember"]}}
    service, canary = target["inferenceService"], target["canary"]["name"]
    before = f"{service}-{stable}-predictor" if stable else f"{service}-predictor"
    return {"arms": {"stable": before, "canary": f"{service}-{canary}-predictor"}}


def measured(weights: str, wait: str, gates: Sequence[str], engine: str) -> dict[str, Any]:
    """Steps and metrics: at each weight a pause, then every gate; engine gates and gateway gates may be mixed."""
    try:
        percents = [int(part) for part in weights.split(",")]
    except ValueError:
        raise InvalidRolloutError(f"{weights[:80]!r} are no weights", place="--steps", cure="e.g. 1,10,50") from None
    if engine not in ("sglang", "vllm"):
        raise InvalidRolloutError(f"no engine is called {engine[:40]!r}", place="--engine", cure="sglang or vllm")
    metrics = [gate(one, cast(Engine, engine)) for one in gates]
    steps: list[dict[str, Any]] = []
    for percent in percents:
        steps += [{"setWeight": percent}, {"pause": {"duration": wait}}]
        steps += [{"analysis": {"deadline": "2h"}}] if metrics else []
    return {"steps": steps, "metrics": metrics} if metrics else {"steps": steps}
