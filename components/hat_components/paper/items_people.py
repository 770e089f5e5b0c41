"""T9, T10 and F7: what people prefer and why, and how far the judge agrees with them."""

from __future__ import annotations

from pathlib import Path

from hat_components.judge.history import agreement_by_revision, read_history
from hat_components.label.preference import Part, Preference
from hat_components.paper.catalogue import Made, Need, item, points, span
from hat_components.paper.sources import Sources
from hat_components.report import svg
from hat_components.report.view import Table

PAIRS = Need(
    "no blind comparison",
    "python -m hat_components.label --config FILE --input evaluation=A --input other=B --out DIR; label at /label",
)
JUDGE = Need("no history of judge calibrations", "hat judge calibrate EVALUATION --labels FILE --to DIR")


def read_preference(path: Path) -> Preference:
    """A preference.json."""
    return Preference.model_validate_json(path.read_bytes())


def _newest(sources: Sources) -> Preference | None:
    found = sources.newest("preference", read_preference)
    return found[1] if found else None


def _whose(found: Preference) -> str:
    raters = "simulated raters" if found.simulated else "raters"
    alpha = found.agreement.alpha
    agree = f"{alpha.value:.2f}" if alpha.value is not None else f"undefined ({alpha.state.replace('_', ' ')})"
    return (
        f"{found.pairs} blind pairs, {found.agreement.raters} {raters}; Krippendorff's alpha {agree}; "
        f"{found.missing} pairs without a settled label."
    )


@item("t9", "Blind preference between two harnesses", ("Outcome", "Pairs", "Share, %", "95 % interval"), PAIRS,
      published=(("Outcome", "Pairs"), (("harness", "35"), ("tie", "64"), ("ReAct", "1"))))  # fmt: skip
def wins(sources: Sources) -> Made:
    """Wins and ties of all settled pairs, and the share among decided ones."""
    found = _newest(sources)
    if found is None:
        return Made()
    named = ((found.arms[0], found.a), ("tie", found.tie), (found.arms[1], found.b))
    rows = tuple((name, str(part.count), points(part.share), span(part.low, part.high)) for name, part in named)
    table = Table("Settled pairs", ("Outcome", "Pairs", "Share, %", "95 % interval"), rows)
    decided = found.share_a
    sign = Table(
        "Decided pairs", ("Arm", "Wins", "Share, %", "95 % interval", "p, sign test"),
        ((found.arms[0], str(decided.count), points(decided.share), span(decided.low, decided.high), f"{found.p:.3g}"),),
        "pairs without a settled label count at their extremes",
    )  # fmt: skip
    return Made((table, sign), lead=_whose(found))


@item("t10", "Causes of the preferences", ("Cause", "Wins", "Share, %", "95 % interval"), PAIRS,
      published=(("Cause", "Wins of the harness"), (("input understanding", "12"), ("reliability", "8"),
                 ("scenario behaviour", "8"), ("reply quality", "5"), ("tool use", "2"))))  # fmt: skip
def causes(sources: Sources) -> Made:
    """Why each arm won, one table per arm."""
    found = _newest(sources)
    if found is None:
        return Made()
    head = ("Cause", "Wins", "Share, %", "95 % interval")
    tables = tuple(
        Table(f"Wins of {arm}", head, tuple(_cause(name, part) for name, part in parts.items()))
        for arm, parts in found.causes.items()
    )
    return Made(tables, lead=_whose(found))


def _cause(name: str, part: Part) -> tuple[str, ...]:
    return (name.replace("_", " "), str(part.count), points(part.share), span(part.low, part.high))


@item(
    "f7", "Judge agreement by revision", ("Revision", "Criterion", "n", "Agreement, %", "Kappa", "95 % interval"), JUDGE
)
def agreement(sources: Sources) -> Made:
    """Agreement with labels over the revisions of the longest history."""
    histories = [(source, found) for source, found in sources.load("history", read_history) if found]
    if not histories:
        return Made()
    source, history = max(histories, key=lambda pair: (len(pair[1]), pair[0].changed))
    rows = agreement_by_revision(history)
    lines: dict[str, list[tuple[float, float]]] = {}
    for number, one in enumerate(rows):
        value = one["agreement"]
        if isinstance(value, float):
            lines.setdefault(str(one["criterion"]), []).append(
                (float(number // max(1, len(history[0].criteria))), 100 * value)
            )
    plot = svg.curves(
        "Agreement with labels, percent", [svg.Curve(name, tuple(line)) for name, line in lines.items()],
        x_label="calibration", y_label="percent",
    )  # fmt: skip
    table = Table(
        "Calibrations", ("Revision", "Criterion", "n", "Agreement, %", "Kappa", "95 % interval", "Note"),
        tuple(_revision(one) for one in rows),
    )  # fmt: skip
    return Made((table,), (plot,), f"{len(history)} calibrations of {history[-1].name}, run {source.run}.")


def _revision(one: dict[str, float | int | str | None]) -> tuple[str, ...]:
    kappa, low, high = (one[name] for name in ("kappa", "kappa_low", "kappa_high"))
    share = one["agreement"]
    return (
        f"{one['revision']} ({str(one['judge'])[7:15]})",
        str(one["criterion"]),
        str(one["n"]),
        points(share if isinstance(share, float) else None),
        f"{kappa:.2f}" if isinstance(kappa, float) else "undefined",
        f"[{low:.2f}, {high:.2f}]" if isinstance(kappa, float) else "—",
        str(one["note"] or ""),
    )
