"""T15: paired bootstrap contrasts between the arms of the newest run that has two of them."""

from __future__ import annotations

from collections import defaultdict

from hat_components.evaluate.compare import compare
from hat_components.evaluate.compare_read import LeanEvaluation, read_lean
from hat_components.paper.catalogue import Made, Need, item, points, span
from hat_components.paper.sources import Sources
from hat_components.report.view import Table
from hat_components.step import InputError

RUN = Need("no run with two evaluated arms", "hat run --profile micro, or hat compare A B on two evaluations")
BASELINES = ("naive", "base")
HEAD = ("Contrast", "n", "Δ, points", "95 % interval", "P(Δ ≤ 0)", "p, Holm", "says")


@item("t15", "Paired bootstrap contrasts", HEAD, RUN,
      published=(("Contrast", "Δ, points", "95 % interval"),
                 (("IFEval prompt-level: HAT − naive SFT", "+8.50", "[+4.44, +12.38]"),)))  # fmt: skip
def contrasts(sources: Sources) -> Made:
    """Every arm against the baseline, on all suites that both have; sealed seeds go before development ones."""
    groups: dict[tuple[str, str, str], list[LeanEvaluation]] = defaultdict(list)
    for source, found in sources.load("evaluation", read_lean):
        groups[source.run, found.dataset, found.harness].append(found)
    pairs = [(key, arms) for key, arms in groups.items() if len({arm.arm for arm in arms}) > 1]
    if not pairs:
        return Made()
    key, arms = next((pair for pair in pairs if pair[1][0].seeds == "sealed"), pairs[0])
    by_name = {arm.arm: arm for arm in reversed(arms)}
    base = next((name for name in BASELINES if name in by_name), sorted(by_name)[0])
    rows: list[tuple[str, ...]] = []
    for name in sorted(set(by_name) - {base}):
        try:
            found_rows = compare(by_name[name], by_name[base])
        except InputError:
            continue  # no suite in common
        rows += [
            (one.label, str(one.n), points(one.delta, sign=True), span(one.low, one.high, sign=True),
             f"{one.p_le_0:.3f}", f"{one.p:.3g}", one.kind.replace("_", " "))
            for one in found_rows
        ]  # fmt: skip
    if not rows:
        return Made()
    lead = f"Run {key[0]}, {arms[0].seeds} seeds, against {base}; 10,000 draws over items, Holm within each arm."
    return Made((Table("Contrasts", HEAD, tuple(rows)),), lead=lead)
