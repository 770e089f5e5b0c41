"""A stream draws new sessions of the scenario: seeded, right in every score, of the training split, under fresh states."""

from __future__ import annotations

import json
import random

import pytest

from hat_components.model.codec import IGNORED
from hat_components.scenarios import load
from hat_components.sft.fresh import StreamSpec, fresh_rows, read_spec
from hat_components.sft.step import run
from hat_components.step import InputError, NullProgress
from tests.training.test_killed_runs_resume_to_the_same_weights import CONFIG


@pytest.fixture(scope="module")
def harness(repository):
    return repository / "harness-registry" / "harnesses" / "live-commerce"


def spec(arm="hsa", **changes):
    return StreamSpec(purpose="training", arm=arm, turns=2, **changes)


def test_the_same_random_state_gives_the_same_sessions(harness, codec):
    draw = fresh_rows(spec(), harness, codec)
    first = [draw(random.Random(5)) for _ in range(2)]
    assert first[0] == first[1] == fresh_rows(spec(), harness, codec)(random.Random(5))
    assert draw(random.Random(6)) != first[0]


def test_only_the_naive_arm_always_sees_the_original_harness(harness, codec):
    def prompts(arm):
        draw, rng = fresh_rows(spec(arm), harness, codec), random.Random(1)
        rows = [row for _ in range(12) for row in draw(rng)]
        return {codec.text(row.ids).split("# room")[0].split("room")[0][:200] for row in rows}

    assert len(prompts("naive")) == 1
    assert len(prompts("hsa")) > 5


def test_exactly_what_the_expert_wrote_is_supervised(harness, codec):
    row = fresh_rows(spec("naive"), harness, codec)(random.Random(3))[0]
    text = codec.text(label for label in row.labels if label != IGNORED)
    assert "thanks for watching<|im_end|>" in text
    assert "<|im_start|>" not in text
    assert "# skills" not in text


def test_no_room_of_a_test_split_is_drawn(harness, codec):
    scenario = load("live_commerce", {"mix": "balanced"})
    tested = {tuple(scenario.room_view(item)["list"]) for item in scenario.items(3, "test", 60)}
    draw, rng = fresh_rows(spec(), harness, codec), random.Random(0)
    drawn = "\n".join(codec.text(row.ids) for _ in range(40) for row in draw(rng))
    assert not [
        room
        for room in tested
        if all(f'"{name}"' in drawn for name in room) and " ".join(f'"{name}"' for name in room) in drawn
    ]


def test_sft_trains_on_a_stream_and_repeats_itself(tmp_path, base_folder, harness):
    (tmp_path / "stream.json").write_text(spec().model_dump_json())
    inputs = {"base": base_folder, "stream": tmp_path / "stream.json", "harness": harness}
    fit = CONFIG.fit.model_copy(update={"tokens": 8_000, "batch_tokens": 2048})
    config = CONFIG.model_copy(update={"fit": fit, "max_length": 1536})
    results = [run(config, inputs, tmp_path / name, NullProgress()) for name in ("a", "b")]
    assert results[0].digests == results[1].digests
    assert results[0].notes["inputs"].keys() == set(inputs)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"arm": "naive"}, "the stream is of the arm 'naive'"),
        ({"purpose": "evaluation"}, "this is no stream"),
        ({"colour": 1}, "this is no stream"),
    ],
)
def test_a_stream_that_is_not_meant_for_it_is_refused(tmp_path, change, told):
    path = tmp_path / "stream.json"
    path.write_text(json.dumps({**json.loads(spec().model_dump_json()), **change}))
    with pytest.raises(InputError, match=told):
        read_spec(path, "hsa")
