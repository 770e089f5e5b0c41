"""Viewers talk to the micro model while a release is promoted, and while a bad one is taken back: nobody is failed.

Locust → Traefik → gateway → CPU engines, everything in pods; the gateway splits by units, Prometheus measures, the
controller moves, the ledger and the console's page tell of it.
"""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from hat_registry import ledger
from hat_serving.canary import control
from hat_serving.canary.kube import Kube, Manifest
from hat_serving.loadtest.measured import LoadResult, conversations
from hat_serving.loadtest.plan import LoadPlan
from hat_serving.loadtest.run import RunningLoad
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.rollouts import rollout, status, until_phase
from tests.cluster.story import PASSWORD, Scene, folder, scene

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.matrix,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("controller"),
]
CHI_SQUARE = 13.8
"""Bound for one degree of freedom: exceeded by chance once in 5,000."""
FALLBACKS = "hatstack_gateway_arm_fallbacks_total"
TURNS = 'sum(increase(hatstack_gateway_turns_total{arm="$arm"}[$window]))'


def story(at: Scene, name: str, engine: str, release: str) -> Manifest:
    """A rollout of another engine behind the gateway, gated by turns that the other arm had to serve."""
    events = f'sum(increase({FALLBACKS}{{arm="$arm"}}[$window])) or vector(0)'
    share = {"events": events, "total": TURNS, "margin": 0.35}
    return rollout(
        at.namespace,
        name=name,
        release=release,
        target={"backend": "gateway", "url": at.admin, "deployment": "live", "engine": engine},
        steps=[
            {"setWeight": 10},
            {"pause": {"duration": "15s"}},
            {"setWeight": 50},
            {"pause": {"duration": "15s"}},
            {"analysis": {"deadline": "120s"}},
        ],
        metrics=[{"name": "fallbacks", "share": share, "interval": "2s", "minimumSample": 8}],
        analysis={"metrics": ["fallbacks"]},
        prometheus={"url": at.prometheus},
        soak="10s",
        progressDeadline="60s",
    )


def load(at: Scene, seed: int) -> LoadPlan:
    return LoadPlan(
        url=at.gateway, model="live", users=24, duration_s=400, spawn_rate=5, think_s=10, turns=3, stream=False,
        seed=seed, timeout_s=60,
    )  # fmt: skip


def run(at: Scene, out: Path, manifest: Manifest, seed: int) -> tuple[dict[str, Any], LoadResult]:
    """The rollout under load, to its end and a little beyond."""
    name = manifest["metadata"]["name"]
    with RunningLoad(load(at, seed), out) as running:
        _wait(lambda: len({turn.viewer for turn in running.so_far()}) >= 20, "viewers talk")
        control.start(at.kube, manifest)
        done = until_phase(at.kube, at.namespace, "Healthy", "Degraded", "Paused", name=name, seconds=300)
        ended = len(running.so_far())
        _wait(lambda: len(running.so_far()) > ended + 20, "viewers go on talking")
        running.stop()
    return done, running.result()


def _wait(fact: Any, what: str) -> None:
    from tests.cluster.helpers import until

    until(fact, what, 120)


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def split_holds(done: dict[str, Any], result: LoadResult) -> list[int]:
    """In every window of the rollout the units that began a conversation split as promised; the weights seen."""
    seen = []
    for window in done["windows"]:
        begin, end, weight = moment(window["started"]) + 0.5, moment(window["ended"]), window["weight"] / 100
        firsts = {}
        for turns in conversations(result.turns).values():
            if begin <= turns[0].at <= end and turns[0].arm:
                firsts.setdefault(turns[0].viewer, turns[0].arm)
        n, k = len(firsts), sum(arm == "canary" for arm in firsts.values())
        if weight in (0.0, 1.0):
            assert k == n * weight, (window, k, n)
        elif n:
            assert (k - n * weight) ** 2 / (n * weight * (1 - weight)) < CHI_SQUARE, (window, k, n)
        seen.append(n)
    return seen


def rows(at: Scene, name: str) -> list[dict[str, Any]]:
    with at.registry.database.read() as tx:
        found = ledger.rows(tx, "default", kind="canary", subject=f"canary:{at.namespace}/{name}", limit=100)
    return [dict(row.data) for row in found]


def page(at: Scene, name: str, said: str, picture: Path) -> None:
    """The console's page in a real Chromium, signed in as an approver."""
    found = os.environ.get("HATSTACK_CHROMIUM") or shutil.which("chromium")
    assert found, "no Chromium: make deps installs it"
    arguments = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP console.example.com 127.0.0.1"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        shown = browser.new_page(viewport={"width": 1280, "height": 1400})
        shown.goto(f"{at.console}/login")
        shown.fill("input[name=name]", "ada")
        shown.fill("input[name=password]", PASSWORD)
        shown.click("main button")
        shown.goto(f"{at.console}/canaries/{at.namespace}/{name}")
        expect(shown.locator("h1 .state")).to_have_text(said)
        shown.screenshot(path=str(picture), full_page=True)
        browser.close()


def test_promotion_and_abort_under_traffic_fail_nobody(
    kube: Kube, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    pictures = Path(os.environ.get("HATSTACK_PICTURES", str(tmp_path)))
    good, bad = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    with scene(cluster, kube, namespace) as at:
        done, result = run(at, folder(tmp_path, "bad"), story(at, "chat-bad", "broken", bad), 1)
        assert (done["phase"], done["reason"]) == ("Degraded", "AnalysisFailed"), done
        assert result.failed == 0, result.errors
        assert result.lost_turns == 0
        split_holds(done, result)
        over = moment(done["finishedAt"])
        assert {turn.arm for turn in result.turns if turn.at > over and turn.ok and turn.arm} == {"stable"}
        assert set(result.moves) <= {("canary", "stable")}
        assert all(move.at > moment(done["startedAt"]) for move in result.moved)
        _wait(lambda: rows(at, "chat-bad") and rows(at, "chat-bad")[-1]["phase"] == "Degraded", "the ledger has it")
        page(at, "chat-bad", "taken back", pictures / "bad.png")

        done, result = run(at, folder(tmp_path, "good"), story(at, "chat-good", "next", good), 2)
        assert done["reason"] == "Promoted", done
        assert result.failed == 0, result.errors
        assert result.lost_turns == 0
        assert max(split_holds(done, result)) >= 8
        promoted = moment(done["finishedAt"])
        early = [move for move in result.moved if move.at < promoted - 5]
        assert early == [], "a running conversation keeps its arm"
        assert set(result.moves) <= {("canary", "stable")}, "after a promotion the canary is called stable"
        _wait(lambda: rows(at, "chat-good") and rows(at, "chat-good")[-1]["phase"] == "Healthy", "the ledger has it")
        told = rows(at, "chat-good")
        assert [row["weight"] for row in told] == sorted(row["weight"] for row in told)
        assert {0, 10, 50, 100} >= {row["weight"] for row in told} >= {10, 50, 100}
        with at.registry.database.read() as tx:
            from hat_registry import evidence

            ((_, piece),) = evidence.of_subject(tx, "default", good)
        assert (piece.type, piece.content["verdict"]) == ("canary", "success")
        page(at, "chat-good", "promoted", pictures / "good.png")
        assert status(kube, namespace, "chat-good")["effectiveWeight"] == 100
