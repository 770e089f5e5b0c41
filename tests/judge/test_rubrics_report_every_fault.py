"""A rubric file is read whole or refused with all of its faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_components.judge.rubric import load_rubric, parse_rubric
from hat_components.judge.spec import BUILT_IN
from hat_components.step import InputError

GOOD = """---
name: shop
language: en
---
The scene.

# tone
How friendly?

- **warm** (1): friendly throughout. [热情, friendly]
- **flat** (0.5): correct and cold.
- **rude** (0): an insult.
"""


def test_a_rubric_says_what_its_file_says() -> None:
    rubric = parse_rubric(GOOD)
    tone = rubric.criterion("tone")
    assert (rubric.name, rubric.scene, tone.question) == ("shop", "The scene.", "How friendly?")
    assert tone.labels == ("rude", "flat", "warm")
    assert [level.words for level in tone.levels] == [("热情", "friendly"), (), ()]
    assert [tone.label_of(value) for value in (1.0, 0.99, 0.5, 0.2, -1.0)] == ["warm", "flat", "flat", "rude", "rude"]
    assert tone.understand(" WARM ") == ("warm", True)
    assert tone.understand("热情") == ("warm", False)
    assert tone.understand("lukewarm") is None
    with pytest.raises(InputError, match="no criterion 'speed'"):
        rubric.criterion("speed")


def test_the_digest_is_of_what_is_asked() -> None:
    again = parse_rubric(GOOD.replace("\n\n- **warm**", "\n\n\n- **warm**").replace("(0.5)", "(0.50)"))
    assert again.digest == parse_rubric(GOOD).digest
    assert parse_rubric(GOOD.replace("an insult", "a joke")).digest != again.digest


def test_all_faults_come_at_once_with_their_lines() -> None:
    bad = GOOD.replace("name: shop", "name: shop\ncolour: red").replace("# tone", "# Tone of voice")
    bad = bad.replace("(0.5)", "(1.5)").replace("- **rude** (0):", "- rude:")
    with pytest.raises(InputError) as caught:
        parse_rubric(bad, "rubric.md")
    message = str(caught.value)
    for part in (
        "unknown key 'colour'",
        "line 8: 'Tone of voice' is no name",
        "line 12: the score 1.5",
        "line 13: a level is",
    ):
        assert part in message
    assert caught.value.place == "rubric.md"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no front matter"),
        ("---\nname: x\n", "does not end"),
        ("---\n[\n---\n# a\n", "not YAML"),
        ("---\nlanguage: en\n---\n", "no name"),
        ("---\nname: x\n---\ntext", "no criterion"),
        (GOOD + GOOD.split("---\n", 2)[2], "stands twice"),
        (GOOD.replace("[热情, friendly]", "[flat]"), "'flat' stands for two levels"),
        (GOOD.replace("(0.5)", "(1)"), "two levels have one score"),
        (GOOD.replace("language: en", "language: fr"), "language"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        parse_rubric(text)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="-#* \n()[]:.01abname", max_size=120))
def test_no_text_breaks_the_reader(text: str) -> None:
    for candidate in (text, "---\nname: x\n---\n" + text):
        try:
            parse_rubric(candidate)
        except InputError as error:
            assert error.message  # noqa: PT017  either a rubric or a told fault, nothing else


def test_every_rubric_that_ships_is_valid() -> None:
    files = sorted(BUILT_IN.glob("*/rubric.md"))
    assert files
    for file in files:
        assert len(load_rubric(file).criteria) >= 1


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_rubric(tmp_path / "none.md")
    (tmp_path / "latin.md").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load_rubric(tmp_path / "latin.md")
