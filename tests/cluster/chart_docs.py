"""The README of a chart, made from its Chart.yaml and the comments of its values.yaml, and a snapshot of what it renders.

`python -m tests.cluster.chart_docs` writes both for each chart; tests keep them equal to the values and the templates. A
comment that begins with `# --` describes the key below it and goes on over the comment lines that follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hat_pipelines.compiler import dump
from tests.cluster.charts import CHARTS, folder, render, values

SNAPSHOTS = Path(__file__).with_name("snapshots")


def readme(chart: str) -> str:
    """The page."""
    about = yaml.safe_load((folder(chart) / "Chart.yaml").read_text())
    rows = [f"| `{key}` | `{default}` | {text} |" for key, default, text in described(folder(chart) / "values.yaml")]
    scenarios = [
        f"| `ci/{path.name}` | {path.read_text().splitlines()[0].removeprefix('# ')} |"
        for path in sorted((folder(chart) / "ci").glob("*-values.yaml"))
    ]
    lines = [
        "<!-- Made by `python -m tests.cluster.chart_docs`; change values.yaml, not this file. -->",
        f"# {chart}",
        "",
        f"{about['description'].rstrip('.')}. Version {about['version']}, Kubernetes {about['kubeVersion']}.",
        "How to install, upgrade and remove it: `docs/cluster.md`.",
        "",
        "| example | for |",
        "|---|---|",
        *scenarios,
        "",
        "| value | default | meaning |",
        "|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def snapshot(chart: str) -> str:
    """Every object of the scenario `default`, so that a change of the templates is seen as what a cluster would get."""
    made = [entry for entry in render(chart, values(chart, "default")) if entry["kind"] != "CustomResourceDefinition"]
    made.sort(key=lambda entry: (entry["kind"], entry["metadata"]["name"]))
    note = "# Made by `python -m tests.cluster.chart_docs`: look at its diff.\n"
    return note + dump(*made)


def described(file: Path) -> Iterator[tuple[str, str, str]]:
    """(key, default, description) of every value, in the order of the file."""
    text = file.read_text()
    comments = dict(_comments(text))
    for key, value in _leaves(yaml.safe_load(text)):
        yield key, json.dumps(value), comments.get(key) or comments.get(key.rpartition(".")[0], "")


def _leaves(values: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in ("requests", "limits"):
            yield from _leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _comments(text: str) -> Iterator[tuple[str, str]]:
    """(key, its description)."""
    path: list[tuple[int, str]] = []
    said: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("# --"):
            said = [bare.removeprefix("# --").strip()]
        elif bare.startswith("#") and said:
            said.append(bare.removeprefix("#").strip())
        elif match := re.match(r"( *)([A-Za-z0-9_]+):", line):
            indent = len(match.group(1))
            path = [entry for entry in path if entry[0] < indent] + [(indent, match.group(2))]
            if said:
                yield ".".join(name for _, name in path), " ".join(said).replace("|", "\\|")
            said = []
        else:
            said = []


def main() -> None:
    """Writes the pages and the snapshots."""
    for chart in CHARTS:
        (folder(chart) / "README.md").write_text(readme(chart))
        (SNAPSHOTS / f"{chart}.yaml").write_text(snapshot(chart))


if __name__ == "__main__":
    main()
