"""Turns the material of a report into what the page shows: tables, plots beside their tables, contrasts.

Always holds: every plot's numbers stand in a table too; scores are shown in percent with their 95 % interval; a
difference between arms is a paired one over the same items. Not here: markup (page.html.j2), reading (gather).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hat_components.evaluate.compare import contrasts, shifts
from hat_components.evaluate.result import Evaluation, Interval, SuiteResult
from hat_components.report import conversations, svg
from hat_components.report.config import Config
from hat_components.report.gather import Material

NAMES = {
    "average": "AVG",
    "accuracy": "Accuracy",
    "effectiveness": "Effectiveness",
    "skill_selection": "Skill Selection",
    "tool_rationality": "Tool Rationality",
    "attack_success": "Attack success",
    "exact": "Exact calls",
    "names": "Right tools",
    "followed": "Followed",
    "instruction": "Demands met",
    "prompt_strict": "Prompt, strict",
    "prompt_loose": "Prompt, loose",
    "instruction_strict": "Instruction, strict",
    "instruction_loose": "Instruction, loose",
}


_ORDER = ("base", "naive", "hsa", "opd", "rl")


@dataclass(frozen=True)
class Table:
    """One table: the first column is text, the others are figures."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One section of the page; `plots` are SVG texts that `tables` repeat in figures."""

    id: str
    title: str
    lead: str
    tables: tuple[Table, ...] = ()
    plots: tuple[str, ...] = field(default=())


def build(config: Config, material: Material) -> dict[str, Any]:
    """Everything that the template needs."""
    evaluations = {arm: material.evaluations[arm] for arm in sorted(material.evaluations, key=_place)}
    sections = [
        _suites(evaluations),
        _metrics(evaluations),
        _contrasts(config, evaluations),
        _intents(evaluations),
        _families(evaluations),
        _curves(material),
        _datasets(material),
        _lineage(material, evaluations),
    ]
    chosen = conversations.choose(evaluations, config.conversations)
    shown = [
        one
        for arm, wanted in chosen.items()
        for one in conversations.read(_traces(material, arm, len(evaluations)), arm, wanted)
    ]
    return {
        "title": config.title,
        "run": config.run,
        "sections": [section for section in sections if section is not None],
        "conversations": shown,
        "missing": material.missing,
        "headline": _headline(evaluations),
        "names": NAMES,
    }


def _place(arm: str) -> tuple[int, str]:
    """Arms in the order in which they are made, then by name; the first is the baseline unless the config names one."""
    return (_ORDER.index(arm) if arm in _ORDER else len(_ORDER), arm)


def _traces(material: Material, arm: str, arms: int) -> Any:
    from pathlib import Path

    found = material.traces.get(arm) or (material.traces.get("") if arms == 1 else None)
    return found or Path("/nonexistent")


def percent(value: float) -> str:
    """A share as percent with one decimal."""
    return f"{100 * value:.1f}"


def interval(score: Interval) -> str:
    """`mean [low, high]` in percent."""
    return f"{percent(score.mean)} [{percent(score.low)}, {percent(score.high)}]"


def _suite_ids(evaluations: dict[str, Evaluation]) -> list[str]:
    return list(dict.fromkeys(suite.id for evaluation in evaluations.values() for suite in evaluation.suites))


def _first(evaluations: dict[str, Evaluation], ident: str) -> SuiteResult:
    return next(found for evaluation in evaluations.values() if (found := evaluation.suite(ident)) is not None)


def _headline(evaluations: dict[str, Evaluation]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Per arm the headline of its first suites, for the top of the page."""
    return [
        (arm, [(suite.id.capitalize(), percent(suite.scores[suite.headline].mean)) for suite in evaluation.suites[:5]])
        for arm, evaluation in evaluations.items()
    ]


def _suites(evaluations: dict[str, Evaluation]) -> Section | None:
    if not evaluations:
        return None
    rows, groups = [], []
    for ident in _suite_ids(evaluations):
        first = _first(evaluations, ident)
        cells = [f"{ident.capitalize()} · {first.title}", str(first.n), NAMES.get(first.headline, first.headline)]
        bars = []
        for index, (arm, evaluation) in enumerate(evaluations.items()):
            suite = evaluation.suite(ident)
            cells.append("—" if suite is None else interval(suite.scores[suite.headline]))
            if suite is not None:
                score = suite.scores[suite.headline]
                bars.append(svg.Bar(arm, 100 * score.mean, 100 * score.low, 100 * score.high, index))
        rows.append(tuple(cells))
        groups.append((f"{ident.capitalize()} · {first.title}", bars))
    table = Table("Suites by arm", ("Suite", "n", "Score", *evaluations), tuple(rows), "mean [95 % interval], percent")
    seeds = sorted({evaluation.seeds for evaluation in evaluations.values()})
    lead = f"Headline score of every suite, {' and '.join(seeds)} seeds. AVG is the mean of Accuracy and Effectiveness."
    return Section("suites", "Suites", lead, (table,), (svg.bars("Suites by arm, percent", groups),))


def _metrics(evaluations: dict[str, Evaluation]) -> Section | None:
    tables = []
    for ident in _suite_ids(evaluations):
        metrics = list(_first(evaluations, ident).scores)
        rows = []
        for arm, evaluation in evaluations.items():
            suite = evaluation.suite(ident)
            if suite is not None:
                rows.append((arm, str(suite.n), *(interval(suite.scores[metric]) for metric in metrics)))
        head = ("Arm", "n", *(NAMES.get(metric, metric) for metric in metrics))
        tables.append(Table(f"{ident.capitalize()} in detail", head, tuple(rows)))
    return (
        Section("metrics", "Scores in detail", "All scores of every suite, percent.", tuple(tables)) if tables else None
    )


def _contrasts(config: Config, evaluations: dict[str, Evaluation]) -> Section | None:
    base = config.baseline or next(iter(evaluations), "")
    labelled = [
        (f"{suite.id.capitalize()}: {arm} − {base}", suite, held)
        for arm, evaluation in evaluations.items()
        for suite in evaluation.suites
        if arm != base and base in evaluations and (held := evaluations[base].suite(suite.id)) is not None
    ]
    found = contrasts(labelled, names=("the arm", base), draws=config.draws, seed=config.seed)
    for evaluation in evaluations.values():
        found += shifts(evaluation, draws=config.draws, seed=config.seed)
    if not found:
        return None
    rows = tuple(
        (
            row.label,
            str(row.n),
            _signed(100 * row.delta),
            f"[{_signed(100 * row.low)}, {_signed(100 * row.high)}]",
            f"{row.p_le_0:.3f}",
            f"{row.p:.3f}" if row.p >= 0.001 else "< 0.001",
            row.kind.replace("_", " "),
        )
        for row in found
    )
    head = ("Contrast", "n", "Δ", "95 % interval", "P(Δ ≤ 0)", "p, Holm", "says")
    lead = f"Paired bootstrap over the items that both have, {config.draws:,} draws, seed {config.seed}; points."
    return Section("contrasts", "Paired contrasts", lead, (Table("Paired contrasts", head, rows),))


def _signed(value: float) -> str:
    """One decimal with a sign, a true minus, and no sign for zero."""
    text = f"{value:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def _grouped(evaluations: dict[str, Evaluation], attribute: str, caption: str, what: str) -> tuple[Table, ...]:
    tables = []
    for ident in _suite_ids(evaluations):
        cells: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
        for arm, evaluation in evaluations.items():
            suite = evaluation.suite(ident)
            for group, values in (getattr(suite, attribute) if suite is not None else {}).items():
                cells[group][arm] = (values.n, values.means.get("average", next(iter(values.means.values()))))
        if cells:
            rows = tuple(
                (group, str(max(n for n, _ in by_arm.values())), *(_cell(by_arm.get(arm)) for arm in evaluations))
                for group, by_arm in cells.items()
            )
            tables.append(Table(f"{ident.capitalize()} {caption}", (what, "n", *evaluations), rows))
    return tuple(tables)


def _cell(found: tuple[int, float] | None) -> str:
    return "—" if found is None else percent(found[1])


def _intents(evaluations: dict[str, Evaluation]) -> Section | None:
    tables = _grouped(evaluations, "intents", "by intent", "Intent")
    lead = "AVG by intent of the turn, percent; a few turns give a rough figure."
    return Section("intents", "By intent", lead, tables) if tables else None


def _families(evaluations: dict[str, Evaluation]) -> Section | None:
    tables = _grouped(evaluations, "families", "by rewrite family", "Family")
    lead = "AVG of the items whose harness state has the family; families overlap, since a state has several."
    return Section("families", "By rewrite family", lead, tables) if tables else None


def _curves(material: Material) -> Section | None:
    series: dict[str, list[svg.Curve]] = defaultdict(list)
    for arm in sorted(material.curves, key=_place):
        by_name: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for name, value, step in material.curves[arm]:
            by_name[name].append((float(step), value))
        for name, line in by_name.items():
            series[name].append(svg.Curve(arm, tuple(line)))
    if not series:
        return None
    ordered = sorted(series, key=lambda name: ("loss" not in name, name))
    plots = tuple(svg.curves(f"{name} by step", series[name], x_label="step", y_label=name) for name in ordered)
    tables = tuple(_points(name, series[name]) for name in ordered)
    return Section("curves", "Training curves", "One point per logged step.", tables, plots)


def _points(name: str, lines: Sequence[svg.Curve], rows: int = 10) -> Table:
    """The curve in figures: about `rows` steps spread over it, and each line's value at or before each."""
    steps = sorted({step for line in lines for step, _ in line.points})
    shown = sorted({steps[round(index * (len(steps) - 1) / (rows - 1))] for index in range(rows)})
    cells = [[_at(line, step) for line in lines] for step in shown]
    head = ("Step", *(line.label for line in lines))
    return Table(f"{name} by step", head, tuple((f"{step:.0f}", *row) for step, row in zip(shown, cells, strict=True)))


def _at(line: svg.Curve, step: float) -> str:
    before = [value for at, value in line.points if at <= step]
    return f"{before[-1]:.4g}" if before else "—"


def _datasets(material: Material) -> Section | None:
    if not material.datasets:
        return None
    rows = tuple(
        (name, data.kind, data.purpose or "none", str(data.count), data.digest[7:19])
        for name, data in material.datasets.items()
    )
    head = ("Dataset", "holds", "purpose", "n", "digest")
    return Section("data", "Data", "What went in, by content.", (Table("Datasets", head, rows),))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(entry)}" for key, entry in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _lineage(material: Material, evaluations: dict[str, Evaluation]) -> Section | None:
    rows = []
    for arm, evaluation in evaluations.items():
        facts = {
            "model": evaluation.model,
            "harness": evaluation.harness,
            "items": evaluation.dataset,
            "config": evaluation.config,
        }
        rows += [(f"{arm} · {name}", digest or "none") for name, digest in facts.items()]
    tables = [Table("Digests", ("What", "digest"), tuple(rows))] if rows else []
    environment = {key: value for evaluation in evaluations.values() for key, value in evaluation.environment.items()}
    if environment:
        tables.append(Table("Environment", ("What", "value"), tuple(sorted(environment.items()))))
    if material.registration:
        facts = {key: _plain(value) for key, value in material.registration.items()}
        tables.append(Table("Registration", ("What", "value"), tuple(facts.items())))
    lead = "Digests name content: the same digest is the same thing wherever it is."
    return Section("lineage", "Digests and environment", lead, tuple(tables)) if tables else None
