"""A profile is checked whole, its errors point at a line, and what a run saves of it reads back as the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_pipelines import profile
from hat_pipelines.errors import ProfileError
from hatstack import paths

SHIPPED = sorted(paths.shipped("profiles").glob("*.yaml"))


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        profile.load(path, overrides)
    assert caught.value.kind == "invalid_input"
    return [str(problem) for problem in caught.value.problems]


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.parametrize("imported", [False, True])
def test_shipped_profiles_are_valid(path: Path, imported: bool) -> None:
    extra = ["steps.import.purpose=training", "steps.import.name=data"] if imported else []
    loaded = profile.load(path, extra, imported=imported)
    assert loaded.name == path.stem
    assert loaded.description


def test_the_profiles_ship() -> None:
    assert [path.stem for path in SHIPPED] == ["ablate", "h20", "micro", "smoke"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_resolved_profile_reads_back_as_itself(path: Path, tmp_path: Path) -> None:
    loaded = profile.load(path)
    resolved = loaded.resolved(loaded.dag())
    again = profile.load(write(tmp_path, profile.dump(resolved)))
    assert again == resolved
    assert again.resolved(again.dag()) == resolved
    assert {step.name: again.config(step) for step in again.dag().steps} == {
        step.name: loaded.config(step) for step in loaded.dag().steps
    }


def test_an_unknown_key_is_told_with_file_line_and_the_nearest_key(tmp_path: Path) -> None:
    text = "format: hatstack.profile/1\nname: p\nsteps:\n  simulate:\n    trian: 3\n  sftt: {}\nsede: 1\n"
    assert problems(write(tmp_path, text)) == ["p.yaml:7: unknown key sede (did you mean 'seed'?)"]
    text = text.replace("sede: 1\n", "")
    assert problems(write(tmp_path, text)) == [
        "p.yaml:5: unknown key steps.simulate.trian (did you mean 'train'?)",
        "p.yaml:6: unknown step 'sftt' (did you mean 'sft'?)",
    ]


def test_a_key_inside_a_nested_config_is_found(tmp_path: Path) -> None:
    text = "name: p\nsteps:\n  base:\n    model:\n      layers: 2\n      haeds: 3\n"
    assert problems(write(tmp_path, text)) == ["p.yaml:6: unknown key steps.base.model.haeds (did you mean 'heads'?)"]


def test_a_wrong_value_says_what_was_given(tmp_path: Path) -> None:
    found = problems(write(tmp_path, "name: p\nlocal: {threads: 0}\n"))
    assert found == ["p.yaml:2: local.threads: input should be greater than or equal to 1 (given: 0)"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "p.yaml:1: a mapping of keys to values is expected"),
        ("- a\n", "p.yaml:1: a mapping of keys to values is expected"),
        ("name: p\nseed: 1\nseed: 2\n", "p.yaml:3: key 'seed' stands twice"),
        ("name: [1\n", "p.yaml:2: not YAML"),
        ("seed: 1\n", "key name is missing"),
        ("name: p\npipeline: trian\n", "p.yaml:2: no pipeline 'trian' (did you mean 'train'?)"),
        ("name: p\narms: [a, a]\n", "p.yaml:2: step sft has an item twice"),
    ],
)
def test_what_is_no_profile_is_told(tmp_path: Path, text: str, told: str) -> None:
    assert told in "\n".join(problems(write(tmp_path, text)))


def test_overrides_change_values_and_are_named_in_errors(tmp_path: Path) -> None:
    path = write(tmp_path, "name: p\nsteps: {simulate: {train: 5}}\n")
    loaded = profile.load(path, ["steps.simulate.train=7", "arms=[naive]", "seed=3"])
    configs = {step.name: loaded.config(step).model_dump() for step in loaded.dag().steps}
    assert configs["simulate"]["train"] == 7
    assert configs["simulate"]["seed"] == configs["sft-naive"]["seed"] == 3
    assert "sft-hsa" not in configs
    assert problems(path, "steps.simulate.trian=7") == [
        "--set steps.simulate.trian=7: unknown key steps.simulate.trian (did you mean 'train'?)"
    ]
    assert "an override is written" in problems(path, "seed")[0]


def test_a_section_for_one_arm_is_laid_over_that_of_all(tmp_path: Path) -> None:
    path = write(
        tmp_path, "name: p\nsteps:\n  sft: {max_length: 500, replay_share: 0.1}\n  sft-hsa: {max_length: 900}\n"
    )
    loaded = profile.load(path)
    found = {step.name: loaded.config(step).model_dump() for step in loaded.dag().steps}
    assert (found["sft-naive"]["max_length"], found["sft-hsa"]["max_length"]) == (500, 900)
    assert found["sft-hsa"]["replay_share"] == 0.1
    assert (found["sft-naive"]["arm"], found["sft-hsa"]["arm"]) == ("naive", "hsa")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert "cannot be read" in problems(tmp_path / "none.yaml")[0]
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in problems(tmp_path / "b.yaml")[0]


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_any_text_is_a_profile_or_a_list_of_problems(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("p") / "p.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError) as caught:
        profile.load(path)
    assert caught.value.problems
