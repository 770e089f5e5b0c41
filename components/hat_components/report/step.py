"""The report step: material in, `report.html` out; plus `report.json` with the same tables for programs.

Always holds: the page needs nothing but itself (no script, font, image or style from elsewhere), and whatever a model
or viewer wrote is escaped. Not here: what is shown (view) and collected (gather).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_file, write_text
from hat_components.report.config import Config
from hat_components.report.gather import gather
from hat_components.report.view import build
from hat_components.step import Progress, StepResult

TEMPLATES = Path(__file__).parent


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Write the page; what is missing is said on it and as warnings."""
    import jinja2
    from markupsafe import Markup

    material = gather(inputs)
    context = build(config, material)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["svg"] = Markup  # plots escape their own texts (report.svg)
    write_text(out / "report.html", environment.get_template("page.html.j2").render(context))
    tables = {section.id: [dataclasses.asdict(table) for table in section.tables] for section in context["sections"]}
    missing = [what for what, _ in material.missing]
    write_text(out / "report.json", json.dumps({"title": config.title, "tables": tables, "missing": missing}, indent=1))
    for what in missing:
        progress.warning(f"left out of the report: {what}")
    artifacts = {"report": "report.html", "tables": "report.json"}
    for name, file in artifacts.items():
        progress.artifact(name, out / file)
    return StepResult(
        artifacts=artifacts,
        digests={name: digest_file(out / file) for name, file in artifacts.items()},
        metrics={"sections": float(len(tables)), "conversations": float(len(context["conversations"]))},
        notes={"missing": missing},
    )
