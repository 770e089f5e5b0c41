"""A trace is played again beside what was said, a turn of it becomes an item that is scored, an evaluation is judged anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from playwright.sync_api import Page, expect

from hat_components.data import digest_file, load_manifest
from hat_components.evaluate.config import Config
from hat_components.evaluate.result import TraceRecord, load_evaluation
from hat_components.evaluate.step import run
from hat_components.importer.erase import erase_viewer
from hat_components.step import NullProgress
from hat_console.app import ConsoleSettings, Judge, create_app
from hat_harness.digest import harness_digest
from hat_harness.save import harness_files
from hat_harness.spec import Harness
from hat_harness.trace import Trace
from hat_pipelines.desk.desk import Desk, Settings
from hat_registry import accounts, comments, ledger, proposals
from hat_serving.gateway.app import pseudonym
from tests.console.conftest import Console
from tests.console.test_experiments_say_what_to_do import violations
from tests.console.test_reviewers_label_and_compare import evaluation
from tests.console.test_traces_are_told_to_those_who_may_read_them import ATTACK, TOLD, shown
from tests.pipelines.desks import catalogue
from tests.serving.conftest import KEY, World, deploy, shop, world

__all__ = ["shown", "world"]
ITEM = {"suite": "regressions", "purpose": "evaluation", "keep_days": 30}


@contextmanager
def bring(console: Console, name: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.url, timeout=40) as client:
        client.post("/login", data={"name": name, "password": f"{name}-has-a-long-password"})
        found = re.search(r'name="csrf" value="(\w+)"', client.get("/").text)
        assert found
        client.headers["X-CSRF-Token"] = found.group(1)
        yield client


def told_shop(gate: str = "bye") -> Harness:
    """The shop as a registry takes it: its hook says what to do."""
    made = shop(gate)
    (hook,) = made.hooks
    return made.model_copy(update={"hooks": (hook.model_copy(update={"message": "close as the rules say"}),)})


async def unstreamed(body: dict[str, Any], _request: web.Request) -> web.StreamResponse:
    """The engine as the evaluate step asks it: it looks prices up, and nothing else."""
    call = {"id": "c", "type": "function", "function": {"name": "get_item", "arguments": '{"item": "mug"}'}}
    asked = "price" in body["messages"][-1]["content"]
    message = {"role": "assistant", "content": "" if asked else "hello", "tool_calls": [call] if asked else []}
    return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})


def talked(console: Console, world: World) -> str:
    """A conversation of Anna's under a version that is registered."""
    world.source.set(deploy(told_shop()))
    for text in ("hi", ATTACK, "what is the price", "buy it"):
        assert world.say(text, "c1", user="anna").status_code == 200
    console.registry.push(accounts.SYSTEM, harness_files(told_shop()), message="first")
    return pseudonym(KEY, "c1")


def test_both_answers_stand_side_by_side_and_nothing_is_done_twice(shown: Console, world: World) -> None:
    ident = talked(shown, world)
    world.source.set(deploy(told_shop("ciao")))
    made, kept = len(world.tool_calls), sorted((world.folder / "traces").glob("*"))
    with bring(shown, "ada") as client:
        same = client.post(f"/api/v1/traces/{ident}/replay", json={}).json()
        assert [turn["before"]["reply"] for turn in same["turns"]] == [turn["after"]["reply"] for turn in same["turns"]]
        assert all(turn["same_reply"] and turn["same_calls"] for turn in same["turns"])
        assert (same["whole"], same["under"]) == (True, harness_digest(told_shop()))
        other = harness_digest(told_shop("ciao"))
        asked = {"harness": other, "deployment": "shop", "arm": "stable", "upto": 2}
        changed = client.post(f"/api/v1/traces/{ident}/replay", json=asked).json()
        assert [turn["index"] for turn in changed["turns"]] == [1, 2]
        assert changed["turns"][1]["before"]["reply"] == "it costs 42 bye"
        assert changed["turns"][1]["after"]["reply"] == "it costs 42 ciao"
        assert (changed["turns"][1]["same_reply"], changed["turns"][1]["same_calls"]) == (False, True)
        page = client.post(f"/traces/{ident}/replay", data={"harness": other, "answers": "shop/stable"})
        assert "<script>alert" not in page.text
        assert "it costs 42 ciao" in page.text
        for wrong in ({"harness": "sha256:" + "0" * 64}, {"deployment": "shop", "arm": "none"}, {"harness": "../x"}):
            assert client.post(f"/api/v1/traces/{ident}/replay", json=wrong).status_code == 422, wrong
        assert [one["turns"] for one in client.get("/api/v1/traces").json()["items"]] == [4]
    assert len(world.tool_calls) == made, "recorded results served every call"
    assert sorted((world.folder / "traces").glob("*")) == kept
    with bring(shown, "eve") as client:
        assert client.post(f"/api/v1/traces/{ident}/replay", json={}).status_code == 403
    with shown.registry.database.read() as tx:
        rows = ledger.rows(tx, "default", kind="trace")
    assert [(row.actor, row.subject) for row in rows] == [("ada", "harness:shop")] * 3
    assert ident not in str(rows), "rows are for ever, conversations are not"


def test_a_recorded_turn_is_scored_kept_for_its_days_and_erased(shown: Console, world: World, tmp_path: Path) -> None:
    ident = talked(shown, world)
    suites = tmp_path / "runs" / "suites" / "default" / "regressions"
    with bring(shown, "ada") as client:
        silent = client.post(f"/api/v1/traces/{ident}/suite", json={**ITEM, "turn": 1})
        assert (silent.status_code, silent.json()["cure"]) == (422, "say which calls would have been right")
        unsaid = client.post(f"/traces/{ident}/suite", data={"suite": "regressions", "turn": "2"})
        assert unsaid.status_code == 422, "nobody said what for"
        assert client.post(f"/api/v1/traces/{ident}/suite", json={**ITEM, "turn": 2}).status_code == 201
        right = {"name": "get_item", "arguments": {"item": "mug"}}
        form = {**ITEM, "keep_days": "10", "turn": "1", "calls": json.dumps([right])}
        assert client.post(f"/traces/{ident}/suite", data=form).status_code == 303
        unknown = {**ITEM, "turn": 4, "calls": [{"name": "sell", "arguments": {}}]}
        assert client.post(f"/api/v1/traces/{ident}/suite", json=unknown).status_code == 422
        told = client.get("/suites/regressions", headers=TOLD).json()
        assert told == client.get("/api/v1/suites/regressions").json()
        assert {one["id"]: one["calls"] for one in told["rows"]} == {f"{ident}#1": [right], f"{ident}#2": [right]}
        assert client.get("/suites", headers=TOLD).json() == client.get("/api/v1/suites").json()
        assert "<script>alert" not in client.get("/suites/regressions").text
    manifest = load_manifest(suites)
    assert manifest.purpose == "evaluation", "training refuses it"
    world.script = unstreamed
    config = Config(suites=("calls",), policy="endpoint", endpoint=world.engine + "/v1", endpoint_model="any")
    run(config, {"held_out": suites}, tmp_path / "scored", NullProgress())
    assert load_evaluation(tmp_path / "scored").suites[0].scores["exact"].mean == 0.5, (
        "the greeting should have been looked up"
    )
    with bring(shown, "eve") as client:
        assert client.get("/api/v1/suites").status_code == 403
        assert client.post(f"/api/v1/traces/{ident}/suite", json={**ITEM, "turn": 2}).status_code == 403
    with bring(shown, "ada") as client:
        assert client.post("/api/v1/suites/regressions/remove", json={"item": f"{ident}#1"}).json()["items"] == 1
    assert erase_viewer(tmp_path / "runs", "anna", KEY).records == {str(suites): 1}
    with shown.registry.database.read() as tx:
        rows = ledger.rows(tx, "default", kind="suite")
    assert [row.data["asked"] for row in rows] == ["add", "add", "remove"]
    assert ident not in str(rows)


def test_the_pages_are_clean_in_both_languages(shown: Console, world: World, page: Page, tmp_path: Path) -> None:
    ident = talked(shown, world)
    runs = judged(tmp_path)
    (runs / "run-a" / "steps" / "evaluate" / "artifacts" / "judged.json").write_text(json.dumps(verdict(runs)))
    with shown.registry.database.write() as tx:
        asked = (accounts.SYSTEM, "harness", "shop", "production", harness_digest(told_shop()))
        opened = proposals.propose(tx, *asked, reason="go")  # type: ignore[arg-type]  # the tuple loses the literal
        comments.add(tx, accounts.SYSTEM, opened.id, f"why now? {ATTACK}\nsee the ledger")
    scored = digest_file(runs / "run-a" / "steps" / "evaluate" / "artifacts" / "evaluation.json")
    places = {"proposal": f"/proposals/{opened.id}", "evaluation": f"/evaluations/{scored}"}
    shown.sign_in(page, "ada")
    for language in ("en", "zh"):
        for name, path in places.items():
            page.goto(shown.url + path)
            page.screenshot(path=str(tmp_path / f"{name}-{language}.png"), full_page=True)
            assert violations(page) == []
        page.goto(f"{shown.url}/traces/{ident}")
        expect(page.locator("html")).to_have_attribute("lang", language)
        for summary in page.locator("details.part > summary").all()[:2]:
            summary.click()
        page.screenshot(path=str(tmp_path / f"trace-{language}.png"), full_page=True)
        assert violations(page) == []
        if language == "en":
            page.fill("input[name=suite]", "prices")
            page.select_option("select[name=turn]", "2")
            page.check("input[name=purpose]")
            page.click("form.stack button")
            page.wait_for_url("**/suites/prices")
        page.goto(shown.url + "/suites/prices")
        page.screenshot(path=str(tmp_path / f"suite-{language}.png"), full_page=True)
        assert violations(page) == []
        page.goto(f"{shown.url}/traces/{ident}")
        page.locator("details.part > summary").first.click()
        page.click("form.filters button")
        expect(page.locator("article.turn")).to_have_count(4)
        page.screenshot(path=str(tmp_path / f"replay-{language}.png"), full_page=True)
        assert violations(page) == []
        page.click("button[name=language]")


def verdict(runs: Path) -> dict[str, object]:
    """What a judge said of the evaluation that `judged` left."""
    share = {"value": 0.75, "low": 0.6, "high": 0.9, "state": "ok"}
    file = runs / "run-a" / "steps" / "evaluate" / "artifacts" / "evaluation.json"
    criteria = {"accuracy": {"n": 2, "raw": share, "corrected": None, "missing": {}, "intents": {}}}
    return {"format": "hatstack.judged/1", "judge": "sha256:" + "2" * 64, "name": "live-commerce", "revision": 1,
            "evaluation": digest_file(file), "suite": "t1", "subjects": 2, "criteria": criteria}  # fmt: skip


def judged(folder: Path) -> Path:
    """A run with an evaluation whose sessions were kept, as its step left it."""
    step = folder / "runs" / "run-a" / "steps" / "evaluate"
    (step / "artifacts").mkdir(parents=True)
    (folder / "runs" / "run-a" / "run.json").write_text("{}")
    (step / "artifacts" / "evaluation.json").write_text(json.dumps(evaluation("naive", [0.0, 1.0])))
    record = TraceRecord(
        suite="t1", item="item-0", harness="sha256:" + "1" * 64,
        trace=Trace(session="0", harness="sha256:" + "1" * 64, harness_name="shop"),
    )  # fmt: skip
    (step / "artifacts" / "traces.jsonl").write_text(record.model_dump_json() + "\n")
    artifacts = {"evaluation": "evaluation.json", "traces": "traces.jsonl"}
    (step / "result.json").write_text(json.dumps({"artifacts": artifacts, "digests": dict.fromkeys(artifacts, "x")}))
    return folder / "runs"


@pytest.mark.parametrize("configured", [False, True])
def test_an_evaluation_is_judged_anew_or_the_page_says_how(console: Console, tmp_path: Path, configured: bool) -> None:
    from fastapi.testclient import TestClient

    runs = judged(tmp_path)
    desk = Desk(console.registry.database, catalogue(tmp_path), Settings(root=runs))
    asked = Judge("http://127.0.0.1:9/v1", "large") if configured else Judge()
    app = create_app(console.registry, ConsoleSettings(session_key=b"k" * 32, runs=runs, judge=asked), desk)
    with TestClient(app, follow_redirects=False) as client:
        client.post("/login", data={"name": "ada", "password": "ada-has-a-long-password"})
        found = re.search(r'name="csrf" value="(\w+)"', client.get("/").text)
        assert found
        (one,) = client.get("/api/v1/evaluations").json()["items"]
        page = f"/evaluations/{one['digest'][7:19]}"
        told = client.get(page, headers=TOLD).json()
        assert told == client.get("/api/v1" + page).json()
        assert told["judge"]["suites"] == ["t1"]
        text = client.get(page).text
        assert (f"{page}/judge" in text, "--judge-endpoint" in text) == (configured, not configured)
        answer = client.post(f"{page}/judge", data={"csrf": found.group(1), "suite": "t1"})
        orders = desk.store.orders("default")
        if not configured:
            assert (answer.status_code, orders) == (409, [])
            assert "python -m hat_components.judge" in answer.text
            session = "run=run-a&step=evaluate&suite=t1"
            assert "python -m hat_console --gateway URL" in client.get(f"/traces/item-0?{session}").text
            lonely = client.post(f"/traces/item-0/replay?{session}", data={"csrf": found.group(1)})
            assert (lonely.status_code, "hat up starts one" in lonely.text) == (404, True)
            return
        (placed,) = orders
        assert answer.headers["location"] == f"/runs/{placed.run}"
        job = desk.catalogue.job(placed.order, runs)
        config = job.configs["judge"].model_dump()
        assert (config["endpoint"], config["endpoint_model"]) == ("http://127.0.0.1:9/v1", "large")
        assert job.inputs["traces"].path == runs / "run-a" / "steps" / "evaluate" / "artifacts" / "traces.jsonl"
        wrong = client.post(f"{page}/judge", data={"csrf": found.group(1), "suite": "t9"})
        assert wrong.status_code == 422
