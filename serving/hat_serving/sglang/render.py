"""A release as values of the chart `hatstack-serving`, and as manifests where Helm's library or program is at hand.

Always holds: the chart is the only renderer, so that what is rendered by hand and what is installed are the same; flags
that the chart's runtime sets itself are left to it. Not here: rolling it out (canary).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hat_serving.errors import SettingsError
from hat_serving.sglang.flags import sglang_flags
from hat_serving.sglang.profile import ServingProfile

RUNTIME = ("--model-path", "--host", "--port", "--served-model-name", "--enable-metrics")
"""Flags of the chart's ServingRuntime."""
IMAGES = {13: "v{version}", 12: "v{version}-cu129", None: "v{version}"}
"""Tag of SGLang's image by major CUDA version."""
HEX = 12


def chart_values(
    release: Mapping[str, Any],
    profile: ServingProfile,
    storage_uri: str,
    *,
    service: str,
    workspace: str,
    group: str = "",
    weight: int = 0,
) -> dict[str, Any]:
    """Values for the chart. `release` is a `hatstack.release/1` with its digest; SettingsError for another profile.

    With a `group` the service is an LLMInferenceService, a member of it with `weight` percent of its traffic.
    """
    if profile.digest != release["profile"]:
        raise SettingsError(
            f"profile {profile.name} is {profile.digest}, the release has {release['profile']}", place="profile"
        )
    short = str(release["digest"]).removeprefix("sha256:")[:HEX]
    flags = sglang_flags(profile, labels={"release": short})
    member = {"name": group, "model": group, "weight": weight}
    kind = {"kind": "LLMInferenceService", "group": member} if group else {}
    return {
        "release": short,
        "workspace": workspace,
        "engine": {
            **kind,
            "name": service,
            "predictor": f"r-{short}",
            "image": {"tag": IMAGES[profile.cuda].format(version=profile.sglang)},
            "model": {"storageUri": storage_uri, "digest": str(release["model"])},
            "args": _beside_runtime(flags),
            "gpus": profile.tp_size if profile.device == "cuda" else 0,
            "gpuProduct": profile.gpu,
        },
    }


def _beside_runtime(flags: list[str]) -> list[str]:
    """Flags with their values, without those that the runtime sets."""
    kept: list[str] = []
    own = False
    for word in flags:
        own = word in RUNTIME if word.startswith("--") else own
        if not own:
            kept.append(word)
    return kept


def release_map(release: Mapping[str, Any], namespace: str, workspace: str) -> dict[str, Any]:
    """A ConfigMap that says on the cluster what the release is: model, harness and profile by digest."""
    short = str(release["digest"]).removeprefix("sha256:")[:HEX]
    told = {key: release[key] for key in ("digest", "name", "model", "model_reference", "harness", "profile")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"release-{release['name']}-{short}",
            "namespace": namespace,
            "labels": {"hatstack.dev/release": short, "hatstack.dev/workspace": workspace},
        },
        "immutable": True,
        "data": {"release.json": json.dumps(told, indent=1, sort_keys=True) + "\n"},
    }


def manifests(chart: Path, values: Mapping[str, Any], *, name: str, namespace: str) -> list[dict[str, Any]]:
    """Every object that the chart makes of `values`. SettingsError with Helm's own words, or where there is no Helm."""
    if not (chart / "Chart.yaml").is_file():
        raise SettingsError("there is no chart", place=str(chart))
    try:
        import helm_python
    except ImportError:
        texts = [_helm_template(chart, values, name, namespace)]
    else:
        try:
            with helm_python.Chart.load(chart) as loaded:
                made = loaded.render(dict(values), name=name, namespace=namespace)
        except helm_python.HelmError as error:
            raise SettingsError(" ".join(str(error).split())[:500], place=str(chart)) from None
        texts = [text for path, text in sorted(made.items()) if path.endswith(".yaml") and "/tests/" not in path]
    return [entry for text in texts for entry in yaml.safe_load_all(text) if entry]


def _helm_template(chart: Path, values: Mapping[str, Any], name: str, namespace: str) -> str:
    helm = shutil.which("helm")
    if helm is None:
        raise SettingsError("Helm is not installed: leave the chart out for the values alone", place="helm")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(dict(values), file)
        file.flush()
        command = [helm, "template", name, str(chart), "--namespace", namespace, "--values", file.name, "--skip-tests"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise SettingsError(" ".join(done.stderr.split())[:500], place=str(chart))
    return done.stdout
