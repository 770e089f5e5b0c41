"""Shared by all tests: where CI forbids skips, a skipped test fails with the reason that it gave."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if os.environ.get("HATSTACK_FORBID_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where skips are forbidden: {report.longrepr}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side (`pytest -n 2 --dist loadgroup`), the tests of a folder stay together: they share what is dear to start."""
    for item in items:
        folder = item.path.relative_to(REPOSITORY / "tests").parts[0]
        item.add_marker(pytest.mark.xdist_group(folder))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY
