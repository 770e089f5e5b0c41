"""The clients of Kubeflow Pipelines and Argo: what is sent is valid, Pending is not done, errors say what to do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hat_pipelines.compiler import argo_manifest, kfp_manifest
from hat_pipelines.errors import RemoteError
from hat_pipelines.plan import Job
from hat_pipelines.remote import argo, engine
from hat_pipelines.remote.engine import Status, StepStatus, wait
from hat_pipelines.remote.kfp import Kfp
from hat_pipelines.remote.settings import Remote, read
from hatstack.cli.main import main
from tests.pipelines.kfp_server import State, serve

KEY = "a-token-that-rotates"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Kfp, State, Path]]:
    token = tmp_path / "token"
    token.write_text(f"{KEY}\n")
    with serve(KEY) as (url, state):
        yield Kfp.connect(Remote(kfp=url, kfp_token_file=str(token))), state, token


@pytest.fixture
def document(make_job: Callable[..., Job]) -> dict[str, Any]:
    spec, *platform = kfp_manifest(make_job())
    return {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else spec


def test_a_run_goes_through_its_states(server: tuple[Kfp, State, Path], document: dict[str, Any]) -> None:
    kfp, state, _ = server
    ident = kfp.submit(document, "one", {"harness": "s3://bucket/harness"})
    assert kfp.status("one").state == "pending"
    with pytest.raises(RemoteError) as caught:
        kfp.submit(document, "one", {"harness": "s3://bucket/harness"})
    assert caught.value.kind == "conflict"
    state.move("one", "RUNNING", {"draw": "SUCCEEDED", "add-hsa": "RUNNING", "total": "PENDING"})
    found = kfp.status("one")
    assert found.ident == ident
    assert {name: step.state for name, step in found.steps.items()} == {
        "draw": "done", "add-hsa": "running", "total": "waiting",
    }  # fmt: skip
    assert kfp.cancel("one")
    assert kfp.status("one").state == "running"
    state.move("one", "CANCELED")
    assert kfp.status("one").state == "cancelled"
    assert not kfp.cancel("one")
    kfp.retry("one")
    assert kfp.status("one").state == "running"
    with pytest.raises(RemoteError, match="has not failed"):
        kfp.retry("one")


def test_what_the_server_refuses_is_told(server: tuple[Kfp, State, Path], document: dict[str, Any]) -> None:
    kfp, state, token = server
    with pytest.raises(RemoteError, match="unknown parameter 'nothing'") as caught:
        kfp.submit(document, "x", {"harness": "s3://b/h", "nothing": "1"})
    assert caught.value.kind == "invalid_input"
    with pytest.raises(RemoteError, match="'harness' is missing"):
        kfp.submit(document, "x", {})
    broken = copy.deepcopy(document)
    (broken.get("pipeline_spec") or broken)["root"]["dagg"] = {}
    with pytest.raises(RemoteError, match="invalid pipeline spec"):
        kfp.submit(broken, "x", {"harness": "s3://b/h"})
    with pytest.raises(RemoteError, match="no run 'x'"):
        kfp.status("x")
    token.write_text("stale")
    with pytest.raises(RemoteError) as refused:
        kfp.status("x")
    assert (refused.value.kind, "token" in refused.value.cure) == ("forbidden", True)
    token.write_text(KEY)  # a rotated token is read anew
    state.down = 1
    with pytest.raises(RemoteError) as away:
        kfp.status("x")
    assert away.value.kind == "unavailable"


def test_a_schedule_runs_once_at_a_time(server: tuple[Kfp, State, Path], document: dict[str, Any]) -> None:
    kfp, state, _ = server
    ident = kfp.schedule(document, "nightly", "30 2 * * *", {"harness": "s3://b/h"})
    made = state.recurring[ident]
    assert made["trigger"]["cron_schedule"]["cron"] == "0 30 2 * * *"
    assert (made["max_concurrency"], made["no_catchup"], made["mode"]) == ("1", True, "ENABLE")


class Told:
    """An engine that gives prepared answers."""

    def __init__(self, *answers: Status | RemoteError) -> None:
        self.answers = list(answers)

    def status(self, name: str) -> Status:
        answer = self.answers.pop(0)
        if isinstance(answer, RemoteError):
            raise answer
        return answer


def test_a_wait_knows_pending_from_done_and_outlasts_an_engine_that_is_away() -> None:
    away = RemoteError("away")
    told = Told(Status("x", "pending"), away, Status("x", "running"), away, away, Status("x", "done"))
    seen: list[str] = []
    found = wait(told, "x", seen=lambda status: seen.append(status.state), pause=lambda _: None)  # type: ignore[arg-type]  # only status is asked
    assert (found.state, seen) == ("done", ["pending", "running", "done"])


def test_a_wait_ends_at_its_limit_and_when_nobody_answers() -> None:
    clock = iter(range(0, 10_000, 10))
    always = Told(*[Status("x", "pending")] * 100)
    with pytest.raises(RemoteError, match="not over after 30 s"):
        wait(always, "x", timeout_s=30, pause=lambda _: None, now=lambda: next(clock))  # type: ignore[arg-type]  # as above
    with pytest.raises(RemoteError, match="away"):
        wait(Told(*[RemoteError("away")] * 1000), "x", pause=lambda _: None)  # type: ignore[arg-type]  # as above
    with pytest.raises(RemoteError, match="not allowed"):
        wait(Told(RemoteError("not allowed", kind="forbidden")), "x", pause=lambda _: None)  # type: ignore[arg-type]  # as above
    assert engine.POLL_S > 0


@pytest.mark.parametrize(
    ("phase", "state"),
    [("", "pending"), ("Pending", "pending"), ("Running", "running"), ("Succeeded", "done"), ("Error", "failed")],
)
def test_phases_of_a_workflow(phase: str, state: str) -> None:
    assert argo.state_of({"metadata": {"name": "w"}, "status": {"phase": phase}, "spec": {}}) == state
    assert argo.state_of({"metadata": {"name": "w"}, "spec": {}}) == "pending"


def test_a_failed_workflow_is_put_back_to_what_failed() -> None:
    def node(name: str, kind: str, phase: str, children: tuple[str, ...] = (), template: str = "") -> dict[str, Any]:
        shown = name.rpartition(".")[2]
        return {"id": name, "name": name, "displayName": shown, "type": kind, "phase": phase,
                "templateName": template or shown, "children": list(children)}  # fmt: skip

    nodes = [
        node("w", "DAG", "Failed", ("w.draw",), "dag"),
        node("w.draw", "Retry", "Succeeded", ("w.draw(0)", "w.hold")),
        node("w.draw(0)", "Pod", "Succeeded"),
        node("w.hold", "Retry", "Failed", ("w.hold(0)", "w.hold(1)")),
        node("w.hold(0)", "Pod", "Error"),
        node("w.hold(1)", "Pod", "Failed"),
        node("w.total", "Pod", "Omitted"),
    ]
    workflow = {
        "metadata": {"name": "w"},
        "spec": {},
        "status": {"phase": "Failed", "nodes": {one["id"]: one for one in nodes}},
    }
    kept, again = argo.revived(workflow)
    assert set(kept) == {"w", "w.draw", "w.draw(0)"}
    assert again == {"w.hold(0)", "w.hold(1)", "w.total"}
    assert (kept["w"]["phase"], kept["w.draw"]["children"]) == ("Running", ["w.draw(0)"])
    steps = argo.steps_of(workflow)
    assert steps["hold"] == StepStatus("failed", 2)
    assert (steps["draw"].state, steps["total"].state) == ("done", "skipped")


def test_every_parameter_of_a_workflow_has_a_value(make_job: Callable[..., Job]) -> None:
    template = argo_manifest(make_job())
    made = argo.instance(template, "one", "ns", {"harness-key": "inputs/x.tgz"})
    assert all("value" in one for one in made["spec"]["arguments"]["parameters"])
    with pytest.raises(RemoteError, match="'harness-key' needs a value"):
        argo.instance(template, "one", "ns", {})
    cron = argo.cron_workflow(template, "n", "ns", "30 2 * * *", {"harness-key": "x"})
    assert (cron["spec"]["schedules"], cron["spec"]["concurrencyPolicy"]) == (["30 2 * * *"], "Forbid")


def test_settings_name_what_is_wrong() -> None:
    with pytest.raises(RemoteError) as caught:
        read({"argo_namespce": "x"})
    assert caught.value.cure == "did you mean 'argo_namespace'?"
    with pytest.raises(RemoteError, match="no URL"):
        Kfp.connect(Remote(kfp="example"))
    with pytest.raises(RemoteError, match="token file"):
        Remote(kfp_token_file="/nowhere").token()


def test_the_command_line_asks_the_engine(
    server: tuple[Kfp, State, Path], document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    kfp, state, token = server
    kfp.submit(document, "one", {"harness": "s3://b/h"})
    where = ["--to", "kfp", "--remote", f"kfp={kfp._remote.kfp}", "--remote", f"kfp_token_file={token}"]
    assert main(["pipeline", "status", "one", *where]) == 0
    assert "one pending" in capsys.readouterr().out
    assert main(["pipeline", "cancel", "one", *where]) == 0
    state.move("one", "FAILED", {"draw": "FAILED"})
    assert main(["pipeline", "status", "one", "--wait", *where]) == 1
    assert "--retry" in capsys.readouterr().err
    assert main(["pipeline", "cancel", "one", "--retry", *where]) == 0
    assert main(["pipeline", "status", "two", *where]) == 3
    assert main(["pipeline", "submit", "train", "--profile", "smoke", *where]) == 3
    assert "s3_bucket" in capsys.readouterr().err
