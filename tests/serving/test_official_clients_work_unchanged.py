"""The official openai clients for Python and JavaScript talk to the gateway as they are, streamed and not."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.serving.conftest import World

NODE = Path(__file__).parent / "node"
EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def distinct(names: list[str]) -> list[str]:
    return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]


def test_python_streams_responses(world: World) -> None:
    client = openai.OpenAI(base_url=world.url + "/v1", api_key="unused", max_retries=0)
    events: list[Any] = list(client.responses.create(model="shop", input="what is the price", user="p1", stream=True))
    assert distinct([event.type for event in events]) == EVENTS
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = events[-1].response
    assert done.output_text == "it costs 42 bye"
    assert (done.usage.input_tokens, done.usage.output_tokens) == (20, 10)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == done.output_text
    after = client.responses.create(model="shop", input="hi", previous_response_id=done.id, user="p1")
    assert after.output_text == "hello number 2 bye"
    with client.responses.stream(model="shop", input="hi", user="p2") as helper:
        assert helper.get_final_response().output_text == "hello number 1 bye"


def test_a_response_goes_on_with_the_conversation_that_is_named_whoever_asks(world: World) -> None:
    client = openai.OpenAI(base_url=world.url + "/v1", api_key="unused", max_retries=0)

    def say(**named: Any) -> Any:
        return client.responses.create(model="shop", input="hi", user="p", **named)

    first = say(conversation="a")
    assert [say(conversation="a").output_text, say(conversation="b").output_text, say().output_text] == [
        "hello number 2 bye",
        "hello number 1 bye",
        "hello number 1 bye",
    ]
    assert say(previous_response_id=first.id).output_text == "hello number 3 bye"
    by_header = say(extra_headers={"X-Hatstack-Conversation": "b"})
    assert by_header.output_text == "hello number 2 bye"
    with pytest.raises(openai.BadRequestError, match="does not go together"):
        say(previous_response_id=first.id, conversation="a")
    for name in ("", 5, "x" * 257):
        with pytest.raises(openai.BadRequestError, match="1 to 256 characters"):
            say(conversation=name)


def test_python_hears_of_a_turn_that_fails_in_mid_stream(world: World) -> None:
    client = openai.OpenAI(base_url=world.url + "/v1", api_key="unused", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    client.chat.completions.create(
        model="shop", messages=messages, user="owner", extra_headers={"X-Hatstack-Conversation": "c"}
    )
    other = {"X-Hatstack-Conversation": "c"}
    with pytest.raises(openai.APIError, match="belongs to someone else"):
        list(
            client.chat.completions.create(
                model="shop", messages=messages, user="thief", stream=True, extra_headers=other
            )
        )


def test_models_are_listed_and_other_routes_say_that_they_are_not_offered(world: World) -> None:
    client = openai.OpenAI(base_url=world.url + "/v1", api_key="unused", max_retries=0)
    assert [model.id for model in client.models.list()] == ["shop"]
    with pytest.raises(openai.NotFoundError, match="not offered"):
        client.embeddings.create(model="shop", input="x")


def test_javascript_works_too(world: World) -> None:
    node = shutil.which("node")
    assert node, "no node: make deps installs it (Debian package npm)"
    assert (NODE / "node_modules" / "openai").is_dir(), (
        "the openai client for JavaScript is missing: make deps fetches it"
    )
    done = subprocess.run(
        [node, str(NODE / "client.mjs"), world.url], capture_output=True, text=True, timeout=60, cwd=NODE
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "chat": "hello number 1 bye",
        "stream": "hello number 1 bye",
        "usage": 15,
        "response": "hello number 1 bye",
        "next": "hello number 2 bye",
        "events": EVENTS,
        "streamed": "hello number 1 bye",
        "refused": [400, "temperature"],
    }
