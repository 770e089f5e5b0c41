"""Plots as inline SVG text: bars with intervals and curves.

Always holds: every text is escaped; colours come from CSS variables of the page, so a plot follows light, dark and
print; same data, same bytes. Each plot has a table twin on the page, which is why a plot carries a short label for
screen readers and no more. Not here: the numbers, the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

WIDTH = 720.0
ROW = 22.0
_LEFT = 150.0
_RIGHT = 60.0
_DOTS = 24
"""A line of so few points shows them, since a line of one point shows nothing."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: `value` with an optional interval, on the axis of `bars`. `series` picks the tint."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    series: int = 0


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: points (x, y) in order of x."""

    label: str
    points: tuple[tuple[float, float], ...]


def bars(title: str, groups: Sequence[tuple[str, Sequence[Bar]]], *, limit: float = 100.0, unit: str = "") -> str:
    """Horizontal bars from 0 to `limit`, grouped under headings; whiskers show intervals."""
    height = 8.0 + sum(20.0 + ROW * len(group) for _, group in groups) + 20.0
    scale = (WIDTH - _LEFT - _RIGHT) / limit
    parts = [_open(title, height)]
    for tick, label in _labels(_ticks(0.0, limit, 5)):
        x = _LEFT + tick * scale
        parts.append(f'<line class="grid" x1="{_n(x)}" y1="4" x2="{_n(x)}" y2="{_n(height - 18)}"/>')
        parts.append(_text(x, height - 5, label, "middle", "axis"))
    y = 8.0
    for heading, group in groups:
        parts.append(_text(0.0, y + 13, heading, "start", "head"))
        y += 20.0
        for bar in group:
            parts.append(_bar(bar, y, scale, unit))
            y += ROW
    return "".join([*parts, "</svg>"])


def _bar(bar: Bar, y: float, scale: float, unit: str) -> str:
    width = max(bar.value, 0.0) * scale
    parts = [
        _text(_LEFT - 8, y + 14, bar.label, "end", "label"),
        f'<rect class="bar s{bar.series % 6}" x="{_n(_LEFT)}" y="{_n(y + 3)}" width="{_n(width)}" height="14" rx="2"/>',
    ]
    end = width
    if bar.low is not None and bar.high is not None:
        low, high, middle = _LEFT + bar.low * scale, _LEFT + bar.high * scale, y + 10
        end = max(width, bar.high * scale)
        path = f"M{_n(low)} {_n(middle - 4)}v8M{_n(low)} {_n(middle)}H{_n(high)}M{_n(high)} {_n(middle - 4)}v8"
        parts.append(f'<path class="whisker" d="{path}"/>')
    parts.append(_text(_LEFT + end + 6, y + 14, f"{bar.value:.1f}{unit}", "start", "value"))
    return "".join(parts)


def curves(title: str, lines: Sequence[Curve], *, x_label: str, y_label: str, height: float = 260.0) -> str:
    """Lines over a common x; points that are not finite are left out, long lines are thinned to 400 points."""
    drawn = [Curve(line.label, _thin([p for p in line.points if isfinite(p[0]) and isfinite(p[1])])) for line in lines]
    points = [point for line in drawn for point in line.points]
    parts = [_open(title, height)]
    if not points:
        return "".join([*parts, _text(WIDTH / 2, height / 2, "no points", "middle", "axis"), "</svg>"])
    left, right, top, bottom = 52.0, WIDTH - 12.0, 24.0, height - 34.0
    x_low, x_high = _range([p[0] for p in points])
    y_low, y_high = _range([0.0, *(p[1] for p in points)])
    x_scale, y_scale = (right - left) / (x_high - x_low), (bottom - top) / (y_high - y_low)
    for tick, label in _labels(_ticks(y_low, y_high, 5)):
        y = bottom - (tick - y_low) * y_scale
        parts.append(f'<line class="grid" x1="{_n(left)}" y1="{_n(y)}" x2="{_n(right)}" y2="{_n(y)}"/>')
        parts.append(_text(left - 6, y + 4, label, "end", "axis"))
    for tick, label in _labels(_ticks(x_low, x_high, 6)):
        parts.append(_text(left + (tick - x_low) * x_scale, bottom + 16, label, "middle", "axis"))
    for index, line in enumerate(drawn):
        places = [(_n(left + (x - x_low) * x_scale), _n(bottom - (y - y_low) * y_scale)) for x, y in line.points]
        path = "M" + " L".join(f"{x} {y}" for x, y in places)
        parts.append(f'<path class="curve s{index % 6}" d="{path}"/>')
        if len(places) <= _DOTS:
            parts += [f'<circle class="bar s{index % 6}" cx="{x}" cy="{y}" r="2.5"/>' for x, y in places]
        parts.append(
            f'<rect class="bar s{index % 6}" x="{_n(left + index * 150)}" y="6" width="10" height="10" rx="2"/>'
        )
        parts.append(_text(left + index * 150 + 15, 15, line.label, "start", "label"))
    parts.append(_text(right, height - 4, x_label, "end", "axis"))
    parts.append(_text(0.0, height - 4, y_label, "start", "axis"))
    return "".join([*parts, "</svg>"])


def _thin(points: list[tuple[float, float]], limit: int = 400) -> tuple[tuple[float, float], ...]:
    """Every k-th point and the last, so that a page stays small."""
    step = ceil(len(points) / limit)
    if step <= 1:
        return tuple(points)
    kept = points[::step]
    return tuple(kept if kept[-1] == points[-1] else [*kept, points[-1]])


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) within [low, high]."""
    rough = (high - low) / count
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough)
    return [index * step for index in range(ceil(low / step), floor(high / step) + 1)]


def _labels(ticks: Sequence[float]) -> list[tuple[float, str]]:
    """(tick, its text) with as many decimals as the ticks' distance needs."""
    distance = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) or 1.0
    decimals = max(0, -floor(log10(distance) + 1e-9))
    return [(tick, f"{tick:,.{decimals}f}") for tick in ticks]


def _n(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _open(title: str, height: float) -> str:
    return (
        f'<svg class="plot" role="img" aria-label="{escape(title, quote=True)}" viewBox="0 0 {WIDTH:.0f} {_n(height)}" '
        f'width="{WIDTH:.0f}" height="{_n(height)}" xmlns="http://www.w3.org/2000/svg">'
    )


def _text(x: float, y: float, text: str, anchor: str, css: str) -> str:
    return f'<text class="{css}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>'
