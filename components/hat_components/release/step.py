"""The release step: registers a release with its evidence and proposes to move a pointer to it.

Inputs: `model` (folder), `harness` (folder), `evaluation`, and `registration` where the model stands in MLflow; of several
arms (`model-hsa`, `evaluation-hsa`) the registered one is proposed. Always
holds: it approves nothing and moves nothing; sent twice, it changes nothing the second time. Without a registry it
writes what it would have sent. Not here: gates and approvals (the registry), the canary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hat_components.data import digest_path, require_path, write_text
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.registry_http import RegistryHttp
from hat_components.release.config import Config
from hat_components.step import InputError, Progress, StepResult


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
    registry = RegistryHttp(config.registry, config.token_variable, config.timeout_s)
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
