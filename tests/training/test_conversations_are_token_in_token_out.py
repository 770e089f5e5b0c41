"""The codec renders what the template renders, appends without touching what stands, and reads back what was written."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_components.model.codec import IGNORED, assistant_text, parse_output, with_tools
from hat_harness.events import Message, ToolCall
from hat_scenarios import general

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
VALUE = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXT | st.lists(st.integers(0, 9), max_size=3)
CALL = st.builds(
    lambda name, arguments: {"type": "function", "function": {"name": name, "arguments": arguments}},
    st.from_regex(r"\A[a-z_]{1,12}\Z"),
    st.dictionaries(TEXT, VALUE, max_size=3),
)
ASSISTANT = st.builds(
    lambda content, reasoning, calls: {
        "role": "assistant",
        "content": content,
        "reasoning": reasoning,
        "tool_calls": calls,
    },
    TEXT,
    TEXT,
    st.lists(CALL, max_size=2),
)
OTHER = st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "tool"]), TEXT)
TALK = st.lists(ASSISTANT | OTHER, max_size=6).map(lambda rest: [{"role": "system", "content": "hear < and |"}, *rest])


@settings(max_examples=150, deadline=None)
@given(messages=TALK)
def test_rows_are_what_the_chat_template_says_with_exactly_the_assistant_supervised(codec, tokenizer, messages):
    row = codec.row(messages)
    told = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    assert list(row.ids) == told["input_ids"]
    assert [int(label != IGNORED) for label in row.labels] == told["assistant_masks"]
    assert all(label in (IGNORED, token) for token, label in zip(row.ids, row.labels, strict=True))


@pytest.mark.parametrize("kind", general.KINDS)
def test_decoded_labels_are_the_assistants_words_and_nothing_else(codec, words, kind):
    messages = general.stream(kind, random.Random(3), words)
    row = codec.row(messages)
    spans, current = [], []
    for label in [*row.labels, IGNORED]:
        if label != IGNORED:
            current.append(label)
        elif current:
            spans.append(codec.text(current))
            current = []
    wanted = [assistant_text(message) + "<|im_end|>" for message in messages if message["role"] == "assistant"]
    assert spans == wanted


def test_a_message_marked_as_not_to_be_trained_is_context_only(codec):
    spoken = [{"role": "assistant", "content": "bad", "train": False}, {"role": "assistant", "content": "good"}]
    row = codec.row([{"role": "user", "content": "x"}, *spoken])
    assert codec.text(label for label in row.labels if label != IGNORED) == "good<|im_end|>"


@settings(max_examples=100, deadline=None)
@given(messages=TALK, written=ASSISTANT, more=st.lists(OTHER, min_size=1, max_size=2))
def test_prefix_sampled_and_suffix_make_the_longer_conversation(codec, messages, written, more):
    sampled = [*codec.encode_text(assistant_text(written)), codec.eos]
    whole = codec.encode_prefix([*messages, written, *more])
    assert codec.encode_prefix(messages) + sampled + codec.encode_suffix(more) == whole


def test_a_sample_that_ran_out_of_tokens_is_closed_before_the_next_message(codec):
    prefix = codec.encode_prefix([{"role": "user", "content": "x"}])
    cut = codec.encode_text("hel")
    more = [{"role": "user", "content": "y"}]
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "hel"}, *more]
    assert prefix + cut + codec.encode_suffix(more, closed=False) == codec.encode_prefix(messages)


@settings(max_examples=150, deadline=None)
@given(written=ASSISTANT)
def test_what_is_written_reads_back(codec, written):
    sampled = [*codec.encode_text(assistant_text(written)), codec.eos]
    output = codec.decode(sampled, "c1")
    calls = [call["function"] for call in written["tool_calls"]]
    assert [(call.name, dict(call.arguments), call.error) for call in output.tool_calls] == [
        (call["name"], call["arguments"], "") for call in calls
    ]
    assert output.token_ids == tuple(sampled)
    assert output.finish_reason == ("tool_calls" if calls else "stop")
    message = Message("assistant", output.content, output.reasoning, output.tool_calls)
    if written["content"].strip() == written["content"] and "<" not in written["content"] + written["reasoning"]:
        assert assistant_text(message) == assistant_text(written)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_tokens_that_a_model_could_write_make_decode_raise(codec, tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    output = codec.decode(ids)
    assert output.token_ids == tuple(ids)
    assert output.finish_reason in ("stop", "tool_calls", "length")


BROKEN = {
    '<tool_call>\n{"name": "f", "arguments": {"a": 1}': "not JSON",
    '<tool_call>\n{"name": "f", "arguments": {"a": NaN}}\n</tool_call>': "not JSON",
    '<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>': "not an object",
    '<tool_call>\n{"name": 3, "arguments": {}}\n</tool_call>': "not an object with a name",
    "<tool_call>\n[]\n</tool_call>": "not an object with a name",
    '<tool_call>\n{"name": "f", "arguments": ' + '{"a":' * 100_000 + "\n</tool_call>": "not JSON",
    "<tool_call>": "not JSON",
}


@pytest.mark.parametrize("text", list(BROKEN), ids=range(len(BROKEN)))
def test_a_malformed_call_says_what_is_wrong(text):
    _, content, calls = parse_output("before" + text, "c")
    assert content == "before"
    assert len(calls) == 1
    assert BROKEN[text] in calls[0].error
    assert calls[0].arguments == {}


def test_a_thought_that_never_ends_is_no_reply():
    assert parse_output("<think>let me see") == ("let me see", "", ())


def test_arguments_may_be_a_json_string_or_an_object(codec):
    objects = {"role": "assistant", "tool_calls": [{"id": "1", "name": "f", "arguments": {"a": "b", "n": 2}}]}
    strings = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "b", "n": 2}'}}]}
    call = Message("assistant", tool_calls=(ToolCall("1", "f", {"a": "b", "n": 2}),))
    assert codec.row([objects]) == codec.row([strings]) == codec.row([call])


def test_transformers_reads_what_the_codec_writes(codec, tokenizer):
    written = {
        "role": "assistant",
        "content": "",
        "reasoning": "look",
        "tool_calls": [{"function": {"name": "get", "arguments": {"item": "red mug"}}}],
    }
    prefix = codec.encode_prefix([{"role": "user", "content": "x"}])
    parsed = tokenizer.parse_response([*codec.encode_text(assistant_text(written)), codec.eos], prefix=prefix)
    assert parsed["reasoning_content"] == "look"
    assert parsed["tool_calls"] == [{"type": "function", "function": {"name": "get", "arguments": {"item": "red mug"}}}]


def test_function_definitions_stand_at_the_end_of_the_system_message(codec):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    system = {"role": "system", "content": "hi"}
    assert with_tools([system], []) == [system]
    message = with_tools([system], tools)[0]
    head, line = message.content.split("\n# functions\n")
    assert (head, json.loads(line)) == ("hi", tools[0]["function"])
