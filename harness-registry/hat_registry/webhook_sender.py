"""The thread that sends webhooks: one in each server process, any number side by side on one database.

Always holds: no delivery holds a transaction open while the network is waited for; a server that dies gives its
deliveries back after the lease; an error of one delivery stops none of the others. Not here: what is due (webhooks).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from hat_harness.errors import PlatformError
from hat_registry import clock, outbound, webhooks
from hat_registry.store.database import Database

log = logging.getLogger("hatstack.webhook")
EVERY_S = 1.0
TIDY_EVERY = 3600
WORKERS = 4


class Sender:
    """Sends what is due until `close`. `allowed` are the private networks that may be asked."""

    def __init__(
        self,
        database: Database,
        allowed: Sequence[outbound.Network] = (),
        *,
        every_s: float = EVERY_S,
        now: Callable[[], datetime] = clock.now,
        timeout_s: float = outbound.TIMEOUT_S,
    ) -> None:
        self._database = database
        self._allowed = tuple(allowed)
        self._every_s = every_s
        self._now = now
        self._timeout_s = timeout_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to send in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="webhook-sender", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 15.0) -> None:
        """Finish what is under way and stop."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def round(self) -> int:
        """Enqueue and send what is due once; how many attempts were made."""
        with self._database.read() as tx:
            if not webhooks.work(tx, self._now()):
                return 0
        with self._database.write() as tx:
            webhooks.enqueue(tx, self._now())
            due = webhooks.take(tx, self._now())
        if not due:
            return 0
        with ThreadPoolExecutor(min(WORKERS, len(due))) as pool:
            list(pool.map(self._attempt, due))
        return len(due)

    def _attempt(self, due: webhooks.Due) -> None:
        status: int | None = None
        error = ""
        try:
            target = outbound.check(due.url, self._allowed)
            status, _ = outbound.post(target, due.body, webhooks.headers(due, self._now()), timeout_s=self._timeout_s)
            error = "" if 200 <= status < 300 else f"answered {status}"
        except PlatformError as refused:
            error = refused.message
        with self._database.write() as tx:
            state = webhooks.settle(tx, due, self._now(), status=status, error=error)
        if state != "delivered":
            log.warning("webhook delivery %s: %s (%s)", due.id, error, state)

    def _run(self) -> None:
        tidied = -TIDY_EVERY
        rounds = 0
        while not self._stop.wait(self._every_s):
            try:
                while self.round() and not self._stop.is_set():
                    pass
                if rounds - tidied >= TIDY_EVERY:
                    with self._database.write() as tx:
                        webhooks.tidy(tx, self._now())
                    tidied = rounds
            except Exception as error:  # the database may be away; the thread must outlive it
                log.warning("webhooks wait: %s", getattr(error, "message", type(error).__name__))
            rounds += 1
