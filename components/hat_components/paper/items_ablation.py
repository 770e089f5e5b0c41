"""T4, T5, T6: what each stage of training adds, from the rows of `hat ablate`.

Over several seeds a cell is the mean over seeds with its spread; with one seed, the interval over items. A difference is
always paired: the same items, seed by seed. Not here: measuring (ablation), checkpoint curves (items_training).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hat_components.ablation.policies import ABOVE, POLICIES, STAGES
from hat_components.ablation.rows import Row, read_rows
from hat_components.paper.catalogue import Made, Need, item, points, span
from hat_components.paper.sources import Sources
from hat_components.report.view import Table

ABLATE = Need("no measured stage of training", "hat ablate --seed 1 (about an hour; then seeds 2 and 3)")
COLUMNS_T4 = ("T1", "T2", "Tool", "Prompt", "IFE-P", "IFE-I", "T4m")
_PUBLISHED_T4 = (
    ("Stage", "T1", "T2", "Tool", "Prompt", "IFE-P", "IFE-I"),
    (
        ("Base", "80.3", "75.4", "69.5", "72.8", "81.5", "87.7"),
        ("+ SFT", "89.5", "88.2", "82.0", "68.2", "73.8", "82.4"),
        ("+ General OPD", "89.5", "89.1", "84.3", "72.6", "82.3", "87.9"),
        ("+ RL", "95.1", "94.4", "83.7", "66.7", "82.7", "87.8"),
        ("+ Aug-SFT", "90.0", "90.2", "85.2", "77.3", "81.7", "87.4"),
        ("+ General OPD", "90.9", "90.9", "85.6", "77.1", "81.9", "88.0"),
        ("+ RL", "94.1", "93.7", "84.3", "78.7", "83.0", "88.2"),
        ("+ Aug env (HAT)", "94.8", "94.6", "84.0", "77.6", "83.5", "88.7"),
    ),
)
_PUBLISHED_T5 = (
    ("From the same start", "T1", "IFE-P", "PR-AVG"),
    (
        ("RL, original", "94.1", "83.0", "78.7"),
        ("RL, augmented", "94.8", "83.5", "77.6"),
        ("OPD, original", "94.0", "82.8", "73.9"),
        ("OPD, augmented", "93.9", "81.7", "75.5"),
    ),
)
_PUBLISHED_T6 = (
    ("SFT / RL", "T1", "IFE-P"),
    (
        ("standard / standard", "95.1", "71.3"),
        ("standard / augmented", "94.9", "72.3"),
        ("augmented / standard", "95.4", "80.7"),
        ("augmented / augmented", "93.3", "81.3"),
    ),
)


@dataclass(frozen=True)
class Measured:
    """Rows of one profile under one harness, all seeds."""

    rows: tuple[Row, ...]

    def of(self, policy: str, reference: str = "") -> list[Row]:
        """Rows of a policy, or of a contrast, one for each seed."""
        return [row for row in self.rows if (row.policy, row.reference) == (policy, reference)]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that any row has."""
        return tuple(sorted({row.seed for row in self.rows}))


def measured(sources: Sources) -> Measured | None:
    """Rows of the newest file that has some: of the profile and harness with most of them."""
    for _, rows in sources.load("ablation", read_rows):
        alike: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            alike.setdefault((row.harness, row.profile), []).append(row)
        if alike:
            return Measured(tuple(alike[max(alike, key=lambda shared: len(alike[shared]))]))
    return None


def cell(rows: Sequence[Row], column: str, *, sign: bool = False) -> str:
    """Mean over seeds with their range, or one seed's value with its interval over items."""
    held = [row for row in rows if column in row.scores]
    if not held:
        return "—"
    values = [row.scores[column] for row in held]
    mean = points(sum(values) / len(values), sign=sign)
    if len(held) == 1:
        return f"{mean} {span(held[0].low[column], held[0].high[column], sign=sign)}"
    return f"{mean} {span(min(values), max(values), sign=sign)}"


def _lead(found: Measured) -> str:
    seeds = ", ".join(str(seed) for seed in found.seeds)
    counts = next((row.n for row in found.rows if row.kind == "policy"), {})
    shown = ", ".join(f"{column} {n}" for column, n in counts.items())
    kind = "range over seeds" if len(found.seeds) > 1 else "95 % interval over items; one seed"
    return f"Seeds {seeds}; items: {shown}; brackets: {kind}."


def _policies(found: Measured, names: Sequence[str], columns: Sequence[str], caption: str) -> Table:
    rows = [(POLICIES[name], *(cell(found.of(name), column) for column in columns)) for name in names if found.of(name)]
    return Table(caption, ("Policy", *columns), tuple(rows), "percent")


def _contrasts(found: Measured, pairs: Sequence[tuple[str, str, str]], columns: Sequence[str], caption: str) -> Table:
    rows = [
        (label, *(cell(found.of(policy, reference), column, sign=True) for column in columns))
        for policy, reference, label in pairs
        if found.of(policy, reference)
    ]
    return Table(caption, ("Contrast", *columns), tuple(rows), "points, paired over items")


@item("t4", "Training ablation", ("Policy", *COLUMNS_T4), ABLATE, published=_PUBLISHED_T4)
def stages(sources: Sources) -> Made:
    """Eight stages, and each one's difference to the stage that it was added to."""
    found = measured(sources)
    if found is None:
        return Made()
    columns = [column for column in COLUMNS_T4 if any(column in row.scores for row in found.rows)]
    steps = [(after, before, f"{after} − {before}") for after, before in ABOVE.items()]
    return Made(
        (
            _policies(found, STAGES, columns, "Stages"),
            _contrasts(found, steps, columns, "Each stage against the one that it was added to"),
            _contrasts(
                found,
                [("sft-hsa", "sft-naive", "Aug-SFT − SFT"), ("hat", "rl-naive", "HAT − RL on SFT"),
                 ("rl-hsa", "rl-naive", "RL on Aug-SFT − RL on SFT")],
                columns, "Pathways",
            ),
        ),
        lead=_lead(found),
        missing=_short(found, STAGES),
    )  # fmt: skip


@item("t5", "RL or distillation, original or augmented harnesses", ("Policy", "T1", "IFE-P", "Prompt"), ABLATE,
      published=_PUBLISHED_T5)  # fmt: skip
def environments(sources: Sources) -> Made:
    """Four policies from one start, and the paired contrasts."""
    found = measured(sources)
    names = ("rl-hsa", "hat", "distil-orig", "distil-aug")
    if found is None or not any(found.of(name) for name in names):
        return Made()
    columns = ("T1", "T2", "IFE-P", "Prompt")
    pairs = (
        ("rl-hsa", "distil-orig", "Δ(RL − OPD), original"),
        ("hat", "distil-aug", "Δ(RL − OPD), augmented"),
        ("hat", "rl-hsa", "Δ(augmented − original), RL"),
        ("distil-aug", "distil-orig", "Δ(augmented − original), OPD"),
    )
    tables = (_policies(found, names, columns, "Policies"), _contrasts(found, pairs, columns, "Contrasts"))
    return Made(tables, lead=_lead(found), missing=_short(found, names))


@item("t6", "SFT and RL apart", ("Policy", "T1", "IFE-P"), ABLATE, published=_PUBLISHED_T6)
def cells(sources: Sources) -> Made:
    """The four cells without general distillation."""
    found = measured(sources)
    names = ("cell-std-std", "cell-std-aug", "cell-aug-std", "cell-aug-aug")
    if found is None or not any(found.of(name) for name in names):
        return Made()
    columns = ("T1", "T2", "IFE-P", "T4m")
    pairs = (
        ("cell-std-aug", "cell-std-std", "SFT: RL augmented − original"),
        ("cell-aug-std", "cell-std-std", "RL: Aug-SFT − SFT"),
        ("cell-aug-aug", "cell-aug-std", "Aug-SFT: RL augmented − original"),
    )
    tables = (_policies(found, names, columns, "Cells"), _contrasts(found, pairs, columns, "ΔIFE and the others"))
    return Made(tables, lead=_lead(found), missing=_short(found, names))


def _short(found: Measured, names: Sequence[str]) -> tuple[Need, ...]:
    """What would make a table whole: policies that no seed has, and seeds."""
    lacking = [name for name in names if not found.of(name)]
    needs = [Need(f"{name} is not measured", f"hat ablate --policy {name}") for name in lacking]
    if len(found.seeds) < 3:
        wanted = next(seed for seed in range(1, 5) if seed not in found.seeds)
        needs.append(Need(f"{len(found.seeds)} of 3 seeds", f"hat ablate --seed {wanted}"))
    return tuple(needs)
