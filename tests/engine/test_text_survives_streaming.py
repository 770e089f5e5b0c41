"""Text, reasoning and calls come out the same however generation is cut into pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from hat_serving.engine.errors import CallError
from hat_serving.engine.reasoning import ReasoningSplitter, ThinkingRule
from hat_serving.engine.text import TextCodec
from hat_serving.engine.toolcalls import CallStream, parse_calls, partial_object
from tests.engine.models import CALL, TALKS
from tests.engine.sglang_env import run_script

NAMES = ("get", "put")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=6), values, max_size=3)


@st.composite
def written(draw: st.DrawFn) -> str:
    """What a model may write: prose, calls to offered and other tools, calls that are broken or cut off."""
    text = draw(st.text(alphabet="ab <_tol>c/\n{\"'", max_size=12))
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from((*NAMES, "nope")))
        body = json.dumps({"name": name, "arguments": draw(arguments)}, ensure_ascii=draw(st.booleans()))
        if draw(st.integers(0, 5)) == 0:
            body = body[: draw(st.integers(0, len(body)))]
        text += f"<tool_call>\n{body}\n</tool_call>" + draw(st.sampled_from(("", "\n", " tail")))
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


def cut(text: str, sizes: list[int]) -> list[str]:
    pieces, at = [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces


def streamed(pieces: list[str]) -> tuple[str, list[tuple[str, str]], CallStream]:
    stream = CallStream(NAMES)
    content, calls = "", {}
    parts = [stream.feed(piece) for piece in pieces] + [stream.end()]
    for text, found in parts:
        content += text
        for piece in found:
            name, known = calls.get(piece.index, ("", ""))
            calls[piece.index] = (piece.name or name, known + piece.arguments)
    return content, [calls[index] for index in sorted(calls)], stream


@settings(max_examples=300, deadline=None)
@given(written(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_streamed_calls_are_the_whole_texts_calls(text: str, sizes: list[int]) -> None:
    content, calls, stream = streamed(cut(text, sizes))
    wanted = parse_calls(text, NAMES) or (text, [])
    assert content.strip() == wanted[0].strip()
    if stream.incomplete:
        json.loads(calls.pop()[1] or "{}")
    assert len(calls) == len(wanted[1]) + stream.broken
    if not stream.broken:
        assert calls == wanted[1]


@settings(deadline=None)
@given(arguments, st.integers(0, 400))
def test_a_cut_off_object_reads_as_a_part_of_the_whole(value: dict[str, Any], at: int) -> None:
    text = json.dumps(value, ensure_ascii=False)
    found, used, complete = partial_object(text[:at], strings=True)
    if complete:
        assert (found, used) == (value, len(text))
    elif found is not None:
        assert set(found) <= set(value)


@settings(deadline=None)
@given(st.text(alphabet="abthink<>/\n_cal", max_size=40), st.lists(st.integers(1, 7), min_size=1), st.booleans())
def test_reasoning_and_content_lose_nothing(text: str, sizes: list[int], force: bool) -> None:
    splitter = ReasoningSplitter(force=force)
    reasoning = content = ""
    for more in [*(splitter.feed(piece) for piece in cut(text, sizes)), splitter.end()]:
        reasoning, content = reasoning + more[0], content + more[1]
    if "<think>" not in text and "</think>" not in text:
        assert reasoning + content == text


def test_thinking_follows_the_templates_switch() -> None:
    plain = ThinkingRule("{{ messages }}")
    assert plain.forces(None)
    assert not plain.forces({"enable_thinking": False})
    off = ThinkingRule("{%- if not enable_thinking is defined %}{% set enable_thinking = false %}{% endif %}")
    assert not off.forces(None)
    assert off.forces({"enable_thinking": True})
    qwen = ThinkingRule("{%- if enable_thinking is defined and enable_thinking is false %}x{% endif %}")
    assert qwen.forces({})
    assert not qwen.forces({"enable_thinking": False})


@settings(deadline=None)
@given(text=st.text(max_size=60), extra=st.lists(st.integers(0, 500), max_size=6))
def test_pieces_join_to_the_decoding(plain_talker_folder: Path, text: str, extra: list[int]) -> None:
    codec = _codec(plain_talker_folder)
    ids = codec.encode(text) + extra
    decoder = codec.decoder(skip_special_tokens=True)
    seen = ""
    for token in ids:
        decoder.push(token)
        assert decoder.text.startswith(seen)
        seen = decoder.text
    assert decoder.whole() == codec.decode(ids, skip_special_tokens=True)


_codecs: dict[Path, TextCodec] = {}


def _codec(folder: Path) -> TextCodec:
    if folder not in _codecs:
        _codecs[folder] = TextCodec(folder)
    return _codecs[folder]


def test_templates_render_as_transformers_renders_them(plain_talker_folder: Path) -> None:
    codec, theirs = TextCodec(plain_talker_folder), AutoTokenizer.from_pretrained(plain_talker_folder)
    call = {
        "id": "c",
        "index": None,
        "type": "function",
        "function": {"name": "get", "arguments": {"a": "红", "b": [1]}},
    }
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "rules <|im_end|>"},
        {"role": "user", "content": "hi 你好"},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "{}", "tool_call_id": "c"},
    ]
    wanted = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert codec.render(messages, None, {}) == wanted
    assert codec.encode(wanted, add_special_tokens=False) == theirs.encode(wanted, add_special_tokens=False)


def test_a_template_cannot_reach_out_of_its_sandbox(plain_talker_folder: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((plain_talker_folder / name).read_bytes())
    for template in ("{{ messages.__class__.__mro__ }}", "{{ raise_exception('no') }}", "{{ messages.append(1) }}"):
        (tmp_path / "chat_template.jinja").write_text(template)
        with pytest.raises(CallError):
            TextCodec(tmp_path).render([{"role": "user", "content": "x"}], None, {})


_REFERENCE = """
import json, sys
from sglang.srt.entrypoints.openai.protocol import Function, Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import Qwen3Detector
made = []
for case in json.load(sys.stdin):
    text = "".join(case["pieces"])
    whole = Qwen3Detector(force_reasoning=case["force"]).detect_and_parse(text)
    stream = Qwen3Detector(force_reasoning=case["force"])
    parts = [stream.parse_streaming_increment(piece) for piece in case["pieces"]] + [stream.finish()]
    joined = ["".join(part.reasoning_text for part in parts), "".join(part.normal_text for part in parts)]
    tools = [Tool(function=Function(name=name)) for name in case["names"]]
    parser = FunctionCallParser(tools, "qwen")
    calls = None
    if parser.has_tool_call(text):
        content, found = parser.parse_non_stream(text)
        calls = [content, [[call.name, call.parameters] for call in found]]
    made.append({"reasoning": [whole.reasoning_text, whole.normal_text], "stream": joined, "calls": calls})
print("RESULT" + json.dumps(made))
"""


@pytest.mark.sglang
def test_reasoning_and_calls_are_parsed_as_sglang_parses_them() -> None:
    texts = [said for _, said in TALKS]
    texts += [
        "",
        "hi",
        "<think>abc",
        "abc</think>def",
        "</think>x",
        "<think><think>a</think>b</think>c",
        "<think>abc</thi",
    ]
    texts += ["<think>x<tool_call>\n{}", "x<think>y</think>z", "<tool_call>\n{bad}\n</tool_call>", "a <tool"]
    texts += [
        CALL % ("get", "a") + "\n" + CALL % ("nope", "b") + " tail" + CALL % ("put", "c"),
        CALL % ("get", 'q\\"q'),
    ]
    texts += ['x<tool_call>\n[{"name": "get", "arguments": {}}, {"name": "put", "parameters": {"a": 1}}]\n</tool_call>']
    cases = [
        {"pieces": cut(text, sizes), "force": force, "names": [*NAMES, "get_price", "get_stock"]}
        for text in texts
        for sizes in ([1], [3, 5], [1000])
        for force in (True, False)
    ]
    theirs = json.loads(run_script(_REFERENCE, json.dumps(cases)).partition("RESULT")[2])
    for case, wanted in zip(cases, theirs, strict=True):
        text = "".join(case["pieces"])
        assert list(ReasoningSplitter(force=case["force"]).whole(text)) == wanted["reasoning"], text
        splitter = ReasoningSplitter(force=case["force"])
        parts = [splitter.feed(piece) for piece in case["pieces"]] + [splitter.end()]
        assert ["".join(part[side] for part in parts) for side in (0, 1)] == wanted["stream"], case
        calls = parse_calls(text, case["names"])
        assert (None if calls is None else [calls[0], [list(call) for call in calls[1]]]) == wanted["calls"], text
