"""The YAML that a cluster gets is what the code derives, loads as what it claims to be, and carries every step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from hat_pipelines import compiler, dags, profile
from hat_pipelines.cluster import config_text
from hat_pipelines.dag import parents
from hat_pipelines.plan import Job
from hat_pipelines.to_hera import INFRASTRUCTURE
from hatstack import paths

ROOT = Path(__file__).resolve().parents[2]
COMPILED = ROOT / "pipelines" / "compiled"


def h20(pipeline: str) -> profile.Profile:
    return profile.load(paths.profile("h20"), [f"pipeline={pipeline}"])


@pytest.fixture(scope="module", params=dags.names())
def rendered(request: pytest.FixtureRequest) -> tuple[profile.Profile, dict[str, str]]:
    loaded = h20(request.param)
    return loaded, compiler.render(loaded)


def test_the_committed_files_are_those_of_the_code(rendered: tuple[profile.Profile, dict[str, str]]) -> None:
    stale = [name for name, text in rendered[1].items() if (COMPILED / name).read_text() != text]
    assert stale == [], "run `hat pipeline compile`"


def test_a_second_compilation_is_the_same(rendered: tuple[profile.Profile, dict[str, str]]) -> None:
    assert compiler.render(rendered[0]) == rendered[1]


def test_no_file_is_left_over() -> None:
    expected = {f"{name}-h20.{kind}.yaml" for name in dags.names() for kind in ("kfp", "kfp-version", "argo")}
    assert {path.name for path in COMPILED.glob("*.yaml")} == expected


def test_kfp_has_every_step_with_its_resources(rendered: tuple[profile.Profile, dict[str, str]]) -> None:
    loaded, texts = rendered
    ir = next(yaml.safe_load_all(next(text for name, text in texts.items() if ".kfp." in name)))
    tasks = dict(tasks_of(ir))
    dag = loaded.dag()
    assert set(tasks) == {step.name for step in dag.every()} | set(dag.inputs)
    for step in dag.steps:
        if step.when is None:  # inside a condition what it needs comes through the condition's own inputs
            assert parents(step) <= set(tasks[step.name].get("dependentTasks", ()))
        config = json.loads(
            ir["root"]["inputDefinitions"]["parameters"][f"config_{step.name.replace('-', '_')}"]["defaultValue"]
        )
        assert type(loaded.config(step)).model_validate(config) == loaded.config(step)
    wanted = loaded.cluster.resources.get("sft")
    if wanted and "sft-hsa" in tasks and dag.step("sft-hsa").base == "sft":
        found = ir["deploymentSpec"]["executors"]["exec-sft-hsa"]["container"]["resources"]
        assert found["accelerator"]["resourceCount"] == str(wanted.gpus * loaded.processes(dag.step("sft-hsa")))


def test_kfp_reads_every_form_and_parameters_say_what_they_are(
    rendered: tuple[profile.Profile, dict[str, str]],
) -> None:
    loaded, texts = rendered
    spec, *platform = yaml.safe_load_all(next(text for name, text in texts.items() if ".kfp." in name))
    message = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    for document in platform:
        json_format.ParseDict(document["platforms"]["kubernetes"], pipeline_spec_pb2.SinglePlatformSpec())
    parameters = message.root.input_definitions.parameters
    for name in loaded.dag().inputs:
        assert "URI" in parameters[name].description
    for step in loaded.dag().every():
        told = parameters[f"config_{step.name.replace('-', '_')}"].description
        assert f"config of step {step.name} ({step.component}) as JSON" in told
        assert step.component != "sft" or "fit.trainer is one of plain, trl" in told
    version = next(text for name, text in texts.items() if ".kfp-version." in name)
    pipeline, made = yaml.safe_load_all(version)
    assert (pipeline["kind"], made["kind"]) == ("Pipeline", "PipelineVersion")
    assert made["spec"]["pipelineName"] == pipeline["metadata"]["name"]
    assert made["spec"]["pipelineSpec"]["root"] == spec["root"]


def tasks_of(ir: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Task name → task, those inside conditions and exit handlers too."""
    groups = [ir["root"], *ir["components"].values()]
    for group in groups:
        for task in group.get("dag", {}).get("tasks", {}).values():
            name = task["taskInfo"]["name"]
            if not name.startswith(("exit-handler", "condition")):
                yield name, task


def argo(texts: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(next(text for name, text in texts.items() if ".argo." in name))
    return found


def test_argo_runs_a_step_only_after_what_it_needs(rendered: tuple[profile.Profile, dict[str, str]]) -> None:
    from hera.workflows.models import WorkflowTemplate

    loaded, texts = rendered
    document = argo(texts)
    WorkflowTemplate.model_validate(document)
    dag = loaded.dag()
    templates = {template["name"]: template for template in document["spec"]["templates"]}
    tasks = {task["name"]: task for task in templates["dag"]["dag"]["tasks"]}
    for step in dag.steps:
        behind = sorted(parents(step))
        assert tasks[step.name].get("depends", "") == " && ".join(f"{name}.Succeeded" for name in behind)
        handed = {artifact["name"] for artifact in tasks[step.name].get("arguments", {}).get("artifacts", ())}
        own = {
            artifact["name"]
            for artifact in templates[step.name].get("inputs", {}).get("artifacts", ())
            if "s3" in artifact
        }
        assert handed | own == {f"i{index}" for index in range(len(step.needs))}


def test_configs_hold_nothing_that_a_cluster_takes_for_a_placeholder(make_job: Any) -> None:
    text = config_text({"template": "{{name}}", "nested": {"a": {"b": 1}}})
    assert "{{" not in text
    assert json.loads(text) == {"template": "{{name}}", "nested": {"a": {"b": 1}}}


def test_conditions_and_retries_reach_the_cluster(make_job: Any) -> None:
    job: Job = make_job()
    texts = compiler.render(job.profile)
    document = argo(texts)
    templates = {template["name"]: template for template in document["spec"]["templates"]}
    total = next(task for task in templates["dag"]["dag"]["tasks"] if task["name"] == "total")
    assert total["when"] == "{{tasks.draw.outputs.parameters.metric}} >= 4"
    retry = templates["add-hsa"]["retryStrategy"]
    assert (retry["expression"], retry["limit"]) == (INFRASTRUCTURE, "2")
    ir = next(yaml.safe_load_all(texts["toys-toy.kfp.yaml"]))
    conditional = [task for task in ir["root"]["dag"]["tasks"].values() if "triggerPolicy" in task]
    assert ">= 4" in conditional[0]["triggerPolicy"]["condition"]
    assert ir["root"]["dag"]["tasks"]["add-hsa"]["retryPolicy"]["maxRetryCount"] == 1
