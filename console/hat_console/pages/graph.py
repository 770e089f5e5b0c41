"""The graph of a run as inline SVG: one box for each step, lines from what it needs.

Always holds: state is told by sign and word, colour only repeats it; boxes link to the step; the table of steps on the
page is the twin. Not here: the layout (hat_pipelines.desk.look).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, GAP_X, GAP_Y = 138, 44, 24, 12
SIGNS = {
    "waiting": "·",
    "running": "▸",
    "done": "✓",
    "cached": "✓",
    "skipped": "–",
    "failed": "✗",
    "interrupted": "✗",
}


def graph(
    title: str, nodes: Sequence[Mapping[str, Any]], states: Mapping[str, str], words: Mapping[str, str], link: str
) -> str:
    """`nodes`: name, column, row, needs. `words`: state → its word in the page's language. `link`: prefix of hrefs."""
    if not nodes:
        return ""
    places = {
        str(node["name"]): (node["column"] * (WIDTH + GAP_X) + 2, node["row"] * (HEIGHT + GAP_Y) + 2) for node in nodes
    }
    width = max(x for x, _ in places.values()) + WIDTH + 2
    height = max(y for _, y in places.values()) + HEIGHT + 2
    parts = [
        f'<svg class="graph" role="group" aria-label="{escape(title, quote=True)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg">'
    ]
    for node in nodes:
        x, y = places[str(node["name"])]
        for need in node["needs"]:
            if need in places:
                parts.append(_line(*places[need], x, y))
    for node in nodes:
        name = str(node["name"])
        state = states.get(name, "waiting")
        parts.append(_box(name, state, words.get(state, state), *places[name], link))
    return "".join([*parts, "</svg>"])


def _line(x1: int, y1: int, x2: int, y2: int) -> str:
    begin_x, begin_y, end_y, middle = x1 + WIDTH, y1 + HEIGHT // 2, y2 + HEIGHT // 2, x2 - GAP_X // 2
    return f'<path class="edge" d="M{begin_x} {begin_y} H{middle - 8} L{middle} {end_y} H{x2}"/>'


def _box(name: str, state: str, word: str, x: int, y: int, link: str) -> str:
    shown = name if len(name) <= 17 else f"{name[:16]}…"
    inner = (
        f'<rect class="node {escape(state)}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
        f'<text class="label" x="{x + 8}" y="{y + 18}">{escape(shown)}</text>'
        f'<text class="state {escape(state)}" x="{x + 8}" y="{y + 35}">{SIGNS.get(state, "·")} {escape(word)}</text>'
    )
    if not link:
        return inner
    told = escape(f"{name}: {word}", quote=True)
    return f'<a href="{escape(link + name, quote=True)}" aria-label="{told}">{inner}</a>'
