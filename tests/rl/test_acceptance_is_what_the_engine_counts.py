"""The head that is trained here and the one that the dev engine runs are the same: they draft the same tokens."""

from __future__ import annotations

import pytest
from transformers import AutoModelForCausalLM

from hat_components.mtp.fit import measure
from hat_components.mtp.head import DraftHead
from hat_components.mtp.tensors import check_head, read_head
from hat_components.rl.rows import FlatRow
from hat_serving.engine.engine import Engine
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.sampling import SamplingParams
from tests.engine.models import TALKS, talker_model


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    return talker_model(tmp_path_factory.mktemp("talker") / "model", steps=110)


@pytest.mark.parametrize("depth", [1, 3])
def test_measured_offline_or_served_the_same_drafts_are_accepted(talker, depth):
    options = EngineOptions.model_validate(
        {
            "model_path": talker,
            "dtype": "float32",
            "speculative_algorithm": "NEXTN",
            "speculative_num_steps": depth,
            "speculative_num_draft_tokens": depth + 1,
        }
    )
    with Engine(options) as engine:
        text = engine.model.text
        asked = [
            text.encode(text.render([{"role": "user", "content": talk[0]}], None, {}), add_special_tokens=False)
            for talk in TALKS
        ]
        served = engine.complete(asked, SamplingParams(max_new_tokens=60, temperature=0.0))
    policy = AutoModelForCausalLM.from_pretrained(str(talker), local_files_only=True).eval()
    head = DraftHead(policy.config)
    check_head(read_head(talker), head.shapes(), talker)
    head.take(read_head(talker))
    verified = correct = 0
    for prompt, request in zip(asked, served, strict=True):
        tokens = tuple(request.tokens)
        found = measure(policy, head, [FlatRow(tuple(prompt), tokens, (1,) * len(tokens), (0.0,) * len(tokens))], depth)
        assert found.verifications == pytest.approx(request.stats.verified, abs=1)
        assert found.accepted == pytest.approx(request.stats.correct, abs=depth)  # the last drafts reach beyond the end
        verified += request.stats.verified
        correct += request.stats.correct
    assert correct > verified / 2, "a head that is never right proves nothing"
