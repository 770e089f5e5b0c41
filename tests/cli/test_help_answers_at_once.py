"""`hat --help` imports nothing heavy, so it answers at once whatever is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "yaml",
    "numpy",
    "torch",
    "transformers",
    "mlflow",
    "kfp",
    "hera",
    "hat_pipelines",
    "hat_components",
}
CODE = """
import sys
from hatstack.cli.main import main
code = main({argv!r})
print("LOADED", code, *sorted({{name.split(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["run", "--help"], ["harness", "--help"], ["canary", "start"]]
)
def test_nothing_heavy_is_loaded(argv: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(argv=argv)], capture_output=True, text=True, timeout=60, check=True
    )
    line = done.stdout.strip().splitlines()[-1].split()
    assert line[0] == "LOADED"
    assert int(line[1]) == (2 if argv[0] == "canary" else 0)  # it lacks its arguments
    assert HEAVY & set(line[2:]) == set()
