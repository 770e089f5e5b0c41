"""`hat registry …` on real stores, prompts to MLflow and back, a release as manifests: as a person would type them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hat_registry import accounts, pointers, releases
from hat_registry.archive import read_folder
from hat_registry.registry import Registry
from hat_serving.sglang.profile import read_profile
from tests.cli.conftest import Done
from tests.cli.test_registry_commands import Shop, shop

__all__ = ["shop"]
ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "harness-registry" / "harnesses" / "react-baseline"
PROFILE = ROOT / "serving" / "profiles" / "h20-exact.yaml"
CHART = ROOT / "charts" / "hatstack-serving"
Hat = Callable[..., Done]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
    version, _ = registry.push(accounts.SYSTEM, read_folder(HARNESS), message="first")
    with registry.database.write() as tx:
        pointers.move_free(tx, accounts.SYSTEM, "harness", version.name, "staging", version.digest)
    registry.close()
    return folder


def test_backup_restore_check_and_garbage(hat: Hat, data: Path, tmp_path: Path) -> None:
    assert hat("registry", "backup", tmp_path / "b", "--data", data, "--dry-run").code == 0
    assert not (tmp_path / "b").exists()
    made = hat("registry", "backup", tmp_path / "b", "--data", data, "--output", "json")
    assert made.json()["rows"]["harness_version"] == 1
    assert "MLflow is not in it" in made.err
    assert hat("registry", "backup", tmp_path / "b", "--data", data).code == 4
    whole = hat("registry", "restore", tmp_path / "b", "--data", tmp_path / "new", "--dry-run", "--output", "json")
    assert whole.json()["digest"] == made.json()["digest"]
    assert not (tmp_path / "new").exists()
    assert hat("registry", "restore", tmp_path / "b", "--data", tmp_path / "new").code == 0
    assert hat("registry", "restore", tmp_path / "b", "--data", tmp_path / "new").code == 4
    fits = hat("registry", "check", "--deep", "--data", tmp_path / "new")
    assert (fits.code, "everything fits" in fits.out) == (0, True)
    orphan = Registry.blobs_at(tmp_path / "new" / "blobs").put(b"nobody")
    assert hat("registry", "gc", "--data", tmp_path / "new", "--output", "json").json()["young"] == 1
    dry = hat("registry", "gc", "--grace", "0", "--data", tmp_path / "new", "--dry-run", "--output", "json").json()
    assert (dry["blobs"], dry["changed"]) == (1, False)
    gone = hat("registry", "gc", "--grace", "0", "--data", tmp_path / "new", "--output", "json").json()
    assert (gone["blobs"], gone["changed"]) == (1, True)
    assert not Registry.blobs_at(tmp_path / "new" / "blobs").has(orphan)
    next((tmp_path / "new" / "blobs").glob("??/*")).unlink()
    broken = hat("registry", "check", "--data", tmp_path / "new")
    assert (broken.code, "missing" in broken.out) == (1, True)


def test_a_password_never_stands_on_the_command_line(hat: Hat, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://hat:very-secret@127.0.0.1:9/none"
    refused = hat("registry", "check", "--data", data, "--database", url)
    assert (refused.code, "HATSTACK_DATABASE_URL" in refused.err, "very-secret" in refused.err) == (3, True, False)
    monkeypatch.setenv("HATSTACK_DATABASE_URL", url)
    away = hat("registry", "check", "--data", data)
    assert (away.code, "very-secret" in away.out + away.err) == (5, False)


def test_what_is_no_registry_or_no_backup_is_said(hat: Hat, tmp_path: Path) -> None:
    assert hat("registry", "check", "--data", tmp_path).code == 3
    assert hat("registry", "restore", tmp_path, "--data", tmp_path / "new").code == 3
    assert not (tmp_path / "registry.db").exists()


def test_prompts_cross_to_mlflow_and_back(
    shop: Shop, hat: Hat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HATSTACK_REGISTRY", shop.url)
    monkeypatch.setenv("HATSTACK_TOKEN", shop.tokens["ada"])
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    digest = hat("harness", "push", HARNESS, "-m", "prompts", "--output", "json").json()["digest"]
    dry = hat(
        "harness", "export", "react-baseline", "--version", digest, "--mlflow", uri, "--dry-run", "--output", "json"
    )
    assert dry.json()["changed"] is False
    assert not (tmp_path / "mlflow.db").exists()
    done = hat("harness", "export", "react-baseline", "--version", digest, "--mlflow", uri, "--output", "json").json()
    assert done["changed"] is True
    assert {one["file"] for one in done["carried"]} | set(done["not_carried"]) == set(read_folder(HARNESS))
    again = hat("harness", "export", "react-baseline", "--version", digest, "--mlflow", uri, "--output", "json").json()
    assert again["changed"] is False
    back = hat("harness", "import", "react-baseline", tmp_path / "back", "--mlflow", uri, "--output", "json").json()
    assert back["harness"] == digest
    assert read_folder(tmp_path / "back") == read_folder(HARNESS)
    assert hat("harness", "push", tmp_path / "back", "-m", "again", "--output", "json").json()["changed"] is False
    assert hat("harness", "import", "react-baseline", tmp_path / "back", "--mlflow", uri).code == 4
    assert hat("harness", "import", "nobody", tmp_path / "none", "--mlflow", uri).code == 3


def released(shop: Shop, profile: Path = PROFILE) -> str:
    version, _ = shop.registry.push(accounts.SYSTEM, read_folder(HARNESS), message="for a release")
    with shop.registry.database.write() as tx:
        new = releases.Release(
            name="chat", model="sha256:" + "a" * 64, harness=version.digest, profile=read_profile(profile).digest
        )
        return releases.add(tx, accounts.SYSTEM, new)[0]


def test_a_release_becomes_manifests(shop: Shop, hat: Hat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HATSTACK_REGISTRY", shop.url)
    monkeypatch.setenv("HATSTACK_TOKEN", shop.tokens["eve"])
    digest = released(shop)
    short = digest[7:19]
    words: list[Any] = ["release", "render", digest, "--profile", PROFILE, "--storage-uri", "s3://models/chat/v7"]
    values = yaml.safe_load(hat(*words).out)
    assert values["release"] == short
    told = " ".join(values["engine"]["args"])
    assert "--speculative-algorithm NEXTN" in told
    assert "--model-path" not in told
    assert "/mnt/models" not in told
    (tmp_path / "own.yaml").write_text("gateway: {enabled: false}\nengine: {replicas: 3}\n")
    target = tmp_path / "out.yaml"
    words += ["--chart", CHART, "--values", tmp_path / "own.yaml", "-n", "live", "--to", target]
    assert hat(*words, "--dry-run").code == 0
    assert not target.exists()
    assert hat(*words).code == 0
    made = {entry["kind"]: entry for entry in yaml.safe_load_all(target.read_text())}
    predictor = made["InferenceService"]["spec"]["predictor"]
    assert predictor["model"]["storageUri"] == "s3://models/chat/v7"
    assert predictor["minReplicas"] == 3
    assert predictor["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H20"}
    assert made["InferenceService"]["metadata"]["labels"]["hatstack.dev/release"] == short
    told = json.loads(made["ConfigMap"]["data"]["release.json"])
    assert (told["digest"], told["model"]) == (digest, "sha256:" + "a" * 64)
    assert {one["metadata"].get("namespace", "live") for one in made.values()} == {"live"}
    assert hat(*words).code == 4
    other = hat(
        "release", "render", digest, "--profile", PROFILE.with_name("h20-fast.yaml"), "--storage-uri", "s3://m/v"
    )
    assert other.code == 3
    assert "the release has" in other.err
