"""Schemathesis on every described route of the console, long: requests that fit and requests that do not, never a 5xx.

Prints the number of requests by route and exits 1 at the first server error. Run:
python -m bench registry_schemathesis [-- --examples 300]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from tests.security.conftest import build, opened
from tests.security.test_nothing_a_stranger_sends_breaks_the_registry import fuzz


def main() -> None:
    """Ask and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        site = opened(build(Path(temporary)))
        began = time.monotonic()
        asked = fuzz(site, given.examples)
        site.registry.close()
    told = {"routes": len(asked), "requests": sum(asked.values()), "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps({**told, "server_errors": 0, "by_route": asked}))


if __name__ == "__main__":
    main()
