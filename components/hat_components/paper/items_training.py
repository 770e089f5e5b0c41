"""F5, F6, F8: curves of training from progress files: quality along RL, length of reasoning, loss of the draft head.

Each is made of the newest run that has the curves; a trailing mean is over the last points at most. Not here: the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hat_components.paper.catalogue import Made, Need, item, points
from hat_components.paper.sources import Sources
from hat_components.progress_file import read_curves
from hat_components.report import svg
from hat_components.report.view import Table

CELLS = Need("no RL run with held-out scores along its way", "hat ablate (cells are scored every five steps)")
REASONING = Need("no RL run", "hat ablate, or the rl step alone")
HEAD = Need("no run of the mtp step", "hat run with the mtp step, see docs/training.md")
METRICS = ("accuracy", "effectiveness", "skill_selection", "tool_rationality")
WINDOW = 25
Points = list[tuple[float, float]]


def _curves(sources: Sources, prefix: str) -> dict[str, dict[str, Points]]:
    """Step → curve → points, of the newest run that has a curve with the prefix."""
    found: dict[str, dict[str, Points]] = {}
    run = None
    for source in sources.of("progress"):
        if run is not None and source.run != run:
            continue
        curves = _read(source.path, prefix)
        if curves:
            run = source.run
            found.setdefault(source.step or source.path.parent.name, curves)
    return dict(sorted(found.items()))


def _read(path: Path, prefix: str) -> dict[str, Points]:
    curves: dict[str, Points] = {}
    for name, value, step in read_curves(path):
        if name.startswith(prefix):
            curves.setdefault(name.removeprefix(prefix), []).append((float(step), value))
    return curves


def trailing(values: Sequence[tuple[float, float]], window: int = WINDOW) -> Points:
    """Each point's mean over itself and the `window` - 1 before it."""
    found: Points = []
    for at in range(len(values)):
        part = [value for _, value in values[max(0, at + 1 - window) : at + 1]]
        found.append((values[at][0], sum(part) / len(part)))
    return found


def _plot(title: str, lines: Mapping[str, Points], x: str, y: str, scale: float = 1.0) -> str:
    drawn = [svg.Curve(name, tuple((at, scale * value) for at, value in held)) for name, held in lines.items()]
    return svg.curves(title, drawn, x_label=x, y_label=y)


@item("f5", "Checkpoints along RL", ("Policy", "Score", "first", "best", "at step", "last"), CELLS)
def checkpoints(sources: Sources) -> Made:
    """Four held-out scores of every RL step that told them: a plot for each score, one table."""
    steps = _curves(sources, "rl.score.")
    if not steps:
        return Made()
    rows = []
    for name, curves in steps.items():
        for metric in METRICS:
            held = curves.get(metric, [])
            if held:
                at, best = max(held, key=lambda point: point[1])
                rows.append(
                    (name, metric.replace("_", " "), points(held[0][1]), points(best), f"{at:.0f}", points(held[-1][1]))
                )
    plots = tuple(
        _plot(metric.replace("_", " "), {name: curves[metric] for name, curves in steps.items() if metric in curves},
              "optimiser step", "percent", 100.0)
        for metric in METRICS
    )  # fmt: skip
    head = ("Policy", "Score", "first", "best", "at step", "last")
    return Made((Table("Held-out scores", head, tuple(rows), "percent; greedy, original harness"),), plots)


@item(
    "f6",
    "Length of reasoning along RL",
    ("Policy", "what the call led to", "first", "last", "q(L)", "−0.1 · q(L)"),
    REASONING,
)
def lengths(sources: Sources) -> Made:
    """Tokens of reasoning before a tool call and before the final reply, apart, as trailing means."""
    steps = _curves(sources, "rl.reasoning.")
    if not steps:
        return Made()
    rows, plots = [], []
    for name, curves in steps.items():
        smooth = {kind: trailing(held) for kind, held in curves.items()}
        for kind, held in sorted(smooth.items()):
            penalty = min(1.0, max(0.0, (held[-1][1] - 100) / 100))
            term = f"{-0.1 * penalty:.2f}".replace("-", "−")
            rows.append((name, kind, f"{held[0][1]:.1f}", f"{held[-1][1]:.1f}", f"{penalty:.2f}", term))
        plots.append(_plot(f"{name}: tokens of reasoning", smooth, "optimiser step", "tokens"))
    head = ("Policy", "what the call led to", "first", "last", "q(L)", "−0.1 · q(L)")
    note = f"tokens, trailing mean of {WINDOW} steps; q rises from 0 at 100 tokens to 1 at 200"
    return Made((Table("Reasoning", head, tuple(rows), note),), tuple(plots))


@item("f8", "Loss of the draft head", ("Head", "first", "last", "steps"), HEAD)
def draft_head(sources: Sources) -> Made:
    """The post-trained head's loss, beside the base's own head where a run measured it."""
    steps = _curves(sources, "mtp.loss.")
    if not steps:
        return Made()
    smooth = {
        f"{name}, token {depth}": trailing(held) for name, curves in steps.items() for depth, held in curves.items()
    }
    rows = tuple(
        (name, f"{held[0][1]:.3f}", f"{held[-1][1]:.3f}", f"{held[-1][0]:.0f}") for name, held in smooth.items()
    )
    table = Table("Loss", ("Head", "first", "last", "steps"), rows, f"nats, trailing mean of {WINDOW} steps")
    return Made((table,), (_plot("loss of the draft head", smooth, "optimiser step", "nats"),))
