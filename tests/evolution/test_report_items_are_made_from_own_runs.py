"""Catalogue items come from one's own runs; what is missing is named with its command; published figures stand apart."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from hat_components.evaluate.config import Config as EvaluateConfig
from hat_components.evaluate.step import run as evaluate
from hat_components.judge.config import Config as JudgeConfig
from hat_components.judge.step import run as judge
from hat_components.label.config import Config as LabelConfig
from hat_components.label.raters import Rater
from hat_components.label.step import run as label
from hat_components.paper import catalogue
from hat_components.paper.catalogue import PUBLISHED, Made, Need, item, items, render
from hat_components.paper.page import page_html, section_html
from hat_components.paper.sources import Sources
from hat_components.report.view import Table
from hat_components.step import InputError, NullProgress
from tests.evolution.conftest import HARNESSES

ORACLE = """format: hatstack.judge/1
name: toy
revision: {revision}
note: revision {revision}
members:
  - type: oracle
    name: sim
    confusion: {{accuracy: {{right: {{right: {q}, wrong: {e}}}, wrong: {{wrong: {q}, right: {e}}}}}}}
"""


@pytest.fixture(scope="session")
def runs(evolved: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs directory with an evolution, two evaluations, a blind comparison and two calibrations of a judge."""
    root = tmp_path_factory.mktemp("runs")
    (root / "evolution").symlink_to(evolved)
    for name in ("live-commerce", "react-baseline"):
        evaluate(
            EvaluateConfig(arm=name, policy="expert", suites=("t1",), draws=100),
            {"items": data / "items_calibration", "harness": HARNESSES / name},
            root / "sides" / "steps" / f"evaluate-{name}" / "artifacts",
            NullProgress(),
        )
    sides = [
        root / "sides" / "steps" / f"evaluate-{name}" / "artifacts" for name in ("live-commerce", "react-baseline")
    ]
    raters = tuple(Rater(name=f"r{k}", seed=k) for k in range(3))
    label(
        LabelConfig(count=8, raters=raters), {"evaluation": sides[0], "other": sides[1]}, root / "pairs", NullProgress()
    )
    history: dict[str, Path] = {}
    for revision, quality in ((1, 0.7), (2, 0.95)):
        folder = root / f"judge{revision}"
        folder.mkdir()
        text = ORACLE.format(revision=revision, q=quality, e=round(1 - quality, 2))
        (folder / "judge.yaml").write_text(text)
        rubric = "---\nname: toy\n---\n# accuracy\nTrue?\n\n- **right** (1): all of it.\n- **wrong** (0): not all.\n"
        (folder / "rubric.md").write_text(rubric)
        out = root / f"calibrated{revision}"
        inputs = {"judge": folder, "evaluation": sides[0], **history}
        judge(JudgeConfig(mode="calibrate"), inputs, out, NullProgress())
        history = {"history": out / "history.jsonl"}
    return root


@pytest.fixture
def sources(runs: Path, evolved: Path, data: Path) -> Sources:
    return Sources.scan([runs, evolved.parent, data], harness=HARNESSES / "live-commerce")


def test_each_item_of_an_empty_directory_says_what_it_lacks_and_how_to_make_it(tmp_path: Path) -> None:
    for ident in items():
        made = render(ident, Sources.scan([tmp_path]))
        assert made.state == "missing"
        assert made.rows == []
        assert all(need.what and need.how for need in made.missing)
        assert made.missing
        assert made.missing[0].how in html.unescape(section_html(made))


MADE = ("t1", "t2", "t8", "t9", "t10", "t12", "t13", "t14", "f2", "f7")


@pytest.mark.parametrize("ident", MADE)
def test_an_item_is_made_from_runs_with_the_columns_that_it_promises(ident: str, sources: Sources) -> None:
    made = render(ident, sources)
    assert made.state == "made", made.missing
    own = [table for table in made.section.tables if not table.caption.startswith(PUBLISHED)]
    assert set(made.columns) <= {name for table in own for name in table.head}
    for table in made.section.tables:
        assert all(len(row) == len(table.head) for row in table.rows)
    html = section_html(made)
    assert html.count("<table>") == len(made.section.tables)
    assert "<svg" in html or not made.section.plots


def test_published_figures_are_never_among_the_rows(sources: Sources, tmp_path: Path) -> None:
    for found in (sources, Sources.scan([tmp_path])):
        for ident, one in items().items():
            made = render(ident, found)
            assert (one.published in made.section.tables) == (one.published is not None)
            rows = json.dumps(made.rows)
            assert "92.55" not in rows
            assert "+8.50" not in rows


def test_the_evolution_items_say_what_the_evolution_says(sources: Sources, evolved: Path) -> None:
    rows = {row["Stage"].split(" ")[0]: row for row in render("t14", sources).rows if "Diagnosis" in row}
    assert list(rows) == ["base", "evolution-1", "evolution-2", "evolution-3", "evolution-4"]
    selected = [row["Stage"] for row in render("t14", sources).rows if "(selected)" in row.get("Stage", "")]
    assert selected == ["evolution-2 (selected)"]
    held = [row for row in render("t8", sources).rows if "95 % interval" in row and row.get("Errors before")]
    assert {row["Policy"] for row in held} == {"heeding", "ignoring"}
    assert all(re.fullmatch(r"\[[−\d.+]+, [−\d.+]+\]", row["95 % interval"]) for row in held)


def test_judge_agreement_rises_by_revision(sources: Sources) -> None:
    rows = render("f7", sources).rows
    assert [row["Note"] for row in rows] == ["revision 1", "revision 2"]
    assert all(row["Kappa"] == "undefined" or float(row["Kappa"].replace("−", "-")) <= 1 for row in rows)


def test_broken_files_are_passed_over_and_named(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "preference.json").write_text('{"half": ')
    (tmp_path / "bad" / "evolution.json").write_text("{}")
    found = Sources.scan([tmp_path])
    for ident in ("t9", "t14"):
        made = render(ident, found)
        assert made.state == "missing"
    assert {Path(path).name for path in found.broken} == {"preference.json", "evolution.json"}


def test_a_new_item_is_one_decorated_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Sources
) -> None:
    items()
    monkeypatch.setattr(catalogue, "_REGISTERED", dict(catalogue._REGISTERED))
    items.cache_clear()
    attack = "<script>alert(1)</script>"

    @item("t99", attack, ("x",), Need("no y", "make y"))
    def build(found: Sources) -> Made:
        return Made((Table(attack, ("x",), ((attack,),)),), lead=attack)

    assert [ident for ident in items() if ident[0] == "t"][-1] == "t99"
    page = page_html([render(ident, sources) for ident in items()], attack)
    assert "<script>alert" not in page
    assert "<script>alert" not in section_html(render("t99", sources))
    with pytest.raises(InputError, match="no report item 't100'"):
        render("t100", sources)
    items.cache_clear()
