"""Bounds on how often one caller may ask: token buckets and failed attempts, for a bounded number of callers.

Always holds: a caller who keeps within the rate is never refused, and memory is bounded whoever asks. One process counts
for itself: with N replicas a caller has N times the rate. Not here: who is asking (access), passwords (accounts).
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from hat_registry.errors import LimitedError

CALLERS = 20_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Buckets:
    """`burst` at once and `per_s` on average for each key; the key that was quiet the longest is forgotten first."""

    def __init__(
        self, per_s: float, burst: int, *, clock: Callable[[], float] = time.monotonic, callers: int = CALLERS
    ) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._clock = clock
        self._callers = callers
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def spend(self, key: str, what: str = "requests") -> None:
        """Take one. LimitedError says how long to wait when there is none."""
        bucket = self._filled(key)
        if bucket.left < 1:
            raise self._limited(bucket, what)
        bucket.left -= 1

    def check(self, key: str, what: str = "attempts") -> None:
        """Raise LimitedError when there is none left; takes none."""
        bucket = self._filled(key)
        if bucket.left < 1:
            raise self._limited(bucket, what)

    def _filled(self, key: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._callers:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = _Bucket(self._burst, now)
        else:
            bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_s)
            bucket.at = now
            self._buckets.move_to_end(key)
        return bucket

    def _limited(self, bucket: _Bucket, what: str) -> LimitedError:
        wait = max(1, math.ceil((1 - bucket.left) / self._per_s))
        error = LimitedError(f"too many {what}", cure=f"wait {wait} s")
        error.retry_after_s = wait
        return error
