"""What a person sees of a run while it goes: a live table on a terminal, one line per event anywhere else.

Both read the run's records and progress files and write to stderr; neither changes anything. Not here: the summary at
the end (summary).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hat_pipelines.progress import Tail, Watched
from hat_pipelines.runs import RunFolder, StepRecord

if TYPE_CHECKING:
    from rich.table import Table

PLAIN_EVERY_S = 10.0
"""Least time between two progress lines of one step where there is no terminal."""
SIGNS = {
    "waiting": "·",
    "running": "▸",
    "done": "✓",
    "cached": "✓",
    "skipped": "-",
    "failed": "✗",
    "interrupted": "✗",
}


class _Watching:
    """Shared by both displays: the records and one tail for each step."""

    def __init__(self, folder: RunFolder, steps: Sequence[str]) -> None:
        self.folder = folder
        self.steps = list(steps)
        self._tails: dict[str, Tail] = {}
        self._since: dict[str, float] = {}

    def record(self, step: str) -> StepRecord:
        return self.folder.record.steps[step]

    def watched(self, step: str) -> Watched:
        tail = self._tails.setdefault(step, Tail(self.folder.step(step).progress))
        return tail.read()

    def began(self, step: str) -> None:
        self._since[step] = time.monotonic()

    def seconds(self, step: str) -> float:
        record = self.record(step)
        return (
            time.monotonic() - self._since[step]
            if record.state == "running" and step in self._since
            else record.seconds
        )

    def eta(self, step: str, share: float | None) -> str:
        """Time left at the present pace, once enough is done to tell."""
        if not share or share < 0.02 or share >= 1:
            return ""
        return clock(self.seconds(step) * (1 - share) / share)


class Plain:
    """One line for each start, end and warning, and one now and then in between. For logs and pipes."""

    def __init__(self, folder: RunFolder, steps: Sequence[str]) -> None:
        self._watching = _Watching(folder, steps)
        self._next: dict[str, float] = {}
        self._warned: dict[str, int] = {}

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def changed(self, step: str) -> None:
        """Write the step's new state."""
        record = self._watching.record(step)
        if record.state == "running":
            self._watching.began(step)
            self._next[step] = time.monotonic() + PLAIN_EVERY_S
            self._line(step, "started" if record.tries < 2 else f"started, try {record.tries}")
            return
        self._warnings(step)
        words = {
            "done": f"done in {clock(record.seconds)}",
            "cached": "taken from the cache",
            "waiting": "will be tried again",
        }
        self._line(step, words.get(record.state, record.state))

    def tick(self) -> None:
        """Write progress of steps that have been silent for a while."""
        for step, due in list(self._next.items()):
            if self._watching.record(step).state != "running":
                del self._next[step]
            elif time.monotonic() >= due:
                self._next[step] = time.monotonic() + PLAIN_EVERY_S
                seen = self._watching.watched(step)
                left = self._watching.eta(step, seen.share)
                share = f"{seen.share:.0%}" if seen.share is not None else clock(self._watching.seconds(step))
                self._line(
                    step, "  ".join(filter(None, [share, f"{left} left" if left else "", seen.figures(), seen.note]))
                )
                self._warnings(step)

    def _warnings(self, step: str) -> None:
        warnings = self._watching.watched(step).warnings
        for message in warnings[self._warned.get(step, 0) :]:
            self._line(step, f"warning: {message}")
        self._warned[step] = len(warnings)

    def _line(self, step: str, text: str) -> None:
        width = max(len(name) for name in self._watching.steps)
        sys.stderr.write(f"{step.ljust(width)}  {text}\n")


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def changed(self, step: str) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""


class Live:
    """A table of all steps that is drawn anew while they run. For terminals."""

    def __init__(self, folder: RunFolder, steps: Sequence[str]) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._watching = _Watching(folder, steps)
        self._live = RichLive(console=Console(stderr=True), auto_refresh=False, transient=False)
        self._drawn = 0.0

    def __enter__(self) -> Live:
        self._live.start()
        self._draw()
        return self

    def __exit__(self, *exc: object) -> None:
        self._draw()
        self._live.stop()

    def changed(self, step: str) -> None:
        """Draw the new state; warnings of a step that has ended stay above the table."""
        from rich.markup import escape

        if self._watching.record(step).state == "running":
            self._watching.began(step)
        else:
            for message in self._watching.watched(step).warnings:
                self._live.console.print(f"[yellow]{step}: warning: {escape(message)}[/]", highlight=False)
        self._draw()

    def tick(self) -> None:
        """Draw, at most five times a second."""
        if time.monotonic() - self._drawn > 0.2:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 1), show_header=False)
        styles = {
            "running": "bold cyan",
            "failed": "bold red",
            "interrupted": "red",
            "done": "green",
            "cached": "green",
        }
        for step in self._watching.steps:
            record = self._watching.record(step)
            style = styles.get(record.state, "dim")
            seen = self._watching.watched(step) if record.state == "running" else Watched()
            bar: ProgressBar | Text = Text(record.state, style=style)
            words = record.fault.message if record.fault and record.state == "failed" else ""
            if record.state == "running":
                if seen.share is not None:
                    bar = ProgressBar(total=1.0, completed=seen.share, width=20)
                left = self._watching.eta(step, seen.share)
                words = "  ".join(filter(None, [f"{left} left" if left else "", seen.figures(), seen.note]))
            spent = clock(self._watching.seconds(step)) if record.state not in ("waiting", "skipped", "cached") else ""
            table.add_row(
                Text(SIGNS[record.state], style=style), step, bar, spent, Text(words, no_wrap=True, style="dim")
            )
        return table


def clock(seconds: float) -> str:
    """A duration for people: 4.2 s, 58 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def pick(folder: RunFolder, steps: Sequence[str], *, quiet: bool = False) -> Plain | Live | Silent:
    """The display that fits where stderr goes."""
    if quiet:
        return Silent()
    return Live(folder, steps) if sys.stderr.isatty() else Plain(folder, steps)
