"""Tells the registry: each move of a rollout as a row of the ledger, and at its end what was measured as evidence.

Always holds: a registry that is away never holds a rollout up; what could not be told is kept, in order, and told
later, while this process lives. The evidence itself stands in the resource's status too. Not here: what a row means
(hat_registry.canaries).
"""

from __future__ import annotations

import json
import logging
import queue
import re
import threading
from typing import Any

from hat_serving.canary import control
from hat_serving.canary.spec import RolloutSpec
from hat_serving.canary.state import TERMINAL, State

log = logging.getLogger("hatstack.canary")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TIMEOUT_S = 5.0
LONGEST_WAIT_S = 30.0
MOST = 10_000
"""Rows kept while the registry is away; beyond, the newest are lost and that is logged."""


class Recorder:
    """One registry. `token`: of an account that may add evidence; empty where the registry is open."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url, self._token = url.rstrip("/"), token
        self._rows: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue(MOST)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def moved(self, namespace: str, name: str, spec: RolloutSpec, before: State, after: State) -> None:
        """Called at every look; only a change of phase, step or weight is told."""
        if (before.phase, before.step, before.desired_weight) == (after.phase, after.step, after.desired_weight):
            return
        row = {
            "release": spec.release,
            "phase": after.phase,
            "step": after.step,
            "weight": after.desired_weight,
            "effective": after.effective_weight,
            "reason": after.reason[:80],
            "message": after.message[:1000],
        }
        self._put(f"/canaries/{namespace}/{name}/moves", row)
        if after.phase in TERMINAL and DIGEST.fullmatch(spec.release):
            piece = {"subject": spec.release, "type": "canary", "content": control.evidence(spec, after)}
            self._put("/evidence", piece)

    def close(self, seconds: float = 5.0) -> None:
        """Tells what is still waiting, for at most `seconds`."""
        self._stop.set()
        self._thread.join(seconds)

    def _put(self, path: str, row: dict[str, Any]) -> None:
        try:
            self._rows.put_nowait((path, row))
        except queue.Full:
            log.error("the registry has been away too long; lost: %s %s", path, json.dumps(row)[:300])

    def _run(self) -> None:
        while not (self._stop.is_set() and self._rows.empty()):
            try:
                path, row = self._rows.get(timeout=0.2)
            except queue.Empty:
                continue
            wait = 0.2
            while not self._told(path, row) and not self._stop.wait(wait):
                wait = min(wait * 2, LONGEST_WAIT_S)

    def _told(self, path: str, row: dict[str, Any]) -> bool:
        """False while it is worth trying again. What the registry refuses is logged and not tried again."""
        import urllib3

        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            answer = urllib3.request(
                "POST",
                f"{self._url}/api/v1{path}",
                body=json.dumps(row).encode(),
                headers=headers,
                timeout=TIMEOUT_S,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            log.warning("the registry does not answer: %s", type(error).__name__)
            return False
        if answer.status in (408, 429) or answer.status >= 500:
            log.warning("the registry answered %d", answer.status)
            return False
        if answer.status >= 400:
            log.error("the registry refuses %s (%d): %s", path, answer.status, answer.data.decode()[:300])
        return True
