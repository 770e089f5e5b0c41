"""T7, T17, T18, T20, T16, T11: latency replay, workload, speculation, quality with speculation off and on, online A/B.

Replays are `loadtest.json` of kind `replay`. Of a cell (model, MTP, C) that was run more than once the mean of its newest
file's runs is shown. Always holds: a speed-up compares the same model and C in one file, under the same requests. Not here:
measuring (serving).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.paper.catalogue import Made, Need, item, points, span
from hat_components.paper.sources import Source, Sources
from hat_components.report.view import Table
from hat_components.step import InputError

REPLAY = Need("no latency replay", "hat loadtest replay --serve base=FOLDER --serve trained=FOLDER")
QUALITY = Need(
    "no two evaluations of one suite with arms NAME-mtp-off and NAME-mtp-on",
    "hat evaluate --suite t1 --endpoint URL/v1 --endpoint-model NAME --set steps.evaluate.arm=trained-mtp-on",
)
EXPERIMENT = Need("no experiment", "hat experiment status NAME --output json > runs/NAME/experiment.json")


class Spread(BaseModel):
    """Mean and percentiles."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    mean: float
    p50: float
    p95: float


class Row(BaseModel):
    """What is read of a replay's row."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    model: str
    mtp: str
    concurrency: int
    run: int
    requests: int
    wall_p50_s: float
    wall_p95_s: float
    ttft_p95_s: float
    decode_tokens_per_s: float
    in_time: float
    success: float
    safe: float = 0.0
    calls_per_request: float
    tokens_in_per_call: float
    tokens_out_per_call: float
    running: Spread | None = None
    queued: Spread | None = None
    accept_length: Spread | None = None
    accept_rate_sglang: Spread | None = None
    accept_rate_over_draft: Spread | None = None


class Replay(BaseModel):
    """A replay's file."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    requests: dict[str, Any]
    rows: tuple[Row, ...]


def read_replay(path: Path) -> Replay:
    """A replay. InputError for what is none."""
    body = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(body, dict) or body.get("kind") != "replay":
        raise InputError("no replay", place=str(path))
    return Replay.model_validate(body)


def _cells(sources: Sources) -> tuple[Source, Replay, list[list[Row]]] | None:
    """The newest replay and its rows by cell, in the order of model, MTP and C."""
    found = sources.newest("loadtest", read_replay)
    if found is None:
        return None
    cells: dict[tuple[str, str, int], list[Row]] = {}
    for row in found[1].rows:
        cells.setdefault((row.model, row.mtp, row.concurrency), []).append(row)
    models = list(dict.fromkeys(row.model for row in found[1].rows))
    order = sorted(cells, key=lambda key: (models.index(key[0]), key[1] == "on", key[2]))
    return *found, [cells[key] for key in order]


def _mean(cell: Sequence[Row], name: str) -> float:
    return statistics.fmean(getattr(row, name) for row in cell)


def _speed_up(cell: Sequence[Row], cells: Sequence[Sequence[Row]]) -> str:
    one = cell[0]
    plain = next(
        (c for c in cells if (c[0].model, c[0].mtp, c[0].concurrency) == (one.model, "off", one.concurrency)), None
    )
    if one.mtp == "off" or plain is None or not _mean(plain, "decode_tokens_per_s"):
        return "—"
    return f"{_mean(cell, 'decode_tokens_per_s') / _mean(plain, 'decode_tokens_per_s'):.2f}"


HEAD = ("Model, MTP", "C", "Wall P50, s", "Wall P95, s", "TTFT P95, s", "Decode, tokens/s", "Speed-up", "≤ 15 s, %",
        "Success, %", "Safe, %", "Runs")  # fmt: skip


def _line(cell: Sequence[Row], cells: Sequence[Sequence[Row]]) -> tuple[str, ...]:
    one = cell[0]
    times = tuple(f"{_mean(cell, name):.3f}" for name in ("wall_p50_s", "wall_p95_s", "ttft_p95_s"))
    shares = tuple(points(_mean(cell, name)) for name in ("in_time", "success", "safe"))
    decode = f"{_mean(cell, 'decode_tokens_per_s'):.2f}"
    return (
        f"{one.model}, {one.mtp}",
        str(one.concurrency),
        *times,
        decode,
        _speed_up(cell, cells),
        *shares,
        str(len(cell)),
    )


def _lead(source: Source, replay: Replay) -> str:
    asked = replay.requests
    return (
        f"{asked.get('measured')} requests after {asked.get('warm_up')} to warm up, {str(asked.get('digest'))[7:19]}, run "
        f"{source.run}. TTFT: first token of the request's first model call. Decode: mean over model calls, from the first "
        "token on; speed-up: decode over that without MTP at the same C. Success: no model call failed; safe: the "
        "harness's safe reply."
    )


_T7 = tuple(
    (name, *row)
    for name, row in (
        ("base, off", ("1", "4.101", "10.172", "0.508", "195.42", "100", "100")),
        ("base, on", ("1", "3.648", "9.805", "0.502", "215.95", "99", "100")),
        ("HAT, off", ("1", "4.176", "8.98", "0.499", "160.30", "100", "100")),
        ("HAT, off", ("2", "4.936", "10.074", "0.692", "129.22", "100", "100")),
        ("HAT, on", ("1", "3.407", "8.114", "0.553", "271.40", "100", "100")),
        ("HAT, on", ("2", "4.479", "9.047", "0.754", "196.15", "100", "100")),
    )
)
_T7_HEAD = (
    "Model, MTP",
    "C",
    "Wall P50, s",
    "Wall P95, s",
    "TTFT P95, s",
    "Decode, tokens/s",
    "≤ 15 s, %",
    "Success, %",
)


@item("t7", "Deployment replay", HEAD, REPLAY, published=(_T7_HEAD, _T7))
def deployment(sources: Sources) -> Made:
    """One and two clients, every model, MTP off and on."""
    found = _cells(sources)
    if found is None:
        return Made()
    source, replay, cells = found
    rows = tuple(_line(cell, cells) for cell in cells if cell[0].concurrency <= 2)
    return Made((Table("Replay at C = 1 and 2", HEAD, rows),), lead=_lead(source, replay)) if rows else Made()


@item("t17", "Deployment replay at every concurrency", HEAD, REPLAY,
      published=(("C", "Speed-up of MTP, HAT"), (("1", "1.69"), ("2", "1.52"), ("4", "1.27"), ("8", "1.19"))))  # fmt: skip
def concurrencies(sources: Sources) -> Made:
    """Every cell; what was run more than once as the mean."""
    found = _cells(sources)
    if found is None:
        return Made()
    source, replay, cells = found
    return Made((Table("Replay", HEAD, tuple(_line(cell, cells) for cell in cells)),), lead=_lead(source, replay))


@item("t18", "Workload of the replay", ("Model, MTP", "C", "Calls a request", "Tokens in, a call", "Tokens out, a call"), REPLAY,
      published=(("Model", "Calls a request", "Tokens in, a call", "Tokens out, a call"),
                 (("HAT", "3.04", "5,679", "106"),)))  # fmt: skip
def workload(sources: Sources) -> Made:
    """What the model was asked, by cell."""
    found = _cells(sources)
    if found is None:
        return Made()
    source, replay, cells = found
    names = (("calls_per_request", ".2f"), ("tokens_in_per_call", ",.0f"), ("tokens_out_per_call", ".1f"))
    rows = tuple(
        (
            f"{cell[0].model}, {cell[0].mtp}",
            str(cell[0].concurrency),
            *(format(_mean(cell, name), form) for name, form in names),
        )
        for cell in cells
    )
    head = ("Model, MTP", "C", "Calls a request", "Tokens in, a call", "Tokens out, a call")
    return Made((Table("Workload", head, rows),), lead=_lead(source, replay))


_T20_HEAD = ("Model, MTP", "C", "What", "Mean", "P50", "P95")
_T20 = (
    ("running", "Running requests", ".2f"),
    ("queued", "Queued requests", ".2f"),
    ("accept_length", "Accepted length", ".3f"),
    ("accept_rate_sglang", "Rate, SGLang: kept ÷ (verified × (drafts − 1))", ".3f"),
    ("accept_rate_over_draft", "Rate, the report's: accepted length ÷ draft tokens", ".3f"),
)


@item("t20", "Speculative decoding in the replay", _T20_HEAD, REPLAY,
      published=(("Model", "Accepted length, mean", "P50", "P95", "Rate over draft tokens"),
                 (("base", "2.94", "2.92", "3.58", ".735"), ("HAT", "3.12", "3.12", "3.62", ".780"))))  # fmt: skip
def speculation(sources: Sources) -> Made:
    """Load of the engine and acceptance, as its own metrics had them while the replay ran."""
    found = _cells(sources)
    if found is None:
        return Made()
    source, replay, cells = found
    rows = []
    for cell in cells:
        for name, label, form in _T20:
            spreads = [getattr(row, name) for row in cell if getattr(row, name) is not None]
            if spreads:
                means = (statistics.fmean(getattr(one, part) for one in spreads) for part in ("mean", "p50", "p95"))
                told = tuple(format(value, form) for value in means)
                rows.append((f"{cell[0].model}, {cell[0].mtp}", str(cell[0].concurrency), label, *told))
    if not rows:
        return Made(missing=(Need("the engine of the newest replay tells none of it", "serve with --enable-metrics"),))
    return Made((Table("Looked at ten times a second", _T20_HEAD, tuple(rows)),), lead=_lead(source, replay))


_OFF, _ON = "-mtp-off", "-mtp-on"


@item("t16", "Quality with MTP off and on, same checkpoint", ("MTP", "Suite", "Accuracy", "Effectiveness", "AVG"), QUALITY,
      published=(("MTP", "Accuracy", "Effectiveness"), (("off", "95.8", "93.8"), ("on", "96.22", "94.22"))))  # fmt: skip
def quality(sources: Sources) -> Made:
    """Evaluations whose arms differ in MTP alone, over the suites that both have."""
    newest: dict[str, Evaluation] = {}
    for _, one in sources.load("evaluation", load_evaluation):
        newest.setdefault(one.arm, one)
    name = next(
        (arm.removesuffix(_ON) for arm in newest if arm.endswith(_ON) and arm.removesuffix(_ON) + _OFF in newest), None
    )
    if name is None:
        return Made()
    pair = {"off": newest[name + _OFF], "on": newest[name + _ON]}
    shared = [suite.id for suite in pair["off"].suites if any(other.id == suite.id for other in pair["on"].suites)]
    rows = []
    for suite in shared:
        for mtp, evaluation in pair.items():
            scores = next(one for one in evaluation.suites if one.id == suite).scores
            told = [scores.get(score) for score in ("accuracy", "effectiveness", "average")]
            cells = (f"{points(one.mean)} {span(one.low, one.high)}" if one is not None else "—" for one in told)
            rows.append((mtp, suite, *cells))
    table = Table(
        name, ("MTP", "Suite", "Accuracy", "Effectiveness", "AVG"), tuple(rows), "percent, mean [95 % interval]"
    )
    return Made((table,), lead=f"Model {pair['on'].model or 'not told'}.")


class Look(BaseModel):
    """A value with its always-valid interval; an end that does not exist is None."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    delta: float
    low: float | None
    high: float | None


class Guard(Look):
    """A guardrail of a contrast."""

    metric: str
    state: str


class Contrast(BaseModel):
    """One arm against the control."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    arm: str
    primary: Look
    guardrails: tuple[Guard, ...] = ()


class ArmShown(BaseModel):
    """One arm by itself; beside the deciding metric it has every other one."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str
    units: int
    value: Look


class Result(BaseModel):
    """What an experiment found."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    metric: str
    units: int
    arms: tuple[ArmShown, ...]
    contrasts: tuple[Contrast, ...]
    decision: dict[str, Any]


class Experiment(BaseModel):
    """`experiment.json`: what `hat experiment status NAME --output json` wrote."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: str
    state: str
    result: Result


def read_experiment(path: Path) -> Experiment:
    """An experiment with a result."""
    return Experiment.model_validate_json(path.read_text(encoding="utf-8"))


_T11_HEAD = (
    "Arm against the control",
    "Metric, per bucketed unit",
    "Units",
    "Control",
    "Relative change, %",
    "95 % interval, %",
)


@item("t11", "Online A/B", _T11_HEAD, EXPERIMENT,
      published=(("Metric, seven days, per bucketed user", "Relative change"),
                 (("GMV", "+5.54 %"), ("completed orders", "+0.80 %"))))  # fmt: skip
def online(sources: Sources) -> Made:
    """The newest experiment: the deciding metric and the guardrails, relative to the control's value."""
    found = sources.newest("experiment", read_experiment)
    if found is None:
        return Made()
    source, one = found
    arms = {arm.name: arm for arm in one.result.arms}
    control = one.result.arms[0]
    rows = []
    for contrast in one.result.contrasts:
        units = arms[contrast.arm].units + control.units if contrast.arm in arms else control.units
        rows.append(_relative(contrast.arm, one.result.metric, units, control.value.delta, contrast.primary))
        for guard in contrast.guardrails:
            base = (control.model_extra or {}).get(guard.metric)
            value = float(base) if isinstance(base, int | float) else 0.0
            rows.append(_relative(contrast.arm, f"{guard.metric} (guardrail, {guard.state})", units, value, guard))
    lead = (
        f"{one.name}, {one.state}, {one.result.units} units, run {source.run}; by assigned arm, zeros included. "
        "Intervals hold at every look and are of the difference, over the control's value. "
        + str(one.result.decision.get("text_en", ""))
    )
    return Made((Table(one.name, _T11_HEAD, tuple(rows)),), lead=lead)


def _relative(arm: str, metric: str, units: int, control: float, look: Look) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return points(value / control, sign=True) if value is not None and control else "—"

    return arm, metric, str(units), f"{control:.4g}", share(look.delta), f"[{share(look.low)}, {share(look.high)}]"
