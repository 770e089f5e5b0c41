"""`hat loadtest run|draw|replay|report`: loads of many viewers, and the latency replay of the report catalogue."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import CheckError, ConflictError, UsageError
from hatstack.cli.output import DryRun, Output, RunsDir, emit, say, table

if TYPE_CHECKING:
    from hat_harness.spec import Harness
    from hat_serving.loadtest.measured import LoadResult
    from hat_serving.loadtest.replay import RequestRecord, Row
    from hat_serving.loadtest.requests import RequestSet

app = typer.Typer(no_args_is_help=True, help="Load tests.")
HEADS = ("arm", "turns", "failed", "ttft p95", "wall p50", "wall p95", "tokens/s", "in time %")
ROWS = ("model", "mtp", "C", "run", "wall p50", "wall p95", "ttft p95", "decode", "in time %", "ok %", "safe %")
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the result.", show_default="a new one in the runs")]
Seed = Annotated[int, typer.Option("--seed", help="Draws viewers, comments and requests.")]
HarnessName = Annotated[str, typer.Option("--harness", help="Harness: a folder, or a shipped one.")]
Count = Annotated[int, typer.Option("--count", min=1, help="Requests in all; a tenth of the measured ones warm up.")]


class Shape(StrEnum):
    """How many viewers there are over time."""

    FLAT = "flat"
    RAMP = "ramp"
    SPIKE = "spike"
    SOAK = "soak"


class Route(StrEnum):
    """What viewers speak over."""

    CHAT = "chat"
    ROOM = "room"


@app.callback()
def _noun() -> None:
    """Load tests."""


@app.command("run")
def run(
    gateway: Annotated[
        str, typer.Option("--gateway", help="Address of the gateway.", envvar="HATSTACK_GATEWAY", show_envvar=True)
    ] = "http://127.0.0.1:8710",
    name: Annotated[str, typer.Option("--name", help="Harness or release to ask for.")] = "live-commerce",
    users: Annotated[int, typer.Option("--users", min=1, help="Viewers at the height of the load.")] = 50,
    duration: Annotated[float, typer.Option("--duration", min=1, help="Seconds.")] = 60.0,
    shape: Annotated[Shape, typer.Option("--shape", help="Viewers over time.")] = Shape.FLAT,
    think: Annotated[float, typer.Option("--think", min=0, help="Mean seconds between reply and next comment.")] = 2.0,
    burst_every: Annotated[
        float,
        typer.Option("--burst-every", min=0, help="Seconds between sales that make viewers ask at once; 0: none."),
    ] = 20.0,
    turns: Annotated[int, typer.Option("--turns", min=1, help="Comments of a conversation.")] = 4,
    route: Annotated[
        Route, typer.Option("--route", help="chat is streamed; room names release and harness.")
    ] = Route.CHAT,
    room_seed: Annotated[int, typer.Option("--room-seed", help="Seed of the room that the tools serve.")] = 1,
    seed: Seed = 1,
    ui: Annotated[int, typer.Option("--ui", min=0, help="Serve Locust's page at this port; 0: run at once.")] = 0,
    allow_failures: Annotated[bool, typer.Option("--allow-failures", help="Exit 0 though turns failed.")] = False,
    out: Out = None,
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Put viewers on a gateway; exit code 1 when a turn failed or was lost. HATSTACK_TOKEN is sent when it is set."""
    from hat_serving.loadtest.plan import LoadPlan
    from hat_serving.loadtest.run import RunningLoad

    plan = LoadPlan(
        url=gateway.rstrip("/"), model=name, users=users, duration_s=duration, shape=shape.value, think_s=think,
        burst_every_s=burst_every, turns=turns, route=route.value, room_seed=room_seed, seed=seed,
    )  # fmt: skip
    folder = _folder(out, runs_dir, "load")
    with RunningLoad(plan, folder, ui_port=ui or None) as load:
        say(
            f"Locust's page: http://127.0.0.1:{ui} (Ctrl-C ends it)"
            if ui
            else f"{users} viewers for {duration:g} s ..."
        )
    result = load.result()
    body = result.to_json()
    page = _write(folder, body)
    emit({**body, "report": str(page)}, lambda: _told(result, page))
    if (result.failed or result.lost_turns) and not allow_failures:
        raise CheckError(
            f"{result.failed} of {result.whole.turns} turns failed, {result.lost_turns} were lost", place=str(page)
        )


@app.command("draw")
def draw(
    out: Annotated[Path, typer.Argument(help="File to write, JSON.")],
    traces: Annotated[
        list[Path] | None, typer.Option("--traces", help="Recorded traces (JSONL, or a folder); else simulated rooms.")
    ] = None,
    harness: HarnessName = "live-commerce",
    seed: Seed = 1,
    count: Count = 110,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Draw D_perf, the requests of a replay, from recorded traces or from simulated rooms."""
    if out.exists() and not dry_run:
        raise ConflictError("there is a file already", place=str(out), cure="give another name")
    made = _drawn(harness, seed, count, traces or [])
    if not dry_run:
        made.save(out)
    body = {"requests": str(out), "digest": made.digest, "count": len(made.requests), "changed": not dry_run}
    emit(body, f"{len(made.requests)} requests, {made.warm_up} of them to warm up  {made.digest[:19]}")


@app.command("replay")
def replay(
    endpoint: Annotated[
        list[str] | None,
        typer.Option("--endpoint", help="[MODEL:on|off=]URL of an engine, on or off for MTP; may be repeated."),
    ] = None,
    serve: Annotated[
        list[str] | None,
        typer.Option(
            "--serve", help="MODEL=FOLDER: on the dev engine, MTP off, and on if it has a head; may be repeated."
        ),
    ] = None,
    requests: Annotated[
        Path | None, typer.Option("--requests", help="D_perf from hat loadtest draw.", show_default="drawn by --seed")
    ] = None,
    harness: HarnessName = "live-commerce",
    concurrency: Annotated[str, typer.Option("--concurrency", help="Clients, with commas.")] = "1,2,4,8",
    runs_at_4: Annotated[int, typer.Option("--runs-at-4", min=1, help="Runs at four clients.")] = 3,
    endpoint_model: Annotated[
        str, typer.Option("--endpoint-model", help="Model name that engines expect.")
    ] = "default",
    seed: Seed = 1,
    count: Count = 110,
    out: Out = None,
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Replay D_perf against engines, closed loop; HATSTACK_ENDPOINT_KEY is sent as bearer token when it is set."""
    from hat_harness.digest import harness_digest
    from hat_harness.load import load_harness
    from hat_serving.loadtest.replay import to_json
    from hat_serving.loadtest.requests import RequestSet

    runs = [
        (number, turn) for number in _clients(concurrency) for turn in range(1, (runs_at_4 if number == 4 else 1) + 1)
    ]
    targets = [_endpoint(one) for one in endpoint or ()]
    served = [_pair(one) for one in serve or ()]
    if not targets and not served:
        raise UsageError(
            "no engine is named", place="hat loadtest replay", cure="--endpoint URL, or --serve MODEL=FOLDER"
        )
    loaded = load_harness(paths.harness(harness))
    drawn = RequestSet.read(requests) if requests else _drawn(harness, seed, count, [])
    folder = _folder(out, runs_dir, "replay")
    drawn.save(folder / "requests.json")
    rows: list[Row] = []
    with closing(_engines(targets, served)) as every:
        for model, mtp, url in every:
            rows += _measured(drawn, loaded, url, endpoint_model, (model, mtp), runs, folder)
    body = to_json(rows, drawn, harness_digest(loaded), _machine())
    page = _write(folder, body)
    emit({**body, "report": str(page)}, lambda: table(ROWS, [_shown(row) for row in rows]) + f"\nreport  {page}")


def _measured(
    drawn: RequestSet,
    harness: Harness,
    url: str,
    name: str,
    label: tuple[str, str],
    runs: list[tuple[int, int]],
    folder: Path,
) -> list[Row]:
    """All runs against one engine; each run's requests are appended to the folder."""
    import asyncio

    from hat_serving.loadtest import replay as replays
    from hat_serving.loadtest.timed import Endpoint

    model, mtp = label

    async def measure() -> list[Row]:
        rows = []
        key = os.environ.get("HATSTACK_ENDPOINT_KEY", "")
        async with Endpoint(url.rstrip("/").removesuffix("/v1"), name, key) as target:
            for number, turn in runs:
                row, records = await replays.replay(
                    drawn, harness, target, model=model, mtp=mtp, concurrency=number, run=turn
                )
                rows.append(row)
                _keep(folder, {"model": model, "mtp": mtp, "concurrency": number, "run": turn}, records)
                say(
                    f"{model} mtp {mtp} C={number}: wall p50 {_ms(row.wall_p50_s)}, {row.decode_tokens_per_s:.0f} tokens/s"
                )
        return rows

    return asyncio.run(measure())


def _shown(row: Row) -> tuple[object, ...]:
    times = (_ms(seconds) for seconds in (row.wall_p50_s, row.wall_p95_s, row.ttft_p95_s))
    shares = (100 * share for share in (row.in_time, row.success, row.safe))
    return row.model, row.mtp, row.concurrency, row.run, *times, row.decode_tokens_per_s, *shares


@app.command("report")
def report(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a load or replay.", show_default="the newest of the runs")
    ] = None,
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Write the page of a load or replay again."""
    from hat_harness.errors import PlatformError

    runs = paths.runs_dir(runs_dir)
    chosen = folder
    if chosen is None:
        found = sorted(runs.glob("*/loadtest.json"), key=lambda path: path.stat().st_mtime)
        chosen = found[-1].parent if found else runs / "none"
    path = chosen / "loadtest.json"
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        page = _write(chosen, body)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, PlatformError):
            raise
        raise UsageError("no load test here", place=str(path), cure="hat loadtest run, hat loadtest replay") from None
    emit({**body, "report": str(page)}, str(page))


# ---- parts ----------------------------------------------------------------------------------------------------


def _drawn(harness: str, seed: int, count: int, traces: list[Path]) -> RequestSet:
    from hat_harness.load import load_harness
    from hat_serving.loadtest.requests import read_traces, recorded, simulated

    if traces:
        return recorded(read_traces(traces), seed, count)
    return simulated(load_harness(paths.harness(harness)), seed, count)


def _folder(out: Path | None, runs_dir: Path | None, stem: str) -> Path:
    folder = out or paths.fresh(paths.runs_dir(runs_dir), stem)
    if (folder / "loadtest.json").exists():
        raise ConflictError("the folder holds a load test already", place=str(folder), cure="give another --out")
    return folder


def _write(folder: Path, body: dict[str, Any]) -> Path:
    """`loadtest.json` and its page."""
    from hatstack.cli.loadtest_page import page

    folder.mkdir(parents=True, exist_ok=True)
    text = page(folder, body)
    for name, content in (("loadtest.json", json.dumps(body, indent=1, ensure_ascii=False)), ("report.html", text)):
        fresh = folder / f".{name}.new"
        fresh.write_text(content + "\n", encoding="utf-8")
        fresh.replace(folder / name)
    return folder / "report.html"


def _keep(folder: Path, cell: dict[str, Any], records: list[RequestRecord]) -> None:
    """Append the requests of one run."""
    from dataclasses import asdict

    with (folder / "records.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**cell, **asdict(one)}) + "\n" for one in records)


def _engines(
    targets: list[tuple[str, str, str]], served: list[tuple[str, Path]]
) -> Generator[tuple[str, str, str], None, None]:
    """(model, mtp, address) one after another; a served engine runs while its caller measures it."""
    from hat_serving.loadtest.serve import dev_engine, has_head

    yield from targets
    for model, folder in served:
        for on in (False, True) if has_head(folder) else (False,):
            with dev_engine(folder, mtp=on) as url:
                yield model, "on" if on else "off", url


def _endpoint(given: str) -> tuple[str, str, str]:
    """(model, on or off, URL) of an `--endpoint`."""
    label, found, url = given.partition("=")
    if not found or "://" in label:
        label, url = "model:off", given
    model, _, mtp = label.partition(":")
    if not model or mtp not in ("on", "off") or not url.startswith(("http://", "https://")):
        raise UsageError(f"cannot read {given!r}", place="--endpoint", cure="trained:on=http://127.0.0.1:8720")
    return model, mtp, url


def _pair(given: str) -> tuple[str, Path]:
    model, found, folder = given.partition("=")
    if not found or not model or not Path(folder).is_dir():
        raise UsageError(f"cannot read {given!r}", place="--serve", cure="trained=FOLDER, with a model in it")
    return model, Path(folder)


def _clients(given: str) -> list[int]:
    parts = given.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{given!r} is no list of numbers", place="--concurrency", cure="1,2,4,8")
    return [int(part) for part in parts]


def _machine() -> dict[str, Any]:
    import platform
    from importlib.metadata import version

    return {
        "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "machine": platform.machine(),
        "python": platform.python_version(), "hatstack": version("hatstack"),
    }  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds:.3f} s"


def _told(result: LoadResult, page: Path) -> str:
    arms = {**result.arms, "all": result.whole}
    rows = [
        (name or "(not told)", one.turns, one.failed, _ms(one.ttft_p95_s), _ms(one.wall_p50_s), _ms(one.wall_p95_s),
         one.tokens_per_s, 100 * one.in_time) for name, one in arms.items()
    ]  # fmt: skip
    lines = [table(HEADS, rows), f"lost turns {result.lost_turns}"]
    lines += [f"moved {before} → {after}: {count}" for (before, after), count in result.moves.items()]
    lines += [f"failed {count} × {error}" for error, count in result.errors.items()]
    return "\n".join([*lines, f"report  {page}"])
