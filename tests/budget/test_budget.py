"""Every source file keeps to the house budget: size, documentation, and nothing that belongs to one machine."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES = 400
FUNCTION_LINES = 60
MACHINE_PATHS = re.compile(r"(?<![\w.<])/(?:work|root|farm)/|/home/[a-z]|/opt/wheels")


@cache
def tracked(*patterns: str) -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split("\n")
    return tuple(ROOT / name for name in sorted(set(listed)) if name and (ROOT / name).is_file())


def sources() -> list[Path]:
    return list(tracked("*.py"))


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_there_are_sources_to_check() -> None:
    assert len(sources()) > 20


def test_files_stay_short() -> None:
    long = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in sources()}
    assert {name: lines for name, lines in long.items() if lines > FILE_LINES} == {}


def test_functions_stay_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length(node)} lines"
        for path in sources()
        for node in functions(ast.parse(path.read_text()))
        if length(node) > FUNCTION_LINES
    ]
    assert long == []


def test_every_module_says_what_it_is() -> None:
    silent = [str(path.relative_to(ROOT)) for path in sources() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


@pytest.mark.parametrize("pattern", ["*.py", "*.md", "*.yaml", "*.toml", "*.sh", "Makefile", ".ci/run"])
def test_no_path_of_one_machine(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked(pattern)
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert found == []


def test_no_large_file_is_tracked() -> None:
    large = {str(path.relative_to(ROOT)): path.stat().st_size for path in tracked() if path.stat().st_size > 6_000_000}
    assert large == {}
