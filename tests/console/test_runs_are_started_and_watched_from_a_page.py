"""Runs from the browser: a form that starts one, its page while it goes, cancel and resume, a clone, a comparison."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from hat_console.app import ConsoleSettings
from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.desk import Desk, Settings
from hat_pipelines.runs import Runner, RunRecord, create, now
from hat_registry import accounts
from hat_registry.registry import Registry
from hatstack import paths
from tests.console.conftest import Console, serve
from tests.pipelines.desks import BROKEN, HOLDING, TOYS, catalogue, until

SLOW = 60_000


@dataclass
class Place:
    """A console with a desk over toy pipelines."""

    console: Console
    desk: Desk
    folder: Path
    app: Any

    @property
    def url(self) -> str:
        return self.console.url


@contextmanager
def opened(folder: Path, known: Catalogue, **settings: object) -> Iterator[Place]:
    registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
    with registry.database.write() as tx:
        for name, role in (("ed", "editor"), ("eve", "viewer")):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
            accounts.give(tx, accounts.SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
    runs = folder / "runs"
    desk = Desk(registry.database, known, Settings(root=runs, cache=folder / "cache", **settings))  # type: ignore[arg-type]  # Settings checks nothing at run time, and needs no more here
    desk.start()
    server, thread, url = serve(registry, ConsoleSettings(session_key=b"k" * 32, runs=runs), desk)
    yield Place(Console(url, registry, ""), desk, folder, server.config.app)
    desk.stop()
    server.should_exit = True
    thread.join(20)
    registry.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with opened(tmp_path, catalogue(tmp_path)) as made:
        yield made
        (tmp_path / "release").touch()
        until(lambda: not made.desk.store.active())


@contextmanager
def bring(place: Place, name: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=place.url, timeout=20) as client:
        client.post("/login", data={"name": name, "password": f"{name}-has-a-long-password"})
        found = re.search(r'name="csrf" value="(\w+)"', client.get("/").text)
        assert found
        client.headers["X-CSRF-Token"] = found.group(1)
        yield client


def clean(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:160]) for one in found] == []


def section(page: Page, name: str) -> None:
    page.locator("details.section > summary", has_text=re.compile(f"^{name} ")).click()


def test_a_run_is_started_watched_cloned_and_compared(place: Place, page: Page) -> None:
    place.console.sign_in(page, "ed")
    page.goto(f"{place.url}/pipelines")
    clean(page)
    page.locator("section.pipeline", has_text="toys").first.locator("button").click()
    section(page, "draw")
    clean(page)
    page.fill("#f-steps-draw-count", "4")
    page.fill("#name", "first")
    page.click("#start")
    expect(page.locator("h1")).to_have_text("first")
    expect(page.locator("#state")).to_have_text("done", timeout=SLOW)
    expect(page.locator("svg.graph a")).to_have_count(4)
    clean(page)
    page.click("#clone")
    expect(page.locator("#f-steps-draw-count")).to_have_value("4")
    page.fill("#f-steps-draw-count", "6")
    page.fill("#name", "second")
    page.click("#start")
    expect(page.locator("#state")).to_have_text("done", timeout=SLOW)
    page.goto(f"{place.url}/runs")
    clean(page)
    page.locator("main form button", has_text="Compare").click()
    rows = page.locator("section").first.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("steps.draw.count")
    clean(page)


def test_the_log_grows_and_curves_appear_while_it_runs(place: Place, page: Page) -> None:
    place.console.sign_in(page, "ed")
    page.goto(f"{place.url}/pipelines/{HOLDING}/new?profile=toy")
    section(page, "hold")
    page.fill("#f-steps-hold-release", str(place.folder / "release"))
    page.fill("#name", "held")
    page.click("#start")
    expect(page.locator("#lines")).to_contain_text("line 3", timeout=SLOW)
    expect(page.locator("#live summary", has_text="loss").first).to_be_visible(timeout=SLOW)
    expect(page.locator("svg.plot").first).to_be_visible()
    clean(page)
    page.click("#cancel")
    expect(page.locator("#state")).to_have_text("cancelled", timeout=SLOW)
    (place.folder / "release").touch()
    page.click("#resume")
    expect(page.locator("#state")).to_have_text("done", timeout=SLOW)
    expect(page.locator("#log")).to_have_text("Log of total", timeout=SLOW)


def test_the_form_refuses_on_both_sides(place: Place, page: Page) -> None:
    place.console.sign_in(page, "ed")
    page.goto(f"{place.url}/pipelines/{TOYS}/new?profile=toy")
    page.fill("#f-arms", "[naive")
    page.click("#start")
    assert page.url.endswith("new?profile=toy")
    assert page.evaluate("document.querySelector('#f-arms').validationMessage") == "This is not JSON"
    page.fill("#f-arms", '["naive"]')
    section(page, "draw")
    page.fill("#f-steps-draw-count", "0")
    page.click("#start")
    assert page.evaluate("document.querySelector('#f-steps-draw-count').validity.rangeUnderflow")
    page.evaluate("document.querySelector('#inputs').noValidate = true")
    page.click("#start")
    expect(page.locator("[role=alert]")).to_contain_text("at least 1")
    expect(page.locator("#f-steps-draw-count")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#f-steps-draw-count")).to_have_value("0")
    clean(page)
    page.locator("summary", has_text="Inputs from JSON").click()
    values = {"name": "order.json", "mimeType": "application/json", "buffer": b'{"steps.draw.count": 9}'}
    page.set_input_files("#upload", values)  # type: ignore[arg-type]  # FilePayload is this dict
    page.fill("#f-steps-draw-count", "3")
    page.fill("#name", "pasted")
    page.click("#start")
    expect(page.locator("h1")).to_have_text("pasted")
    order = place.desk.store.of_run("pasted")
    assert order is not None
    assert order.order.values == {"steps.draw.count": 9, "arms": ["naive"]}


def test_pages_speak_chinese_and_their_json_is_their_resource(place: Place, page: Page) -> None:
    with bring(place, "ed") as client:
        order = {"pipeline": TOYS, "profile": "toy", "name": "one"}
        assert client.post("/api/v1/runs", json=order).status_code == 201
        until(lambda: not place.desk.store.active())
        told = {"Accept": "application/json"}
        for path in ("/pipelines", "/runs", "/runs/one", "/runs/one/against/one"):
            twin = client.get(path, headers=told)
            assert twin.json() == client.get(f"/api/v1{path}").json(), path
        place.app.state.links = {"mlflow": "http://mlflow:5000/", "argo": "http://argo/workflows"}
        links = client.get("/api/v1/runs/one").json()["links"]
        assert links == {"mlflow": "http://mlflow:5000/#/experiments"}
        assert 'href="http://mlflow:5000/#/' in client.get("/runs/one").text
        form = client.get(f"/pipelines/{TOYS}/new?profile=toy", headers=told).json()
        assert form == client.get(f"/api/v1/pipelines/{TOYS}/form?profile=toy").json()
        log = client.get("/api/v1/runs/one/steps/draw/log").json()
        assert log["over"] is True
        with client.stream("GET", "/api/v1/runs/one/steps/draw/log/stream") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert "event: end" in "".join(stream.iter_text())
        assert client.get("/runs/one/report").status_code == 404
        assert client.get("/api/v1/runs/..%2Fx").status_code == 404
    place.console.sign_in(page, "ed")
    page.locator("button[name=language]").click()
    for path in ("/pipelines", "/runs", "/runs/one", f"/pipelines/{TOYS}/new?profile=toy"):
        page.goto(place.url + path)
        expect(page.locator("html")).to_have_attribute("lang", "zh")
        clean(page)


def test_roles_and_workspaces_are_kept(place: Place, page: Page) -> None:
    order = {"pipeline": TOYS, "profile": "toy", "name": "ours"}
    with bring(place, "eve") as client:
        answer = client.post("/api/v1/runs", json=order)
        assert answer.status_code == 403
        assert "needs one of: admin, approver, editor" in answer.json()["cure"]
        assert client.put("/api/v1/schedules/x", json={"cron": "@daily", "order": order}).status_code == 403
        assert "New run" not in client.get("/pipelines").text
    from hat_pipelines.desk.order import Order

    place.desk.place("elsewhere", "zoe", Order(pipeline=TOYS, profile="toy", name="theirs"))
    until(lambda: not place.desk.store.active())
    with bring(place, "ed") as client:
        assert client.get("/api/v1/runs/theirs").status_code in (404, 422)
        assert client.get("/api/v1/runs").json()["items"] == []
        assert client.post("/api/v1/runs/theirs/cancel").status_code in (404, 422)


def test_a_broken_pipeline_and_a_schedule_say_what_to_do(place: Place) -> None:
    with bring(place, "ed") as client:
        page = client.get("/pipelines").text
        assert "steps need each other in a circle" in page
        refused = client.post("/api/v1/runs", json={"pipeline": BROKEN, "profile": "toy"})
        assert (refused.status_code, refused.json()["kind"]) == (422, "invalid_input")
        body = {"cron": "30 2 * * *", "order": {"pipeline": TOYS, "profile": "toy"}}
        made = client.put("/api/v1/schedules/night", json=body).json()
        assert made["next"].endswith("02:30:00.000000Z")
        wrong = client.put("/api/v1/schedules/night", json={**body, "cron": "61 * * * *"})
        assert (wrong.status_code, "minute" in wrong.json()["title"]) == (422, True)
        assert "night" in client.get("/pipelines").text
        assert client.delete("/api/v1/schedules/night").json()["changed"] is True


def test_the_page_of_a_run_that_failed_says_what_to_do(place: Place) -> None:
    causes = {"kill": "out of memory", "disk": "free disk space", "away": "resume when it is back"}
    with bring(place, "ed") as client:
        for cause in causes:
            order = {"pipeline": TOYS, "profile": "toy", "name": cause, "values": {"steps.add.fail": cause}}
            assert client.post("/api/v1/runs", json=order).status_code == 201
        until(lambda: not place.desk.store.active())
        for cause, cure in causes.items():
            assert client.get(f"/api/v1/runs/{cause}").json()["state"] == "failed"
            alert = client.get(f"/runs/{cause}").text.partition('role="alert"')[2].partition("</div>")[0]
            assert cure in alert, cause
        (tried,) = {
            one["tries"] for one in client.get("/api/v1/runs/away").json()["steps_detail"] if one["state"] == "failed"
        }
        assert tried == 2


@pytest.mark.parametrize(("engine", "runner"), [("argo", "argo"), ("kfp", "kubeflow")])
def test_a_run_on_a_cluster_leads_to_the_engines_own_page(place: Place, engine: str, runner: Runner) -> None:
    record = RunRecord(
        id="", pipeline="train", profile="toy", config="", code="", started=now(), runner=runner, remote="its-own-name"
    )
    create(place.folder / "runs", "There.1", "name: toy\n", record)
    place.app.state.links = {engine: "http://engine/runs"}
    with bring(place, "ed") as client:
        assert client.get("/api/v1/runs/There.1").json()["links"] == {engine: "http://engine/runs/its-own-name"}
        assert 'href="http://engine/runs/its-own-name"' in client.get("/runs/There.1").text


def test_a_line_is_on_its_way_when_it_is_written(place: Place) -> None:
    values = {"steps.hold.release": str(place.folder / "release")}
    with bring(place, "ed") as client:
        order = {"pipeline": HOLDING, "profile": "toy", "name": "held", "values": values}
        assert client.post("/api/v1/runs", json=order).status_code == 201
        log = place.folder / "runs" / "held" / "steps" / "hold" / "log.txt"
        until(log.exists)
        seen: list[str] = []
        with client.stream("GET", "/api/v1/runs/held/steps/hold/log/stream") as stream:
            for line in stream.iter_lines():
                if line.startswith("data: ") and line != "data: {}":
                    seen.append(json.loads(line.removeprefix("data: ")))
                if "line 20" in "".join(seen):
                    (place.folder / "release").touch()
        text = "".join(seen)
        assert text == log.read_text()
        assert text.startswith("line 1\nline 2\n")


def smoke_catalogue(folder: Path) -> Catalogue:
    """The smoke profile without the stages after sft: a page is looked at, not training."""
    (folder / "profiles").mkdir()
    text = paths.profile("smoke").read_text().replace("branches: [opd, rl, mtp]\n", "")
    (folder / "profiles" / "smoke.yaml").write_text(text)
    return Catalogue(folder / "profiles", paths.shipped("harnesses"))


@pytest.mark.timeout(600)
def test_a_smoke_run_from_the_form_to_its_report_and_a_clone(tmp_path: Path, page: Page) -> None:
    environment = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    with opened(tmp_path, smoke_catalogue(tmp_path), environment=environment) as place:
        place.console.sign_in(page, "ed")
        page.goto(f"{place.url}/pipelines")
        page.locator("section.pipeline", has=page.locator("h2", has_text=re.compile("^train$"))).locator(
            "button"
        ).click()
        page.fill("#name", "smoke")
        page.click("#start")
        expect(page.locator("#state")).to_have_text("done", timeout=500_000)
        expect(page.locator("#report")).to_be_visible(timeout=SLOW)
        page.click("#report")
        expect(page.locator("h1").first).to_contain_text("Smoke run")
        page.go_back()
        page.click("#clone")
        section(page, "report")
        page.fill("#f-steps-report-title", "Another title")
        page.fill("#name", "smoke-2")
        page.click("#start")
        expect(page.locator("#state")).to_have_text("done", timeout=300_000)
        place.app.state.links = {"mlflow": "http://mlflow:5000"}
        second = show(place, "smoke-2")
        assert re.fullmatch(r".*/#/experiments/\d+/runs\?searchFilter=tags.*smoke-2.*", second["links"]["mlflow"])
        states = {one["step"]: one["state"] for one in second["steps_detail"]}
        assert [name for name, state in states.items() if state == "done"] == ["register", "report"]
        page.click("#report")
        expect(page.locator("h1").first).to_contain_text("Another title")
        page.goto(f"{place.url}/runs/smoke/against/smoke-2")
        expect(page.locator("section").first.locator("tbody tr")).to_have_count(1)
        expect(page.locator("div.sides").first).to_be_visible()
        expect(page.locator("svg.plot").first).to_be_visible()


def show(place: Place, run: str) -> dict[str, Any]:
    with bring(place, "ed") as client:
        found: dict[str, Any] = client.get(f"/api/v1/runs/{run}").json()
        return found
