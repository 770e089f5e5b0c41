"""Instruction suites are scored by rules that the right answer passes; calls are compared exactly; endpoints are asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hat_components.endpoint import Endpoint
from hat_components.evaluate import ifeval
from hat_components.evaluate.answers import run_calls, run_ifeval, run_instructions
from hat_components.importer.conversation import Conversation
from hat_harness.events import CallModel, Failure, Message, ModelOutput, ToolCall
from hat_scenarios.general import Words, instructions
from hat_scenarios.general.words import OBJECTS, QUALITIES, VERBS

LIMITS: dict[str, Any] = {"batch": 7, "max_tokens": 64, "tick": lambda done: None}


class Answering:
    """A model that answers by a function of the call."""

    def __init__(self, answer: Callable[[CallModel], str | tuple[ToolCall, ...] | None]) -> None:
        self._answer = answer

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        outputs: list[ModelOutput | Failure] = []
        for _, call in calls:
            said = self._answer(call)
            if said is None:
                outputs.append(Failure("call", "server", call.call_id))
            elif isinstance(said, str):
                outputs.append(ModelOutput(call.call_id, content=said))
            else:
                outputs.append(ModelOutput(call.call_id, tool_calls=said))
        return outputs


def mean(rows: Sequence[Any], metric: str) -> float:
    return sum(row.values[metric] for row in rows) / len(rows)


def test_right_answers_to_generated_instructions_score_one_and_silence_none() -> None:
    right = {item.prompt: item.answer for item in instructions(9, 60, Words.of(OBJECTS + VERBS + QUALITIES))}
    rows = run_instructions(Answering(lambda call: right[call.messages[0].content]), 9, 60, **LIMITS)
    assert mean(rows, "followed") == mean(rows, "instruction") == 1.0
    assert len({row.item for row in rows}) == 60
    rows = run_instructions(Answering(lambda call: ""), 9, 60, **LIMITS)
    assert mean(rows, "followed") == 0.0
    rows = run_instructions(Answering(lambda call: None), 9, 10, **LIMITS)
    assert {row.turns[0].causes for row in rows} == {("no_answer",)}


def test_ifeval_is_the_published_set_under_the_official_rules() -> None:
    prompts = ifeval.prompts()
    assert len(prompts) == 541
    assert sum(len(prompt.instruction_id_list) for prompt in prompts) == 834
    rows = run_ifeval(Answering(lambda call: "ok, here is my answer"), None, **LIMITS)
    assert len(rows) == 541
    assert 0.05 < mean(rows, "prompt_strict") < 0.2
    assert mean(rows, "prompt_loose") >= mean(rows, "prompt_strict")


def test_ifeval_rules_tell_right_from_wrong_and_never_waver() -> None:
    wanted = {1005, 1012, 1019, 1051, 1069}
    chosen = [prompt for prompt in ifeval.prompts() if prompt.key in wanted]
    assert chosen
    blanks = " ".join(f"[slot{n}]" for n in range(12))
    right = ifeval.judge(chosen[:1], [f"My resume. {blanks}"])
    wrong = ifeval.judge(chosen[:1], ["My resume."])
    assert right[0].strict == (True,)
    assert wrong[0].strict == (False,)
    text = ["Ceci est une phrase. And a sentence! " * 5] * 541
    assert ifeval.judge(ifeval.prompts(), text) == ifeval.judge(ifeval.prompts(), text)


def conversation(ident: str) -> Conversation:
    def call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"id": f"c{number}", "type": "function", "function": function}

    messages = (
        {"role": "user", "content": "where is order 7"},
        {"role": "assistant", "content": "", "tool_calls": [call(1, "find", {"order": 7, "deep": True})]},
        {"role": "tool", "content": "sent", "tool_call_id": "c1"},
        {"role": "assistant", "content": "", "tool_calls": [call(2, "track", {}), call(3, "notify", {"to": "me"})]},
        {"role": "tool", "content": "a", "tool_call_id": "c2"},
        {"role": "tool", "content": "b", "tool_call_id": "c3"},
        {"role": "assistant", "content": "It is on its way."},
    )
    return Conversation(id=ident, messages=messages, tools=({"type": "function", "function": {"name": "find"}},))


def test_calls_match_exactly_or_by_tool_and_see_only_what_came_before() -> None:
    seen: list[CallModel] = []
    find = ToolCall("x", "find", {"deep": True, "order": 7})
    both = (ToolCall("x", "notify", {"to": "me"}), ToolCall("y", "track", {}))

    def right(call: CallModel) -> tuple[ToolCall, ...]:
        seen.append(call)
        return (find,) if len(call.messages) == 1 else both

    rows = run_calls(Answering(right), [conversation("a"), conversation("b")], **LIMITS)
    assert [row.values for row in rows] == [{"exact": 1.0, "names": 1.0}] * 2
    assert [len(call.messages) for call in seen] == [1, 3, 1, 3]
    assert all(call.tools for call in seen)
    wrong = run_calls(Answering(lambda call: (ToolCall("x", "find", {"order": 8}),)), [conversation("a")], **LIMITS)
    assert wrong[0].values == {"exact": 0.0, "names": 0.5}
    assert wrong[0].turns[0].causes == ("arguments",)
    assert run_calls(Answering(lambda call: None), [conversation("a")], **LIMITS)[0].values["names"] == 0.0


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]], list[tuple[int, Any]]]]:
    """An HTTP server on loopback: (base URL, requests that came, answers that it gives in turn)."""
    asked: list[dict[str, Any]] = []
    answers: list[tuple[int, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
            status, answer = answers.pop(0)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/v1", asked, answers
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def ask(url: str, *calls: CallModel) -> list[ModelOutput | Failure]:
    with Endpoint(url, "m", key_variable="EVAL_KEY", parallel=1, timeout_s=5, temperature=0, seed=1) as endpoint:
        return endpoint.generate([(f"s{index}", call) for index, call in enumerate(calls)])


def test_an_endpoint_is_asked_in_openai_format(
    server: tuple[str, list[dict[str, Any]], list[tuple[int, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVAL_KEY", "k")
    url, asked, answers = server
    made = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"order": 7}'}}
    choice = {
        "message": {"content": None, "reasoning_content": "hm", "tool_calls": [made]},
        "finish_reason": "tool_calls",
    }
    answers.append((200, {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}))
    history = (Message("user", "hi"), Message("assistant", "", "why", (ToolCall("c0", "find", {"a": 1}),)))
    tool = {"type": "function", "function": {"name": "find"}}
    (output,) = ask(url, CallModel("x", 0, (*history, Message("tool", "r", tool_call_id="c0")), 0, (tool,), 50))
    assert output == ModelOutput(
        "x", "", "hm", (ToolCall("c1", "find", {"order": 7}),), "tool_calls", prompt_tokens=5, completion_tokens=2
    )
    assert asked[0]["path"] == "/v1/chat/completions"
    assert asked[0]["key"] == "Bearer k"
    assert asked[0]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert asked[0]["messages"][2]["tool_call_id"] == "c0"
    assert (asked[0]["max_tokens"], asked[0]["model"], asked[0]["tools"]) == (50, "m", [tool])


def test_whatever_an_endpoint_does_becomes_a_failure(
    server: tuple[str, list[dict[str, Any]], list[tuple[int, Any]]],
) -> None:
    url, _, answers = server
    bad = {"choices": [{"message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{oops"}}]}}]}
    answers += [(429, {}), (503, {}), (200, b"not json"), (200, {"choices": []}), (200, bad)]
    call = CallModel("x", 0, (Message("user", "hi"),), 0, (), 5)
    outputs = ask(url, *[call] * 5)
    kinds = [output.kind if isinstance(output, Failure) else output.tool_calls[0].error for output in outputs]
    assert kinds == ["rate_limit", "server", "malformed", "malformed", "arguments are not JSON"]
    gone = ask("http://127.0.0.1:9/v1", call)[0]
    assert isinstance(gone, Failure)
    assert gone.kind == "unavailable"
