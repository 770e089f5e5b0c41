"""The page of a load or a replay: self-contained HTML in the style of the other reports; `loadtest.json` is its twin.

Always holds: what the page shows stands in the JSON or in the turns beside it. Not here: measuring.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hat_components.paper.catalogue import Rendered, render
from hat_components.paper.page import page_html
from hat_components.paper.sources import Source, Sources
from hat_components.report import svg
from hat_components.report.view import Section, Table

ITEMS = ("t7", "t17", "t18", "t20")
TIMES = (("ttft_p50_s", "TTFT P50, s"), ("ttft_p95_s", "TTFT P95, s"), ("between_p95_s", "Between pieces P95, s"),
         ("wall_p50_s", "Wall P50, s"), ("wall_p95_s", "Wall P95, s"), ("wall_p99_s", "Wall P99, s"))  # fmt: skip
RATES = (("turns", "Turns", "d"), ("failed", "Failed", "d"), ("in_time", "In time", ".1%"), ("turns_per_s", "Turns/s", ".1f"),
         ("goodput_per_s", "Goodput, turns/s", ".1f"), ("tokens_per_s", "Tokens/s", ".0f"))  # fmt: skip
SLICES = 40
"""Points of a curve over time."""


def page(folder: Path, body: dict[str, Any]) -> str:
    """The page of what `body` (a `loadtest.json`) and the files of `folder` hold."""
    if body["kind"] == "replay":
        path = folder / "loadtest.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = folder / ".loadtest.page"
        scratch.write_text(json.dumps(body), encoding="utf-8")
        try:
            sources = Sources([Source("loadtest", scratch, 0.0, folder.name)])
            return page_html([render(ident, sources) for ident in ITEMS], f"Latency replay {folder.name}")
        finally:
            scratch.unlink()
    return page_html(list(_load(folder, body)), f"Load {folder.name}")


def _load(folder: Path, body: dict[str, Any]) -> Iterable[Rendered]:
    plan = body["plan"]
    lead = (
        f"{plan['users']} viewers, shape {plan['shape']}, {plan['duration_s']:g} s against {plan['model']}; think time "
        f"{plan['think_s']:g} s, an item on sale every {plan['burst_every_s']:g} s. "
        f"{body['lost_turns']} turns were lost."
    )
    arms = [(name or "(not told)", one) for name, one in body["arms"].items()]
    shown = [*arms, ("all", body["whole"])]
    tables = (
        _rates("By the arm that served: turns", shown),
        _times("By the arm that served: times", shown),
        _rates("By intent: turns", list(body["intents"].items())),
        _times("By intent: times", list(body["intents"].items())),
    )
    yield _section("figures", "Figures", lead, tables, _curves(folder))
    moves = tuple((one["before"], one["after"], str(one["count"])) for one in body["moves"])
    errors = tuple((error, str(count)) for error, count in body["errors"].items())
    told = (
        *((Table("Moves within conversations", ("From", "To", "Conversations"), moves),) if moves else ()),
        *((Table("Failures", ("What was said", "Turns"), errors),) if errors else ()),
    )
    yield _section("moves", "Moves and failures", "" if told else "No conversation moved and no turn failed.", told)


def _section(ident: str, title: str, lead: str, tables: tuple[Table, ...], plots: tuple[str, ...] = ()) -> Rendered:
    return Rendered(ident, title, "made", Section(ident, title, lead, tables, plots), (), ())


def _rates(caption: str, rows: list[tuple[str, dict[str, Any]]]) -> Table:
    cells = tuple((name, *(format(one[key], form) for key, _, form in RATES)) for name, one in rows)
    return Table(caption, ("", *(head for _, head, _ in RATES)), cells)


def _times(caption: str, rows: list[tuple[str, dict[str, Any]]]) -> Table:
    cells = tuple((name, *(f"{one[key]:.3f}" for key, _ in TIMES)) for name, one in rows)
    return Table(caption, ("", *(head for _, head in TIMES)), cells)


def _curves(folder: Path) -> tuple[str, ...]:
    """Wall time over the load: P50 and P95 of each slice of time; the same turns stand in `turns.jsonl`."""
    from hat_serving.loadtest.measured import percentile, read_turns

    path = folder / "turns.jsonl"
    turns = [turn for turn in read_turns(path) if turn.ok] if path.exists() else []
    if not turns:
        return ()
    first = min(turn.at for turn in turns)
    width = max(0.001, (max(turn.at for turn in turns) - first) / SLICES)
    slices: dict[int, list[float]] = {}
    for turn in turns:
        slices.setdefault(int((turn.at - first) / width), []).append(turn.wall)
    lines = [
        svg.Curve(name, tuple((number * width, percentile(walls, share)) for number, walls in sorted(slices.items())))
        for name, share in (("P50", 0.5), ("P95", 0.95))
    ]
    return (svg.curves("Wall time of turns over the load, seconds", lines, x_label="seconds", y_label="seconds"),)
