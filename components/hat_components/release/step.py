"""The release step: registers a release with its evidence and proposes to move a pointer to it.

Inputs: `model` (folder), `harness` (folder), `evaluation`, and `registration` where the model stands in MLflow; of several
arms (`model-hsa`, `evaluation-hsa`) the registered one is proposed. Always
holds: it approves nothing and moves nothing; sent twice, it changes nothing the second time. Without a registry it
writes what it would have sent. Not here: gates and approvals (the registry), the canary.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hat_components.data import digest_path, require_path, write_text
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.release.config import Config
from hat_components.step import InputError, Progress, StepError, StepResult
from hat_harness.errors import Kind


class RegistryError(StepError):
    """The registry does not answer, or refuses; `kind` says which."""

    def __init__(self, message: str, kind: Kind, *, place: str, cure: str = "") -> None:
        super().__init__(message, place=place, cure=cure)
        self.kind = kind


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Send release, evidence and proposal; write `proposal.json`. Raises InputError, RegistryError."""
    registration = json.loads(inputs["registration"].read_text(encoding="utf-8")) if "registration" in inputs else {}
    inputs = _of_arm(inputs, str(registration.get("arm", "")))
    evaluation = load_evaluation(require_path(inputs, "evaluation"))
    model = digest_path(require_path(inputs, "model"))
    if evaluation.model != model:
        raise InputError(
            "the evaluation is of another model",
            place=str(inputs["evaluation"]),
            cure="evaluate the model that is released",
        )
    content = {
        "name": config.name,
        "model": model,
        "model_reference": str(registration.get("model", "")),
        "harness": evaluation.harness,
        "profile": config.serving_profile,
    }
    answer = _send(config, content, evaluation) if config.registry else {"sent": False}
    write_text(out / "proposal.json", json.dumps({"release": content, **answer}, indent=2) + "\n")
    return StepResult(
        artifacts={"proposal": "proposal.json"},
        digests={"proposal": digest_path(out / "proposal.json")},
        metrics={"sent": float(bool(config.registry)), "gates_passed": float(answer.get("passed", 0))},
        notes=answer,
    )


def _of_arm(inputs: Mapping[str, Path], arm: str) -> dict[str, Path]:
    """The inputs with those of the registered arm (`model-hsa`) under their plain names."""
    suffix = f"-{arm}"
    return {**inputs, **{name.removesuffix(suffix): path for name, path in inputs.items() if name.endswith(suffix)}}


def _send(config: Config, content: Mapping[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    registry = _Registry(config)
    made = registry.post("/releases", content)
    piece = {
        "subject": made["digest"],
        "type": "evaluation",
        "content": {
            suite.id: {"n": suite.n, **{name: score.model_dump(mode="json") for name, score in suite.scores.items()}}
            for suite in evaluation.suites
        },
        "made_by": {"config": evaluation.config, "dataset": evaluation.dataset, "run": config.run},
    }
    shown = registry.post("/evidence", piece)
    proposal = registry.post(
        "/proposals",
        {
            "kind": "release",
            "name": config.name,
            "pointer": config.pointer,
            "digest": made["digest"],
            "reason": config.reason,
        },
        key=f"{config.run or 'run'}-{made['digest'][-24:]}",
    )
    gates = registry.post(f"/proposals/{proposal['id']}/gates", {})["gates"]
    return {
        "sent": True,
        "digest": made["digest"],
        "evidence": shown["digest"],
        "proposal": proposal["id"],
        "passed": sum(one.get("outcome") == "passed" for one in gates),
        "gates": gates,
    }


class _Registry:
    """The registry's API under one token."""

    def __init__(self, config: Config) -> None:
        self._base, self._timeout = config.registry.rstrip("/") + "/api/v1", config.timeout_s
        self._token = os.environ.get(config.token_variable, "")
        if not self._base.startswith(("http://", "https://")):
            raise InputError("the registry's address is no URL", place=config.registry)

    def post(self, path: str, body: Mapping[str, Any], *, key: str = "") -> dict[str, Any]:
        """The parsed answer."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if key:
            headers["Idempotency-Key"] = key
        request = urllib.request.Request(f"{self._base}{path}", json.dumps(dict(body)).encode(), headers)  # noqa: S310  # http(s), checked above
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310  # as above
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            raise self._refused(error, path) from None
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            told = str(getattr(error, "reason", error))
            raise RegistryError(
                f"the registry does not answer: {told}", "unavailable", place=self._base, cure="run the step again"
            ) from None

    def _refused(self, error: urllib.error.HTTPError, path: str) -> RegistryError:
        kinds: dict[int, Kind] = {401: "forbidden", 403: "forbidden", 409: "conflict", 429: "unavailable"}
        kind: Kind = kinds.get(error.code, "unavailable" if error.code >= 500 else "invalid_input")
        try:
            told = json.loads(error.read())
        except ValueError:
            told = {}
        message = f"{error.code} {told.get('title', error.reason)}"
        return RegistryError(message, kind, place=f"{self._base}{path}", cure=str(told.get("cure", "")))
