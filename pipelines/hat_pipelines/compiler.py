"""Writes the YAML that a cluster gets: the KFP pipeline and the Argo WorkflowTemplate of a profile's DAG.

Always holds: the same code and profile give the same bytes, so a test can compare the committed files with the code.
Not here: how they are derived (to_kfp, to_hera), submitting.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hat_pipelines.dag import Dag
from hat_pipelines.plan import Job
from hat_pipelines.profile import Profile
from hat_pipelines.runs import write_text


def render(profile: Profile) -> dict[str, str]:
    """File name → content, for both forms of the profile's pipeline.

    Configs hold what the profile sets; defaults are those of the image, whose tag is the version of this package.
    """
    dag = profile.dag()
    configs = {step.name: profile.config(step).model_dump(mode="json", exclude_unset=True) for step in dag.every()}
    stem = f"{dag.name}-{profile.name}"
    head = f"# hat pipeline compile {dag.name} --profile {profile.name}\n"
    return {
        f"{stem}.kfp.yaml": head + _kfp(profile, dag, configs),
        f"{stem}.kfp-version.yaml": head + _kfp(profile, dag, configs, manifests=True),
        f"{stem}.argo.yaml": head + _argo(profile, dag, configs),
    }


def write(profile: Profile, folder: Path, *, dry_run: bool = False) -> list[tuple[Path, bool]]:
    """Write the files that differ from what stands; returns each path and whether it differed."""
    written = []
    for name, text in render(profile).items():
        path = folder / name
        changed = not path.is_file() or path.read_text(encoding="utf-8") != text
        if changed and not dry_run:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        written.append((path, changed))
    return written


def argo_manifest(job: Job) -> dict[str, Any]:
    """The WorkflowTemplate of a job, as data."""
    found: dict[str, Any] = yaml.safe_load(_argo(job.profile, job.dag, _configs(job)))
    return found


def kfp_manifest(job: Job) -> list[dict[str, Any]]:
    """The pipeline spec of a job and, where it needs one, its platform spec."""
    return list(yaml.safe_load_all(_kfp(job.profile, job.dag, _configs(job))))


def _configs(job: Job) -> dict[str, dict[str, Any]]:
    return {name: config.model_dump(mode="json") for name, config in job.configs.items()}


def _kfp(profile: Profile, dag: Dag, configs: Mapping[str, Mapping[str, Any]], *, manifests: bool = False) -> str:
    """The pipeline's IR, or with `manifests` the Pipeline and PipelineVersion that a Kubernetes-native store takes."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore")
        from kfp import compiler
        from kfp.compiler.compiler_utils import KubernetesManifestOptions

        from hat_pipelines.to_kfp import to_kfp

        path = Path(scratch) / "pipeline.yaml"
        name = f"{dag.name}-{profile.name}"
        options = KubernetesManifestOptions(
            pipeline_name=name, pipeline_version_name=name, namespace="kubeflow", include_pipeline_manifest=True
        )
        more = {"kubernetes_manifest_format": True, "kubernetes_manifest_options": options} if manifests else {}
        compiler.Compiler().compile(to_kfp(dag, profile, configs), str(path), **more)
        return dump(*yaml.safe_load_all(path.read_text(encoding="utf-8")))


def _argo(profile: Profile, dag: Dag, configs: Mapping[str, Mapping[str, Any]]) -> str:
    from hat_pipelines.to_hera import to_hera

    return dump(to_hera(dag, profile, configs).to_dict())


class _Dumper(yaml.SafeDumper):
    """Our own style of YAML: hera changes PyYAML's for the whole process, so the result would depend on imports."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text.strip("\n") else None)


_Dumper.add_representer(str, _text)


def dump(*documents: Any) -> str:
    """Documents as YAML, the same whatever was imported."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text
