"""Every example of docs/statistics.md runs and prints what the page says, and every public function is on the page."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest

import hat_stats

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "statistics.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
SHOWN = "# → "
HELPERS = {"arrays", "errors"}


@pytest.mark.parametrize("block", BLOCKS, ids=[str(number) for number in range(1, len(BLOCKS) + 1)])
def test_example_prints_what_the_page_shows(block: str) -> None:
    shown = [line.removeprefix(SHOWN) for line in block.splitlines() if line.startswith(SHOWN)]
    assert shown, "an example shows its result"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, str(PAGE), "exec"), {"__name__": "example"})
    assert printed.getvalue().splitlines() == shown


def public_functions() -> set[str]:
    found = set()
    for path in sorted(Path(hat_stats.__path__[0]).glob("*.py")):
        if path.stem not in HELPERS:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    return found


def test_every_public_function_is_used_in_an_example() -> None:
    code = "\n".join(BLOCKS)
    assert {name for name in public_functions() if not re.search(rf"\b{name}\(", code)} == set()
    assert len(public_functions()) > 30
