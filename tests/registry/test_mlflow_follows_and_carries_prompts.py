"""Beside a real MLflow server: aliases follow the ledger, drift is told, prompts cross both ways byte for byte."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from hat_harness.digest import harness_digest
from hat_registry import accounts, harnesses, mlflow_link, mlflow_prompts, pointers, releases
from hat_registry.api.app import create_app
from hat_registry.archive import read_folder
from hat_registry.errors import NotFoundError, StoreError
from hat_registry.mlflow_link import Follower, Mlflow
from hat_registry.registry import Registry
from tests.registry.conftest import Place, push

ONE, TWO, PROFILE = ("sha256:" + digit * 64 for digit in "123")
SHIPPED = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    """A real MLflow server."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "a")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=2).read()
            break
        except OSError:
            assert time.monotonic() < deadline, "MLflow did not come up"
            assert process.poll() is None, "MLflow ended"
            threading.Event().wait(0.3)
    yield Mlflow(url)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)


def registered(mlflow: Mlflow, model: str, *digests: str) -> None:
    with mlflow.asked() as client:
        client.create_registered_model(model)
        for digest in digests:
            client.create_model_version(model, "s3://models/nowhere", tags={"hatstack.model": digest})


def moved(place: Place, kind: pointers.Kind, name: str, pointer: str, digest: str) -> None:
    with place.database.write() as tx:
        pointers.move_free(tx, place.ada, kind, name, pointer, digest)


def released(place: Place, name: str, model: str, reference: str = "") -> str:
    harness = push(place, f"harness of {name}")
    with place.database.write() as tx:
        new = releases.Release(name=name, model=model, model_reference=reference, harness=harness, profile=PROFILE)
        return releases.add(tx, place.ada, new)[0]


def states(place: Place, mlflow: Mlflow) -> dict[str, str]:
    with place.database.read() as tx:
        wanted = mlflow_link.projection(tx, "default")
    return {f"{one.model}@{one.alias}": one.state for one in mlflow_link.drift(wanted, mlflow)}


def test_aliases_follow_every_move_and_rollback_and_drift_is_named(place: Place, server: Mlflow) -> None:
    registered(server, "default.talk", ONE, TWO)
    registry = Registry(place.database, place.blobs)
    follower = Follower(registry, server)
    moved(place, "model", "talk", "staging", ONE)
    assert states(place, server) == {"default.talk@staging": "missing"}
    assert follower.step() == 1
    assert server.aliases("default.talk") == {"staging": "1"}
    moved(place, "model", "talk", "staging", TWO)
    assert follower.step() == 1
    assert server.aliases("default.talk") == {"staging": "2"}
    with place.database.write() as tx:
        pointers.rollback(tx, place.bo, "model", "talk", "staging", reason="worse")
    assert (follower.step(), follower.step()) == (1, 0)
    assert server.aliases("default.talk") == {"staging": "1"}
    server.set_alias("default.talk", "staging", "2")
    server.set_alias("default.talk", "production", "2")
    moved(place, "model", "talk", "next", "sha256:" + "9" * 64)
    assert states(place, server) == {
        "default.talk@next": "unregistered",
        "default.talk@production": "unledgered",
        "default.talk@staging": "elsewhere",
    }
    assert follower.step() == 1
    assert server.aliases("default.talk") == {"staging": "1", "production": "2"}


def test_a_release_puts_the_alias_of_its_model(place: Place, server: Mlflow) -> None:
    registered(server, "default.shop", ONE, TWO)
    moved(place, "model", "shop", "staging", ONE)
    moved(place, "release", "shop", "staging", released(place, "shop", TWO, "models:/default.shop/2"))
    moved(place, "release", "zh", "staging", released(place, "zh", ONE, "models:/default.shop/1"))
    with place.database.read() as tx:
        wanted = mlflow_link.projection(tx, "default")
    assert mlflow_link.follow(wanted, server)[1] == 2
    assert server.aliases("default.shop") == {"staging": "2", "zh-staging": "1"}


def test_the_api_reports_drift_and_mends_it(place: Place, server: Mlflow) -> None:
    registered(server, "default.api", ONE)
    digest = released(place, "api", ONE)
    moved(place, "release", "api", "staging", digest)
    with place.database.write() as tx:
        _, secret = accounts.issue_token(tx, place.ada, label="t", scopes=("read", "move"))
    headers = {"Authorization": f"Bearer {secret}"}
    with TestClient(create_app(Registry(place.database, place.blobs, server))) as client:
        seen = client.get("/api/v1/mlflow/aliases", headers=headers).json()
        assert (seen["drift"], seen["items"][0]["state"]) == (1, "missing")
        release = client.get(f"/api/v1/releases/{digest}", headers=headers).json()
        assert release["mlflow"]["state"] == "asked"
        assert release["mlflow"]["aliases"][0]["state"] == "missing"
        done = client.post("/api/v1/mlflow/follow", headers=headers).json()
        assert (done["set"], done["drift"], done["changed"]) == (1, 0, True)
        assert client.post("/api/v1/mlflow/follow", headers=headers).json()["changed"] is False
    with TestClient(create_app(Registry(place.database, place.blobs))) as client:
        assert client.get("/api/v1/mlflow/aliases", headers=headers).status_code == 404
        assert client.get(f"/api/v1/releases/{digest}", headers=headers).json()["mlflow"]["state"] == "none"


def test_an_mlflow_that_is_away_is_unavailable_and_stops_nothing(place: Place) -> None:
    away = Mlflow("http://127.0.0.1:9")
    digest = released(place, "away", ONE)
    moved(place, "release", "away", "staging", digest)
    with place.database.read() as tx:
        wanted = mlflow_link.projection(tx, "default")
    with pytest.raises(StoreError, match="MLflow cannot be used"):
        mlflow_link.drift(wanted, away)
    assert mlflow_link.beside(wanted, away, ONE)["state"] == "unavailable"


@pytest.mark.parametrize("name", ["live-commerce", "live-commerce-zh", "react-baseline"])
def test_prompts_cross_both_ways_byte_for_byte(server: Mlflow, name: str) -> None:
    files = read_folder(SHIPPED / name)
    digest = harness_digest(harnesses.parse(files))
    out = mlflow_prompts.export(server, "default", name, digest, files, message="first")
    assert {one.file for one in out.carried} | set(out.not_carried) == set(files)
    assert {one.file for one in out.carried} == {path for path in files if path.startswith("prompts/")}
    back, crossing = mlflow_prompts.bring(server, "default", name, files, digest=digest)
    assert back == files
    assert not any(one.changed for one in crossing.carried)
    again = mlflow_prompts.export(server, "default", name, digest, files)
    assert not any(one.changed for one in again.carried), "known content makes no new version"


def test_an_edit_in_mlflow_comes_back_as_a_new_version(server: Mlflow) -> None:
    text = '---\r\nsection: rules\r\n---\r\nsay {{price}} 价格 \u2028 \\ "quoted"\r\n\n  '
    head = b"format: hatstack.harness/1\nname: edited\nsections: [rules]\nactivation: {required: false}\n"
    files = {"harness.yaml": head, "prompts/a.md": text.encode(), "prompts/b.md": b"---\nsection: rules\n---\nfixed\n"}
    digest = harness_digest(harnesses.parse(files))
    mlflow_prompts.export(server, "default", "edited", digest, files)
    assert mlflow_prompts.bring(server, "default", "edited", files, digest=digest)[0] == files
    assert mlflow_prompts.source(server, "default", "edited") == digest
    with server.asked() as client:
        old = client.load_prompt("prompts:/default.edited.b@latest", cache_ttl_seconds=0)
        tags = {key: value for key, value in old.tags.items() if key.startswith("hatstack.")}
        client.register_prompt("default.edited.b", "edited by a person\n", tags=tags)
    newest, crossing = mlflow_prompts.bring(server, "default", "edited", files)
    assert newest["prompts/b.md"] == b"---\nsection: rules\n---\nedited by a person\n"
    assert {one.file: one.changed for one in crossing.carried} == {"prompts/a.md": False, "prompts/b.md": True}
    assert mlflow_prompts.bring(server, "default", "edited", files, digest=digest)[0] == files, "the old set stands"
    back = mlflow_prompts.export(server, "default", "edited", digest, files)
    assert not any(one.changed for one in back.carried)


def test_prompts_of_others_make_a_harness_and_what_cannot_be_carried_is_named(server: Mlflow) -> None:
    with server.asked() as client:
        client.register_prompt("default.foreign.greeting", "Greet the viewer.", response_format={"type": "object"})
        client.register_prompt("default.foreign.system", [{"role": "system", "content": "Be brief."}])
        talk = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
        client.register_prompt("default.foreign.talk", talk)
        client.register_prompt("default.foreignx.other", "not of this name")
    files, crossing = mlflow_prompts.bring(server, "default", "foreign", {})
    parsed = harnesses.parse(files)
    assert {prompt.text.strip() for prompt in parsed.prompts} == {"Greet the viewer.", "Be brief."}
    assert set(crossing.not_carried) == {"default.foreign.talk", "default.foreign.greeting response_format"}
    with pytest.raises(NotFoundError, match=r"no prompts default\.nobody"):
        mlflow_prompts.bring(server, "default", "nobody", {})


def test_what_no_prompt_registry_holds_is_named(server: Mlflow) -> None:
    files = {
        "prompts/long.md": b"x" * 100_001,
        "prompts/empty.md": b"---\nsection: rules\n---\n",
        "tools/a.json": b"{}",
    }
    out = mlflow_prompts.export(server, "default", "odd", ONE, files)
    assert out.carried == []
    assert set(out.not_carried) == set(files)
