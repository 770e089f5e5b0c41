"""Memory of the gateway over 200,000 requests: nine of ten passed on to the engine, one an agent turn in a conversation of four.

Resident memory is looked at twenty times after a tenth of the requests; the gateway keeps 500 conversations in memory, so
that they come and go. Prints one JSON line with the samples; exits 1 when the mean of the last quarter is more than 3 % off the
mean of the first, or a request failed.
Run: python bench/gateway_memory.py [--requests 200000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench._gateway_world import Load, upstream
from bench.gateway_turn import bodies, gateway

MOST = 0.03
SAMPLES = 20


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    options = parser.parse_args()
    plain = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8})
    part = options.requests // (SAMPLES + 2)
    seen: list[float] = []
    failed = 0.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        up = stack.enter_context(upstream())
        running = stack.enter_context(gateway(up.url, folder, ["--pass-through", "--kept-sessions", "500"]))
        load = stack.enter_context(Load())
        for number in range(SAMPLES + 2):
            passed = load.run(running, "/engines/primary/v1/chat/completions", [plain], 16, part - part // 10)
            turns = load.run(running, "/v1/chat/completions", bodies(number, part // 10, stream=False), 16, part // 10)
            failed += passed["failed"] + turns["failed"]
            if number >= 2:  # the first tenth fills caches and pools
                seen.append(turns["rss_mb"])
    first, last = statistics.fmean(seen[: SAMPLES // 4]), statistics.fmean(seen[-SAMPLES // 4 :])
    line = {
        "requests": part * (SAMPLES + 2),
        "failed": failed,
        "rss_mb": [round(one, 1) for one in seen],
        "change": round(last / first - 1, 4),
    }
    print(json.dumps(line))
    return int(failed > 0 or abs(last / first - 1) > MOST)


if __name__ == "__main__":
    sys.exit(main())
