"""The report is one page that needs nothing else, shows intervals and contrasts, and says what it was not given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hat_components.report import svg
from hat_components.report.config import Config
from hat_components.report.conversations import cited_lines
from hat_components.report.step import run
from hat_components.step import InputError, NullProgress

Fabricate = Callable[..., dict[str, Path]]
NAIVE = {"t1": [1.0] * 9 + [0.0], "t2": [0.0] * 9 + [1.0]}
HSA = {"t1": [1.0] * 10, "t2": [1.0] * 9 + [0.5]}
VOID = {"meta", "line", "rect", "path", "br", "link", "img", "input"}


class Page(HTMLParser):
    """Checks nesting and collects text and what would be fetched."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("src", "href", "data") and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {value}")
        if tag in ("script", "iframe", "link", "object"):
            self.fetched.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def report(tmp_path: Path, inputs: dict[str, Path], **config: object) -> str:
    run(Config.model_validate(config), inputs, tmp_path / "out", NullProgress())
    return (tmp_path / "out" / "report.html").read_text()


def tables(tmp_path: Path) -> dict[str, list[dict[str, list[list[str]]]]]:
    found: dict[str, list[dict[str, list[list[str]]]]] = json.loads((tmp_path / "out" / "report.json").read_text())[
        "tables"
    ]
    return found


def test_the_page_is_whole_and_fetches_nothing(tmp_path: Path, fabricate: Fabricate) -> None:
    html = report(tmp_path, fabricate("hsa", HSA) | fabricate("naive", NAIVE), title="A < B", run="r1")
    page = Page(html)
    assert page.fetched == []
    assert "url(" not in html
    assert "@import" not in html
    assert "A < B" in "".join(page.text)


def test_suites_stand_with_intervals_and_a_table_for_every_plot(tmp_path: Path, fabricate: Fabricate) -> None:
    html = report(tmp_path, fabricate("naive", NAIVE) | fabricate("hsa", HSA))
    rows = tables(tmp_path)["suites"][0]["rows"]
    assert rows[0] == ["T1 · suite t1", "10", "AVG", "90.0 [80.0, 100.0]", "100.0 [90.0, 100.0]"]
    plotted = re.findall(r'<text class="value"[^>]*>([\d.]+)</text>', html)
    assert sorted(plotted) == sorted(["100.0", "90.0", "95.0", "10.0"])
    assert {"curves", "lineage", "contrasts", "intents", "families"} <= set(tables(tmp_path))


def test_contrasts_are_paired_and_signed_candidate_minus_baseline(tmp_path: Path, fabricate: Fabricate) -> None:
    report(tmp_path, fabricate("naive", NAIVE) | fabricate("hsa", HSA), baseline="naive")
    rows = {row[0]: row for row in tables(tmp_path)["contrasts"][0]["rows"]}
    assert rows["T2: hsa − naive"][2] == "+85.0"
    assert float(rows["T2: hsa − naive"][4]) < 0.01
    assert rows["naive: T2 − T1"][2] == "−80.0"


def test_ten_conversations_mark_the_lines_that_the_model_cites(tmp_path: Path, fabricate: Fabricate) -> None:
    html = report(tmp_path, fabricate("naive", NAIVE) | fabricate("hsa", HSA))
    assert html.count("<summary>") == 10
    assert "<mark>*how much it costs:price_check</mark>" in html
    assert "<mark>*small talk:chat</mark>" not in html
    assert "gate" in html


def test_what_a_model_wrote_cannot_become_markup(tmp_path: Path, fabricate: Fabricate) -> None:
    html = report(tmp_path, fabricate("naive", NAIVE, reply="<script>alert(1)</script><img src=x>"))
    assert Page(html).fetched == []
    assert "&lt;script&gt;" in html


def test_missing_inputs_are_named_with_their_cure(tmp_path: Path, fabricate: Fabricate) -> None:
    inputs = fabricate("naive", NAIVE)
    html = report(tmp_path, {"evaluation-naive": inputs["evaluation-naive"], "curves-naive": tmp_path / "gone.jsonl"})
    assert "curves-naive: does not exist" in html
    assert "no registration" in html
    assert "no traces" in html
    assert "run the register step" in html
    html = report(tmp_path, {"curves-naive": inputs["curves-naive"], "evaluation-x": inputs["curves-naive"]})
    assert "evaluation-x: this is not a hatstack.evaluation/1" in html
    assert "Training curves" in html


def test_nothing_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to report"):
        report(tmp_path, {})
    assert not (tmp_path / "out").exists()


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, fabricate: Fabricate) -> None:
    inputs = fabricate("naive", NAIVE) | fabricate("hsa", HSA)
    assert report(tmp_path, inputs) == report(tmp_path, inputs)


def test_quotes_are_found_by_their_telling_part_and_not_by_a_word() -> None:
    lines = ["*prices of things:get_price(item)", "*chat:chat"]
    assert cited_lines("price | prices of things:get_price(item", lines) == (lines[0],)
    assert cited_lines("chat", lines) == ()


def test_plots_take_odd_numbers() -> None:
    curve = svg.Curve("a & b", ((0.0, 1.0), (1.0, float("nan")), (2.0, float("inf")), (3.0, -2.0)))
    text = svg.curves("<loss>", [curve], x_label="step", y_label="loss")
    assert "nan" not in text
    assert "inf" not in text
    assert "a &amp; b" in text
    assert "no points" in svg.curves("x", [], x_label="", y_label="")
    flat = svg.curves("x", [svg.Curve("one", ((5.0, 0.0),))], x_label="", y_label="")
    assert "M" in flat
    long = svg.curves("x", [svg.Curve("l", tuple((float(i), 1.0) for i in range(5000)))], x_label="", y_label="")
    assert long.count("L") < 450
