"""Models with a chat template of their own: rows, sessions and reading back are the template's, token for token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import trl
from transformers import AutoModelForCausalLM

from hat_components.large.packing import PackedStream, can_pack, inputs_of, pack
from hat_components.large.settings import Large
from hat_components.model.anymodel import AnyModel
from hat_components.model.batches import FileRows, Source
from hat_components.model.codec import IGNORED, Row
from hat_components.model.generate import MicroModel
from hat_components.model.template import TemplateCodec, codec_of
from hat_components.model.train import supervised_loss
from hat_components.step import InputError
from hat_harness.events import CallModel, Message, ToolCall
from tests.training.large_models import qwen_tokenizer

TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "get_item",
            "description": "One item.",
            "parameters": {"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}},
        },
    },
)
TALK = (
    Message("system", "You sell. <|im_end|> </think>"),
    Message("user", "the red one? <tool_response>"),
    Message("assistant", "", "a cup", (ToolCall("c1", "get_item", {"item": "75001", "count": 7}),)),
    Message("tool", '{"price": 5}', tool_call_id="c1"),
    Message("assistant", "It is 5.", "so"),
    Message("user", "and blue?"),
    Message("assistant", "No."),
)


@pytest.fixture(scope="module", params=["qwen3", "qwen3_5_think", "qwen3_6"])
def spoken(request, tokenizer) -> TemplateCodec:
    found = qwen_tokenizer(tokenizer)
    template = Path(trl.__file__).parent / "chat_templates" / f"{request.param}.jinja"
    found.chat_template = template.read_text(encoding="utf-8")
    codec = codec_of(found)
    assert isinstance(codec, TemplateCodec)
    return codec


def test_a_row_is_what_the_template_renders_with_exactly_the_assistant_supervised(spoken):
    row = spoken.row(TALK, TOOLS)
    assert spoken.text(row.ids) == spoken._render(TALK, TOOLS)
    written = spoken.text(label for label in row.labels if label != IGNORED)
    assert written.count("<|im_end|>") == 3
    assert "a cup" in written
    assert "It is 5." in written
    assert "75001" in written
    assert "red one" not in written
    assert "price" not in written


def test_control_tokens_of_others_are_broken_up(spoken):
    assert spoken.text(spoken.encode_prefix(TALK[:2])).count("<|im_end|>") == 2
    assert "< tool_response>" in spoken.text(spoken.encode_prefix(TALK[:2]))


def test_prefix_sampled_and_suffix_make_the_longer_conversation(spoken):
    for place, more in ((2, TALK[3:4]), (4, TALK[5:6])):
        prefix = spoken.encode_prefix(TALK[:place], TOOLS)
        whole = spoken.row(TALK[: place + 1], TOOLS)
        end = len(whole.ids) - 1 - list(reversed(whole.labels)).index(spoken.eos)
        assert list(whole.ids[: len(prefix)]) == prefix
        longer = [*whole.ids[: end + 1], *spoken.encode_suffix(more)]
        assert spoken.text(longer) == spoken._render(TALK[: place + 2], TOOLS, write=True)


def test_what_is_written_reads_back_with_the_types_of_the_tool(spoken):
    prefix, row = spoken.encode_prefix(TALK[:2], TOOLS), spoken.row(TALK[:3], TOOLS)
    written = [label for label in row.labels[len(prefix) :] if label != IGNORED]
    found = spoken.decode(written, "t1", (), len(prefix), TOOLS)
    assert (found.reasoning, found.content, found.finish_reason) == ("a cup", "", "tool_calls")
    assert [(call.name, dict(call.arguments), call.error) for call in found.tool_calls] == [
        ("get_item", {"item": "75001", "count": 7}, "")
    ]


@pytest.mark.parametrize(
    "text", ["", "</think>\n\n<tool_call>\n<function", "a</think>b", "<tool_call>{}</tool_call>", "x"]
)
def test_whatever_is_written_makes_no_error(spoken, text):
    found = spoken.decode([*spoken.encode_text(text)], "t1")
    assert found.finish_reason == "length"
    if "<tool_call>" in text:
        assert all(call.error for call in found.tool_calls)


def test_a_template_that_drops_text_and_is_unknown_is_refused(tokenizer):
    found = qwen_tokenizer(tokenizer)
    found.chat_template = "{% for m in messages[-2:] %}{{ m.content }}<|im_end|>{% endfor %}"
    with pytest.raises(InputError, match="chat template"):
        codec_of(found)


def call(messages, number=0, limit=12):
    return CallModel(f"t{number}", 0, tuple(messages), 0, (), limit)


def test_any_model_samples_what_the_fast_one_samples(tiny, codec):
    talks = [(f"s{n}", [Message("system", "a lamp " * (1 + 5 * n)), Message("user", f"number {n}")]) for n in range(5)]
    found = []
    for kind in (MicroModel, AnyModel):
        for temperature in (0.0, 1.0):
            policy = kind(tiny.eval(), codec, temperature=temperature, seed=7, rows=3)
            first = policy.generate([(name, call(messages)) for name, messages in talks])
            again = [
                (name, call([*messages, Message("assistant", out.content, out.reasoning, out.tool_calls),
                             Message("user", "more")], 1))
                for (name, messages), out in zip(talks, first, strict=True)
            ]  # fmt: skip
            found.append([*first, *policy.generate(again)])
    for fast, slow in ((found[0], found[2]), (found[1], found[3])):
        for one, other in zip(fast, slow, strict=True):
            assert one.token_ids == other.token_ids
            assert one.prompt_tokens == other.prompt_tokens
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def rows_of(codec, count=7):
    texts = [" ".join(["lamp"] * (3 + 4 * n)) for n in range(count)]
    return [codec.row([Message("user", text), Message("assistant", text[::-1])]) for text in texts]


def test_packed_rows_see_only_themselves(tiny, codec):
    rows = rows_of(codec)
    stream = PackedStream([Source("a", 1.0, FileRows(rows, 1))], 160, "s", 160)
    batch = next(stream)
    assert len(batch.rows) > 1
    assert batch.ids.shape[1] <= 160
    given = inputs_of(batch, linear=False)
    logits = tiny(**{key: value for key, value in given.items() if key != "labels"}).logits
    ends = torch.tensor(batch.rows).cumsum(0).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        alone = tiny(input_ids=batch.ids[:, start:end]).logits
        assert torch.allclose(logits[:, start:end], alone, atol=1e-4)
        assert batch.labels[0, start] == IGNORED, "no row is foreseen from the one before"
    packed = torch.nn.functional.cross_entropy(logits[0, :-1], batch.labels[0, 1:], ignore_index=IGNORED)
    padded = next(iter(_padded(rows, batch)))
    assert packed.item() == pytest.approx(supervised_loss(tiny, *padded, "float32").item(), abs=1e-4)


def _padded(rows, batch):
    """The packed rows, one to a line."""
    ends = torch.tensor(batch.rows).cumsum(0).tolist()
    width = max(batch.rows)
    ids, labels = torch.zeros(len(ends), width, dtype=torch.long), torch.full((len(ends), width), IGNORED)
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        ids[number, : end - start] = batch.ids[0, start:end]
        labels[number, : end - start] = batch.labels[0, start:end]
    yield ids, labels


def test_no_row_is_lost_and_no_sequence_too_long():
    import random

    rows = [Row(range(size), range(size)) for size in (1, 5, 9, 3, 7, 8, 2, 10, 4)]
    groups = pack(rows, 10, random.Random(1))
    assert sorted(len(row.ids) for group in groups for row in group) == sorted(len(row.ids) for row in rows)
    assert all(sum(len(row.ids) for row in group) <= 10 for group in groups)
    assert len(groups) == 5, "49 tokens fit into five sequences of ten"


def test_linear_attention_is_packed_by_kernels_alone():
    class Config:
        layer_types = ("linear_attention", "full_attention")

    assert not can_pack(Config()) or torch.cuda.is_available()
    assert can_pack(object())


def test_targets_that_a_class_lacks_are_passed_over_and_none_at_all_is_told(tiny):
    from hat_components.large.load import targets_of

    assert targets_of(tiny, Large()) == ["q_proj", "k_proj", "v_proj", "o_proj"]
    with pytest.raises(InputError, match="no linear layer called in_proj_z"):
        targets_of(tiny, Large(targets=("in_proj_z",)))


def test_a_model_folder_on_a_volume_is_handed_out_unchanged(tmp_path, base_folder):
    from hat_components.base.config import Config
    from hat_components.base.step import run
    from hat_components.step import NullProgress

    given = tmp_path / "given"
    given.mkdir()
    for path in base_folder.iterdir():
        (given / path.name).write_bytes(path.read_bytes())
    (given / "README.md").write_text("about")
    result = run(Config(folder=str(given)), {}, tmp_path / "out", NullProgress())
    names = {path.name for path in (tmp_path / "out" / "model").iterdir()}
    assert names == {path.name for path in given.iterdir()} - {"README.md"}
    AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model")
    with pytest.raises(InputError, match="has digest sha256"):
        run(Config(folder=str(given), folder_digest="sha256:" + "0" * 64), {}, tmp_path / "b", NullProgress())
    (given / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(InputError, match="header is broken"):
        run(Config(folder=str(given)), {}, tmp_path / "c", NullProgress())
    assert result.digests["model"].startswith("sha256:")
    assert not (tmp_path / "c").exists()
