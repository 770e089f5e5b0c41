"""Reviewers label from the keyboard alone; evaluations and their comparison have pages whose JSON is their resource."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from hat_components.judge.spec import load_judge
from hat_components.label.exchange import tasks_lines
from hat_components.label.model import CAUSES, PAIR, Project, Task
from hat_components.label.store import flipped
from hat_components.label.tasks import single_project
from hat_console.app import ConsoleSettings
from hat_registry import accounts
from hat_registry.registry import Registry
from tests.console.conftest import Console, serve

ATTACK = "<script>alert(1)</script>"


def evaluation(arm: str, scores: list[float]) -> dict[str, object]:
    def item(index: int, score: float) -> dict[str, object]:
        values = {"average": score, "accuracy": score, "effectiveness": score}
        turn = {"intent": "chat", "values": values, "causes": [] if score == 1 else ["gate"]}
        return {"item": f"item-{index}", "values": values, "turns": [turn], "families": ["gate"]}

    mean = sum(scores) / len(scores)
    interval = {"mean": mean, "low": mean, "high": mean}
    suite = {
        "id": "t1", "title": ATTACK, "kind": "rollout", "headline": "average",
        "scores": dict.fromkeys(("average", "accuracy", "effectiveness"), interval),
        "intents": {"chat": {"n": len(scores), "means": {"average": mean}}},
        "families": {"gate": {"n": len(scores), "means": {"average": mean}}},
        "items": [item(index, score) for index, score in enumerate(scores)],
    }  # fmt: skip
    digest = "sha256:" + "ab" * 32
    return {"format": "hatstack.evaluation/1", "arm": arm, "policy": "model", "harness": digest, "dataset": digest,
            "config": digest, "seeds": "dev", "suites": [suite], "environment": {}}  # fmt: skip


@dataclass
class Place:
    """A console over two evaluations, with people."""

    console: Console
    runs: Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.write() as tx:
        for name, role in (("rex", "reviewer"), ("sue", "reviewer"), ("eve", "viewer")):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
            accounts.give(tx, accounts.SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
    runs = tmp_path / "runs"
    for arm, scores in (("naive", [1.0] * 6 + [0.0] * 6), ("hsa", [1.0] * 10 + [0.0] * 2)):
        folder = runs / f"run-{arm}" / "steps" / "evaluate" / "artifacts"
        folder.mkdir(parents=True)
        (folder / "evaluation.json").write_text(json.dumps(evaluation(arm, scores)))
    server, thread, url = serve(registry, ConsoleSettings(session_key=b"k" * 32, runs=runs))
    yield Place(Console(url, registry, ""), runs)
    server.should_exit = True
    thread.join(20)
    registry.close()


def project() -> tuple[Project, list[Task]]:
    made = Project(name="duel", kind="pair", criteria=(PAIR,), causes=CAUSES, arms=("ours", "theirs"))
    shown = [{"before": [], "event": f"{ATTACK} {k}", "a": f"from one {k}", "b": f"from two {k}"} for k in range(3)]
    hidden = {"winner": "a", "cause": "tool_use"}
    return made, [Task(id=f"item/{k}#1", shown=one, hidden=hidden) for k, one in enumerate(shown)]


@contextmanager
def bring(place: Place, name: str) -> Iterator[httpx.Client]:
    """A signed-in client that may change things."""
    with httpx.Client(base_url=place.console.url, timeout=20) as client:
        client.post("/login", data={"name": name, "password": f"{name}-has-a-long-password"})
        found = re.search(r'name="csrf" value="(\w+)"', client.get("/").text)
        assert found
        client.headers["X-CSRF-Token"] = found.group(1)
        yield client


def test_a_project_is_rated_from_the_keyboard_alone(place: Place, page: Page) -> None:
    made, tasks = project()
    with bring(place, "rex") as client:
        answer = client.post("/api/v1/labels", content="\n".join(tasks_lines(made, tasks)))
        assert answer.status_code == 201, answer.text
    place.console.sign_in(page, "rex")
    page.goto(f"{place.console.url}/label")
    page.locator("main a", has_text="duel").first.click()
    for done in range(3):
        expect(page.locator("progress")).to_have_attribute("value", str(done))
        assert ATTACK in page.locator("h1").inner_text()
        body = page.locator("main").inner_text()
        assert "ours" not in body
        assert "theirs" not in body
        if done == 1:
            page.keyboard.press("2")  # no difference needs no cause
        else:
            page.keyboard.press("1")
            page.keyboard.press("5")
    expect(page.locator("main")).to_contain_text("Nothing is left")
    with bring(place, "rex") as client:
        lines = [json.loads(line) for line in client.get("/api/v1/labels/duel/ratings").text.splitlines()]
        results = client.get("/api/v1/labels/duel").json()
    kinds = sorted((line["winner"] == "tie", line["cause"]) for line in lines)
    assert kinds == [(False, "tool_use"), (False, "tool_use"), (True, "")]
    for line in lines:
        if line["winner"] != "tie":
            assert line["winner"] == ("b" if flipped(made, "rex", line["pair"]) else "a")
    assert results["preference"]["pairs"] == 3
    assert results["agreement"]["preference"]["alpha"]["state"] == "empty"


def test_j_and_k_move_and_a_rating_can_be_taken_back(place: Place, page: Page) -> None:
    made, tasks = project()
    with bring(place, "rex") as client:
        client.post("/api/v1/labels", content="\n".join(tasks_lines(made, tasks)))
    place.console.sign_in(page, "rex")
    page.goto(f"{place.console.url}/label/duel")
    first = page.locator("h1").inner_text()
    page.keyboard.press("j")
    expect(page.locator("h1")).not_to_have_text(first)
    page.keyboard.press("k")
    expect(page.locator("h1")).to_have_text(first)
    page.keyboard.press("2")
    expect(page.locator("progress")).to_have_attribute("value", "1")
    item = next(task.id for task in tasks if task.shown["event"] == first)
    page.goto(f"{place.console.url}/label/duel?item={item.replace('#', '%23')}")
    expect(page.locator("input[value=tie]")).to_be_checked()
    page.keyboard.press("3")
    page.keyboard.press("1")
    page.wait_for_url(re.compile(r"/label/duel$"))
    with bring(place, "rex") as client:
        lines = [json.loads(line) for line in client.get("/api/v1/labels/duel/ratings").text.splitlines()]
    assert [line["cause"] for line in lines] == ["input_understanding"]
    assert lines[0]["winner"] != "tie"


def test_single_ratings_disputes_and_decisions(place: Place, page: Page) -> None:
    made = single_project("quality", load_judge("live-commerce").rubric)
    task = Task(id="x/0#1", shown={"before": [], "event": "how much", "reply": "it is 20", "calls": []})
    with bring(place, "rex") as rex, bring(place, "sue") as sue:
        assert rex.post("/api/v1/labels", content="\n".join(tasks_lines(made, [task]))).status_code == 201
        for client, label in ((rex, "right"), (sue, "wrong")):
            said = {"item": task.id, "labels": {"accuracy": label, "effectiveness": "met"}}
            assert client.put("/api/v1/labels/quality/rating", json=said).status_code == 200
        bad = rex.put("/api/v1/labels/quality/rating", json={"item": task.id, "labels": {"accuracy": "fine"}})
        assert (bad.status_code, bad.json()["kind"]) == (422, "invalid_input")
        lost = rex.post(
            "/api/v1/labels/quality/ratings", content='{"subject":"y","criterion":"accuracy","label":"right"}'
        )
        assert lost.status_code == 422
        assert "no item" in lost.json()["title"]
    place.console.sign_in(page, "sue")
    page.goto(f"{place.console.url}/label/quality/results")
    expect(page.locator("main")).to_contain_text("undefined")
    page.locator("form[action$=decide] button", has_text="right").first.click()
    expect(page.locator("main td strong", has_text="right")).to_have_count(1)


def test_pages_equal_their_resources_and_are_accessible(place: Place, page: Page) -> None:
    made, tasks = project()
    with bring(place, "rex") as client:
        client.post("/api/v1/labels", content="\n".join(tasks_lines(made, tasks)))
        one, other = (row["digest"][7:19] for row in client.get("/api/v1/evaluations").json()["items"])
        twins = {
            "/label": "/labels",
            "/label/duel": "/labels/duel/task",
            "/label/duel/results": "/labels/duel",
            "/evaluations": "/evaluations",
            f"/evaluations/{one}": f"/evaluations/{one}",
            f"/compare/{one}/{other}": f"/compare/{one}/{other}",
        }
        for path, resource in twins.items():
            twin = client.get(path, headers={"Accept": "application/json"})
            assert twin.status_code == 200, (path, twin.text)
            assert twin.json() == client.get("/api/v1" + resource).json(), path
            html = client.get(path, headers={"Accept": "text/html"}).text
            assert "<script>alert" not in html
            assert len(html.encode()) < 100_000
        compared = client.get(f"/api/v1/compare/{one}/{other}").json()
        assert {row["kind"] for row in compared["contrasts"]} & {"better", "worse"}
        assert len(compared["fixed"]) + len(compared["broken"]) == 4
        assert str(place.runs) not in json.dumps(compared)
    place.console.sign_in(page, "rex")
    for path in twins:
        answer = page.goto(place.console.url + path)
        assert answer is not None
        assert answer.status == 200, path
        violations = Axe().run(page).response["violations"]
        assert [(path, fault["id"], fault["nodes"][0]["html"][:120]) for fault in violations] == []


def test_who_may_not_label_sees_no_task_and_no_link(place: Place, page: Page) -> None:
    place.console.sign_in(page, "eve")
    assert page.locator("nav a", has_text="Label").count() == 0
    page.goto(f"{place.console.url}/label")
    expect(page.locator("main")).to_contain_text("needs one of")
    with bring(place, "eve") as client:
        assert client.get("/api/v1/labels").status_code == 403
        assert client.get("/api/v1/evaluations").status_code == 200


def test_a_runs_directory_that_is_gone_is_empty_not_an_error(place: Place) -> None:
    shutil.rmtree(place.runs)
    with bring(place, "rex") as client:
        assert client.get("/api/v1/evaluations").json() == {"items": []}
        missing = client.get("/api/v1/evaluations/0123456789ab")
        assert missing.status_code == 404
