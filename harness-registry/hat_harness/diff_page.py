"""A semantic diff as one HTML page that needs nothing else: no script, no other file, no network.

Always holds: everything that comes from a harness is escaped, and a content security policy forbids whatever would slip
through; what was added and removed is told by marks and words, not by colour alone. Not here: what the changes are (diff).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from hat_harness.diff import Change, words
from hat_harness.digest import harness_digest, short
from hat_harness.spec import Harness

_LONG = 20_000
"""Characters beyond which a text is shown before and after instead of word by word, which is quadratic."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5a6675; --line: #d8dee6; --page: #fff; --card: #f6f8fa;
  --add: #e2f6e6; --add-ink: #11632b; --gone: #fde7e7; --gone-ink: #9b1c1c; --mark: #e8eef7; --mark-ink: #1d4a86 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa7b6; --line: #343d49; --page: #14181e;
  --card: #1b2129; --add: #16351f; --add-ink: #9be3ae; --gone: #42201f; --gone-ink: #f5b0ae; --mark: #1f2f47;
  --mark-ink: #a9c7f2 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, "Noto Sans", "Noto Sans CJK SC", sans-serif }
h1 { font-size: 1.45rem; margin: 0 0 .25rem } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
p { margin: .25rem 0; color: var(--soft) } code, pre { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace }
ul { list-style: none; margin: 0; padding: 0; border: 1px solid var(--line); border-radius: 8px; overflow: hidden }
li { padding: .6rem .9rem; border-top: 1px solid var(--line); background: var(--card); overflow-wrap: anywhere }
li:first-child { border-top: 0 } .kind { display: inline-block; min-width: 5.4rem; padding: 0 .5rem; border-radius: 4px;
  font-size: .82rem; text-align: center; background: var(--mark); color: var(--mark-ink); margin-right: .6rem }
.added { background: var(--add); color: var(--add-ink) } .removed { background: var(--gone); color: var(--gone-ink) }
pre { margin: .5rem 0 0; padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; border-radius: 6px;
  background: var(--page); border: 1px solid var(--line) }
ins { background: var(--add); color: var(--add-ink); text-decoration: none; box-shadow: inset 0 -1px currentColor }
del { background: var(--gone); color: var(--gone-ink) } .arrow { color: var(--soft); padding: 0 .35rem }
""".strip()
_HEAD = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
)


def diff_page(old: Harness, new: Harness, changes: Sequence[Change]) -> str:
    """The page about `changes`, which `diff(old, new)` gave."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.path.split(" / ")[0], []).append(change)
    counts = Counter(change.kind for change in changes)
    told = ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "no difference"
    title = f"{old.name} → {new.name}" if old.name != new.name else old.name
    parts = [
        f"{_HEAD}<title>{escape(title)}: harness diff</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
        f"<h1>{escape(title)}</h1>",
        f"<p><code>{short(harness_digest(old))}</code> → <code>{short(harness_digest(new))}</code></p>",
        f"<p>{escape(told)}</p>",
        *(_group(name, found) for name, found in groups.items()),
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _group(name: str, changes: Sequence[Change]) -> str:
    """One part of the harness with all that happened to it."""
    rows = "\n".join(_row(change) for change in changes)
    return f"<section>\n<h2>{escape(name)}</h2>\n<ul>\n{rows}\n</ul>\n</section>"


def _row(change: Change) -> str:
    _, _, rest = change.path.partition(" / ")
    head = f'<span class="kind {change.kind}">{change.kind}</span>{escape(rest)}'
    return f"<li>{head}{_values(change.before, change.after)}</li>"


def _values(before: Any, after: Any) -> str:
    """Before and after: short ones in the line, texts word by word, and structures as JSON."""
    if before is None and after is None:
        return ""
    first, second = _text(before), _text(after)
    if before is None or after is None:
        return (
            f" <code>{escape(first or second)}</code>"
            if _short(first + second)
            else f"<pre>{escape(first + second)}</pre>"
        )
    if _short(first) and _short(second):
        return f' <code>{escape(first) or "(empty)"}</code><span class="arrow">→</span><code>{escape(second) or "(empty)"}</code>'
    if len(first) + len(second) > _LONG:
        return f"<pre><del>{escape(first)}</del></pre><pre><ins>{escape(second)}</ins></pre>"
    marks = {"same": "{}", "removed": "<del>{}</del>", "added": "<ins>{}</ins>"}
    return "<pre>" + "".join(marks[kind].format(escape(piece)) for kind, piece in words(first, second)) + "</pre>"


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def _short(text: str) -> bool:
    return len(text) <= 60 and "\n" not in text
