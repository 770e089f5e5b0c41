"""The page on rollouts names every field, reason and finding, and its example is a rollout that would be taken."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from hat_serving.canary import crd
from hat_serving.canary.spec import RolloutSpec, read_spec
from tests.cluster.controlplane.cluster import REPOSITORY

PAGE = (REPOSITORY / "docs" / "cluster-canary.md").read_text()
CODE = REPOSITORY / "serving" / "hat_serving" / "canary"


def fields(schema: dict[str, Any]) -> set[str]:
    found = set(schema.get("properties", {}))
    for value in schema.get("properties", {}).values():
        found |= fields(value) | fields(value.get("items", {}))
    return found


@pytest.mark.parametrize("field", sorted(fields(crd.schema_of(RolloutSpec))))
def test_every_field_is_named(field: str) -> None:
    assert re.search(rf"\b{field}\b", PAGE), f"docs/cluster-canary.md does not name {field}"


def test_every_reason_and_finding_is_explained() -> None:
    machine = (CODE / "machine.py").read_text()
    reasons = set(re.findall(r'_(?:say|abort|pause)\([^)]*?"([A-Z][A-Za-z]+)"', machine))
    findings = set(re.findall(r'Finding\(\s*"([A-Z][A-Za-z]+)"', (CODE / "preflight.py").read_text()))
    assert len(reasons) > 8
    assert len(findings) > 15
    assert {word for word in reasons | findings if f"`{word}`" not in PAGE} == set()


def test_the_example_is_a_valid_rollout() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    spec = read_spec(yaml.safe_load(example)["spec"])
    assert spec.weight_at(len(spec.steps) - 1) == 50
