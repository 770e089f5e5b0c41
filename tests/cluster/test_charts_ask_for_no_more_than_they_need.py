"""Charts render every scenario, refuse wrong values, run restricted, deny networks by default, watch metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest
import yaml

from tests.cluster import chart_docs
from tests.cluster.charts import CHARTS, OPERATOR, folder, pods, render, rules, scenarios, values
from tests.cluster.controlplane.cluster import REPOSITORY

SCENARIOS = pytest.mark.parametrize(("chart", "scenario"), scenarios())


@pytest.mark.parametrize("chart", CHARTS)
def test_charts_pass_helms_own_checks(chart: str) -> None:
    least = values(chart, "default")
    found = helm_python.lint(folder(chart), values=least, namespace="live")
    assert [entry for entry in found["messages"] if entry["severity"] > 1] == []


@SCENARIOS
def test_every_value_is_described(chart: str, scenario: str) -> None:
    """A key of a scenario or of the defaults that the schema does not know would be an error, so this renders."""
    assert render(chart, values(chart, scenario))
    defaults = yaml.safe_load((folder(chart) / "values.yaml").read_text())
    schema = json.loads((folder(chart) / "values.schema.json").read_text())
    assert unknown(defaults, schema) == []


def unknown(chosen: Any, schema: dict[str, Any], at: str = "") -> list[str]:
    if not isinstance(chosen, dict) or "properties" not in schema:
        return []
    missing = [f"{at}{key}" for key in chosen if key not in schema["properties"]]
    return missing + [
        m
        for key, value in chosen.items()
        if key in schema["properties"]
        for m in unknown(value, schema["properties"][key], f"{at}{key}.")
    ]


@pytest.mark.parametrize("chart", CHARTS)
def test_what_a_cluster_gets_changes_only_in_sight(chart: str) -> None:
    kept = (chart_docs.SNAPSHOTS / f"{chart}.yaml").read_text()
    assert kept == chart_docs.snapshot(chart), "run python -m tests.cluster.chart_docs and look at the diff"


@pytest.mark.parametrize("chart", CHARTS)
def test_the_readme_is_made_from_the_values_and_names_them_all(chart: str) -> None:
    page = (folder(chart) / "README.md").read_text()
    assert page == chart_docs.readme(chart), "run python -m tests.cluster.chart_docs"
    undescribed = [key for key, _, text in chart_docs.described(folder(chart) / "values.yaml") if not text]
    assert len(undescribed) < 60


@pytest.mark.parametrize(
    ("chart", "wrong"),
    [
        ("hatstack", {"contoller": {}}),
        ("hatstack", {"controller": {"replicas": 0}}),
        ("hatstack", {"image": {"digest": "sha256:short"}}),
        ("hatstack", {"console": {"httpRoute": {"enabled": True, "parentRefs": []}}}),
        ("hatstack", {"console": {"replicas": 2}}),
        ("hatstack-serving", {"engine": {"model": {"storageUri": "models:/chat@best"}}}),
        ("hatstack-serving", {}),
        ("hatstack-serving", {"engine": {"gpus": 9}}),
        ("hatstack-serving", {"monitoring": {"interval": "often"}}),
        ("hatstack-serving", {"monitoring": {"firstTextSeconds": 2.5}}),
        ("hatstack", {"controller": {"registry": {"url": "hatstack-console"}}}),
    ],
)
def test_wrong_values_are_refused(chart: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmError):
        render(chart, wrong)


@SCENARIOS
def test_pods_can_do_nothing_that_they_need_not(chart: str, scenario: str) -> None:
    for name, template in pods(render(chart, values(chart, scenario))):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["serviceAccountName"] != "default", name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"]["memory"], name
            assert container["resources"]["limits"]["memory"], name
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe], f"{name} has no {probe}"


@SCENARIOS
def test_only_who_has_rights_gets_a_token(chart: str, scenario: str) -> None:
    manifests = render(chart, values(chart, scenario))
    with_token = {
        name for name, template in pods(manifests) if template["spec"].get("automountServiceAccountToken") is not False
    }
    rights = {
        subject["name"]
        for entry in manifests
        if entry["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in entry["subjects"]
    }
    assert all("canary" in name or "console" in name for name in with_token)
    assert with_token >= rights
    accounts = [entry for entry in manifests if entry["kind"] == "ServiceAccount"]
    assert all(entry["automountServiceAccountToken"] is False for entry in accounts)


@SCENARIOS
def test_every_pod_is_under_the_denying_policy_and_a_budget(chart: str, scenario: str) -> None:
    manifests = render(chart, values(chart, scenario))
    deny = [
        entry for entry in manifests if entry["kind"] == "NetworkPolicy" and entry["metadata"]["name"].endswith("-deny")
    ]
    budgets = [
        entry["spec"]["selector"]["matchLabels"] for entry in manifests if entry["kind"] == "PodDisruptionBudget"
    ]
    for name, template in pods(manifests):
        labels = template["metadata"]["labels"]
        assert any(selects(entry["spec"]["podSelector"]["matchLabels"], labels) for entry in deny), name
        assert any(selects(budget, labels) for budget in budgets), name
    for entry in deny:
        assert sorted(entry["spec"]["policyTypes"]) == ["Egress", "Ingress"]
        assert "ingress" not in entry["spec"]
        assert "egress" not in entry["spec"]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@SCENARIOS
def test_roles_name_what_they_touch(chart: str, scenario: str) -> None:
    for entry in render(chart, values(chart, scenario)):
        if entry["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in entry["rules"]:
            said = json.dumps(rule)
            assert "*" not in said, said
            assert "secrets" not in rule["resources"], said
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), said
            assert not any(resource.startswith("pods/") for resource in rule["resources"]), said


@SCENARIOS
def test_no_secret_is_made_and_no_image_floats(chart: str, scenario: str) -> None:
    manifests = render(chart, values(chart, scenario))
    assert not [entry for entry in manifests if entry["kind"] == "Secret"]
    images = [c["image"] for _, template in pods(manifests) for c in template["spec"]["containers"]]
    images += [
        c["image"] for entry in manifests if entry["kind"] == "ServingRuntime" for c in entry["spec"]["containers"]
    ]
    assert all(re.search(r"(:v?\d|@sha256:[0-9a-f]{64})", image) for image in images), images


def test_a_digest_wins_over_the_tag() -> None:
    ((_, template), *_) = pods(render("hatstack", values("hatstack", "ha")))
    assert "@sha256:" in template["spec"]["containers"][0]["image"]


def test_a_new_version_of_the_chart_does_not_reload_the_weights() -> None:
    """KServe copies the service's labels to its pods."""
    manifests = render("hatstack-serving", values("hatstack-serving", "default"))
    (service,) = [entry for entry in manifests if entry["kind"] == "InferenceService"]
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(service["metadata"]["labels"])


class Ones:
    """Stands for the state of an engine: whatever is asked is 1."""

    def __getattr__(self, name: str) -> object:
        return {"extra_metric_labels": {}, "recent": [(1, 1)], "name": "m"}.get(name, 1)


def exported() -> dict[str, set[str]]:
    """Metric → its labels: gateway, canary controller, and the dev engine, whose names are held to the real SGLang's."""
    from hat_serving.canary.observe import Observer
    from hat_serving.engine.metrics import Metrics as EngineMetrics
    from hat_serving.gateway.metrics import Metrics

    engine = Ones()
    vars(engine).update(options=Ones(), scheduler=Ones())
    vars(engine.scheduler).update(counters=Ones())
    registries = [Metrics().collector, Observer(Kubeless()).collector, EngineMetrics(engine).registry]  # type: ignore[arg-type]  # only its state is read
    known: dict[str, set[str]] = {}
    for registry in registries:
        for name, collector in registry._names_to_collectors.items():
            known[name] = set(getattr(collector, "_labelnames", ()))
        for family in registry.collect():
            for sample in family.samples:
                known[sample.name] = known.get(sample.name, set()) | set(sample.labels)
    return known


class Kubeless:
    """No API server: nothing is told to it here."""


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of a PromQL expression with the labels that it is told apart by."""
    grouped = {word.strip() for found in re.findall(r"by \(([^)]*)\)", expression) for word in found.split(",")}
    for name, braces in re.findall(r"(hatstack_[a-z_]+)(?:\{([^}]*)\})?", expression):
        yield name, grouped | set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', braces)))
    for braces in re.findall(r"\{(__name__=[^}]*)\}", expression):
        (name,) = re.findall(r'__name__="(sglang:[a-z_]+)"', braces)
        more = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', braces))) - {"__name__"}
        yield name, grouped | more


def expressions() -> Iterator[str]:
    for group in rules()["spec"]["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for path in (folder("hatstack-serving") / "files" / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            yield from (target["expr"] for target in panel["targets"])
    from hat_serving.canary import presets

    for name in (*presets.ENGINE_GATES, *presets.GATEWAY_GATES):
        made = presets.gate(name, "sglang")
        kind = next(made[key] for key in ("threshold", "share", "sampleRatio") if key in made)
        yield from (text for key, text in kind.items() if key in ("query", "sampleQuery", "events", "total", "units"))


def test_alerts_dashboards_and_gates_ask_for_metrics_and_labels_that_exist() -> None:
    known, wrong, seen = exported(), [], set()
    for expression in expressions():
        for name, labels in asked(expression):
            seen.add(name)
            # `le` is a bucket's, `predictor` and `arm` of engines come from the chart's PodMonitor or the scrape.
            free = {"le"} | ({"predictor", "arm", "release"} if name.startswith("sglang:") else set())
            if name not in known or labels - known[name] - free:
                wrong.append((name, sorted(labels - known.get(name, set()) - free), expression))
    assert wrong == []
    assert len(seen) > 15


def test_every_alert_has_a_runbook() -> None:
    page = (REPOSITORY / "docs" / "runbooks.md").read_text()
    alerts = [rule for group in rules()["spec"]["groups"] for rule in group["rules"]]
    for alert in alerts:
        assert alert["annotations"]["runbook"] == f"docs/runbooks.md#{alert['alert'].lower()}"
        section = page.split(f"## {alert['alert']}\n", 1)[1].split("\n## ", 1)[0]
        assert len(section.split()) > 20, alert["alert"]
    assert set(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == {alert["alert"] for alert in alerts}


def test_the_first_text_objective_is_a_bound_of_the_histogram() -> None:
    from hat_serving.gateway.metrics import SECONDS

    schema = json.loads((folder("hatstack-serving") / "values.schema.json").read_text())
    allowed = schema["properties"]["monitoring"]["properties"]["firstTextSeconds"]["enum"]
    assert set(allowed) <= set(SECONDS)


def test_operator_objects_are_only_made_when_asked_for() -> None:
    for chart in CHARTS:
        assert not [entry for entry in render(chart, values(chart, "default")) if entry["apiVersion"] == OPERATOR]
