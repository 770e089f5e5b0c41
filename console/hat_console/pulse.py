"""How the arms of the gateway are doing: latency, goodput, tokens and cost per reply, from the counters that it shows Prometheus.

Always holds: numbers are differences of counters over the last minutes, so that a restart of the gateway is not a number;
what cannot be known (no gateway, no price, too few turns) is None and never zero; reading costs the gateway one request in
ten seconds, whoever looks. Not here: alarms (charts), comparing arms (experiments, canaries).
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from hat_harness.errors import PlatformError

EVERY_S = 10.0
WINDOW_S = 300.0
"""What the numbers are of."""
KEPT = 180
"""Samples: half an hour."""
POINTS = 30
"""Of a sparkline."""
PREFIX = "hatstack_gateway_"
Key = tuple[str, str, str]
"""(release, arm, harness), each short as the gateway labels it."""


@dataclass
class Counters:
    """One arm's counters at one moment."""

    buckets: dict[float, float] = field(default_factory=dict)
    """Upper bound in seconds → turns that took no longer."""
    outcomes: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, float] = field(default_factory=dict)

    def since(self, before: Counters | None) -> Counters:
        """What was added since; everything after a restart."""
        if before is None or any(now < then for now, then in self._pairs(before)):
            return self
        return Counters(
            {key: value - before.buckets.get(key, 0) for key, value in self.buckets.items()},
            {key: value - before.outcomes.get(key, 0) for key, value in self.outcomes.items()},
            {key: value - before.tokens.get(key, 0) for key, value in self.tokens.items()},
        )

    def _pairs(self, before: Counters) -> list[tuple[float, float]]:
        """(now, then) of every counter that stood before."""
        found = [(self.buckets.get(bound, 0), then) for bound, then in before.buckets.items()]
        for mine, theirs in ((self.outcomes, before.outcomes), (self.tokens, before.tokens)):
            found += [(mine.get(key, 0), then) for key, then in theirs.items()]
        return found


@dataclass(frozen=True)
class Prices:
    """Of a million tokens, in whatever currency; None: not known."""

    taken: float | None = None
    made: float | None = None


def read(text: str) -> dict[Key, Counters]:
    """The arms in a page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[Key, Counters] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            if not sample.name.startswith(PREFIX) or not {"release", "arm", "harness"} <= set(labels):
                continue
            arm = found.setdefault((labels["release"], labels["arm"], labels["harness"]), Counters())
            match sample.name.removeprefix(PREFIX):
                case "turn_seconds_bucket":
                    bound = float(labels["le"])
                    arm.buckets[bound] = arm.buckets.get(bound, 0) + sample.value
                case "turns_total":
                    arm.outcomes[labels["outcome"]] = arm.outcomes.get(labels["outcome"], 0) + sample.value
                case "tokens_total":
                    arm.tokens[labels["direction"]] = arm.tokens.get(labels["direction"], 0) + sample.value
    return {key: arm for key, arm in found.items() if arm.outcomes}


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Seconds, linear within a bucket as Prometheus does it; None without turns. Beyond the last bound: that bound."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0
    if total <= 0:
        return None
    low, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= share * total:
            if math.isinf(bound):
                return low
            inside = buckets[bound] - below
            return low + (bound - low) * ((share * total - below) / inside if inside else 1.0)
        low, below = bound, buckets[bound]
    return low


class Pulse:
    """The last half hour of a gateway. `urls` are the metrics pages of its replicas; a page that fails counts for nothing."""

    def __init__(
        self,
        urls: Sequence[str],
        prices: Prices | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.urls = tuple(urls)
        self._prices = prices or Prices()
        self._clock = clock
        self._samples: deque[tuple[float, dict[Key, Counters]]] = deque(maxlen=KEPT)
        self._tried = -math.inf
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def start(self) -> None:
        """Sample in the background until `close`."""
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def told(self) -> dict[str, Any]:
        """What is known now; looks at the gateway first where the last look is old."""
        self.sample()
        with self._lock:
            samples = list(self._samples)
        if not samples:
            return {"arms": [], "window_s": 0, "trouble": self.trouble, "priced": self._priced}
        at, newest = samples[-1]
        first = next((one for one in samples if at - one[0] <= WINDOW_S), samples[0])
        arms = [self._arm(key, counters, first, at, samples) for key, counters in sorted(newest.items())]
        shown = [arm for arm in arms if arm["turns"]]
        return {"arms": shown, "window_s": round(at - first[0]), "trouble": self.trouble, "priced": self._priced}

    def sample(self) -> None:
        """Read the counters, unless that was done a moment ago."""
        with self._lock:
            now = self._clock()
            if now - self._tried < EVERY_S:
                return
            self._tried = now
        found: dict[Key, Counters] = {}
        trouble = ""
        answered = 0
        for url in self.urls:
            try:
                answer = httpx.get(url, timeout=2.0)
                answer.raise_for_status()
                pages = read(answer.text)
            except (httpx.HTTPError, httpx.InvalidURL, PlatformError, ValueError) as error:
                trouble = f"the gateway's metrics do not answer ({type(error).__name__})"
                continue
            answered += 1
            for key, arm in pages.items():
                _add(found.setdefault(key, Counters()), arm)
        with self._lock:
            self.trouble = trouble
            if answered == len(self.urls):  # counters of some replicas alone would look like a restart
                self._samples.append((now, found))

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.sample()

    @property
    def _priced(self) -> bool:
        return self._prices.taken is not None and self._prices.made is not None

    def _arm(
        self,
        key: Key,
        now: Counters,
        first: tuple[float, dict[Key, Counters]],
        at: float,
        samples: Sequence[tuple[float, dict[Key, Counters]]],
    ) -> dict[str, Any]:
        release, arm, harness = key
        # A single look has nothing before it: then it is everything since the gateway's start, at no known rate.
        before = first[1].get(key, Counters()) if at > first[0] else None
        gone = now.since(before)
        seconds = at - first[0]
        turns = sum(gone.outcomes.values())
        good = turns - gone.outcomes.get("safe", 0)
        replies = sum(gone.outcomes.get(name, 0) for name in ("reply", "refuse", "safe"))
        taken, made = gone.tokens.get("in", 0), gone.tokens.get("out", 0)
        cost = None
        if self._priced and replies:
            cost = (taken * (self._prices.taken or 0) + made * (self._prices.made or 0)) / 1e6 / replies
        return {
            "release": release,
            "arm": arm,
            "harness": harness,
            "turns": round(turns),
            "safe": round(gone.outcomes.get("safe", 0)),
            "p50_s": quantile(gone.buckets, 0.5),
            "p95_s": quantile(gone.buckets, 0.95),
            "goodput_per_s": good / seconds if seconds else None,
            "tokens_per_reply": (taken + made) / replies if replies else None,
            "cost_per_reply": cost,
            "p95_line": _line(samples, key),
        }


def _add(into: Counters, more: Counters) -> None:
    for bound, value in more.buckets.items():
        into.buckets[bound] = into.buckets.get(bound, 0) + value
    for mine, theirs in ((into.outcomes, more.outcomes), (into.tokens, more.tokens)):
        for key, value in theirs.items():
            mine[key] = mine.get(key, 0) + value


def _line(samples: Sequence[tuple[float, dict[Key, Counters]]], key: Key) -> list[float | None]:
    """p95 in seconds of each of the last stretches of a minute, oldest first; None where there were no turns."""
    made: list[float | None] = []
    step = max(1, round(60 / EVERY_S))
    for end in range(len(samples) - 1, step - 1, -step):
        now, before = samples[end][1].get(key), samples[end - step][1].get(key, Counters())
        made.append(quantile(now.since(before).buckets, 0.95) if now else None)
    return made[::-1][-POINTS:]
