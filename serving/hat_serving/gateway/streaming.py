"""Server-sent events of a streamed turn, as chat completion chunks and as the events of `/v1/responses`.

Always holds: what was shown is never taken back: where the final reply does not continue it, it is sent whole; a turn that fails
ends the stream with one error in OpenAI's shape; closing the generator cancels the turn, which stops the engine.
Not here: turns (host), bodies that are not streamed (chat).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import orjson

from hat_harness.errors import PlatformError
from hat_serving.gateway import answers, chat
from hat_serving.gateway.host import Host
from hat_serving.gateway.turns import Answer


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known when a turn begins: its arm, and its number in the conversation."""

    arm: str
    number: int


DONE = b"data: [DONE]\n\n"
Pieces = AsyncGenerator["str | Answer", None]


async def begin(host: Host, parsed: chat.Parsed) -> tuple[Opening, Pieces]:
    """The turn's opening, and its pieces to come. Raises what keeps the turn from beginning, so that it can be a status."""
    found = _pieces(host, parsed)
    first = await anext(found)
    if isinstance(first, Opening):
        return first, cast(Pieces, found)
    assert isinstance(first, Answer)  # a muted room: there is no turn

    async def silent() -> Pieces:
        yield first

    await found.aclose()
    return Opening(first.arm, first.turn.index), silent()


async def _pieces(host: Host, parsed: chat.Parsed) -> AsyncGenerator[Opening | str | Answer, None]:
    """The opening, texts as they may be shown, then the answer. Raises what the turn raises."""
    queue: asyncio.Queue[Opening | str | None] = asyncio.Queue()
    opened = lambda arm, number: queue.put_nowait(Opening(arm, number))  # noqa: E731 - a method would need the queue
    turn = asyncio.ensure_future(host.turn(parsed.ask, queue.put, opened))
    turn.add_done_callback(lambda _: queue.put_nowait(None))
    shown = ""
    try:
        while (piece := await queue.get()) is not None:
            shown += piece if isinstance(piece, str) else ""
            yield piece
        answer = turn.result()
        rest = answer.text[len(shown) :] if answer.text.startswith(shown) else answer.text
        if rest:
            yield rest
        yield answer
    finally:
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)


async def chat_chunks(parsed: chat.Parsed, opening: Opening, pieces: Pieces) -> AsyncIterator[bytes]:
    """A streamed chat completion."""
    model, identity = parsed.ask.name, f"chatcmpl-{parsed.ask.conversation}-{opening.number}"
    try:
        async with aclosing(pieces) as found:
            yield answers.chunk(identity, model, {"role": "assistant", "content": ""})
            async for piece in found:
                if isinstance(piece, str):
                    yield answers.chunk(identity, model, {"content": piece})
                    continue
                yield _ending(identity, model, piece, usage=parsed.usage)
    except PlatformError as error:
        yield b"data: " + orjson.dumps({"error": told(error)}) + b"\n\n" + DONE


def _ending(identity: str, model: str, answer: Answer, *, usage: bool) -> bytes:
    """The last events of a turn that ended well, in one write."""
    calls = [
        answers.chunk(identity, model, {"tool_calls": [{"index": index, **call}]})
        for index, call in enumerate(answers.tool_calls(answer))
    ]
    finish = answers.chunk(identity, model, {}, "tool_calls" if answer.calls else "stop")
    used = answers.chunk(identity, model, usage=answers.usage(answer)) if usage else b""
    return b"".join([*calls, finish, used, DONE])


async def response_events(parsed: chat.Parsed, pieces: Pieces) -> AsyncIterator[bytes]:
    """The events of a streamed response: created, in progress, one message with one text part, completed or failed."""
    identity = f"{parsed.ask.conversation}_s{secrets.token_hex(6)}"
    numbers = iter(range(1_000_000_000))

    def event(kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": next(numbers), **fields}
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(body) + b"\n\n"

    at: dict[str, Any] = {"item_id": f"msg_{identity}", "output_index": 0, "content_index": 0}
    empty = answers.response_body(identity, parsed.ask.name, "in_progress", "")
    item: Mapping[str, Any] = {**answers.response_message(identity, ""), "status": "in_progress", "content": []}
    shown = ""
    try:
        async with aclosing(pieces) as found:
            yield event("response.created", response=empty)
            yield event("response.in_progress", response=empty)
            yield event("response.output_item.added", output_index=0, item=item)
            yield event("response.content_part.added", **at, part=answers.response_part(""))
            async for piece in found:
                if isinstance(piece, str):
                    shown += piece
                    yield event("response.output_text.delta", **at, delta=piece, logprobs=[])
                    continue
                yield event("response.output_text.done", **at, text=shown, logprobs=[])
                yield event("response.content_part.done", **at, part=answers.response_part(shown))
                message = answers.response_message(identity, shown)
                yield event("response.output_item.done", output_index=0, item=message)
                calls = answers.response_calls(piece)
                for index, call in enumerate(calls, 1):
                    yield _called(event, index, call)
                whole = answers.response_body(identity, parsed.ask.name, "completed", shown, answers.usage(piece))
                yield event("response.completed", response={**whole, "output": [*whole["output"], *calls]})
    except PlatformError as error:
        failed = answers.response_body(identity, parsed.ask.name, "failed", "")
        reason = {"code": "server_error", "message": told(error)["message"]}
        yield event("response.failed", response={**failed, "error": reason})


def _called(event: Callable[..., bytes], index: int, call: Mapping[str, Any]) -> bytes:
    """The events of one call that the client is to make."""
    at = {"item_id": call["id"], "output_index": index}
    begun = {**call, "arguments": "", "status": "in_progress"}
    parts = [
        event("response.output_item.added", output_index=index, item=begun),
        event("response.function_call_arguments.delta", **at, delta=call["arguments"]),
        event("response.function_call_arguments.done", **at, name=call["name"], arguments=call["arguments"]),
        event("response.output_item.done", output_index=index, item=call),
    ]
    return b"".join(parts)


def told(error: PlatformError) -> dict[str, Any]:
    """OpenAI's error shape, with `kind`, `place` and `cure` beside it."""
    return shape(error.kind, error.message, error.place, error.cure)


def shape(kind: str, title: str, place: str = "", cure: str = "") -> dict[str, Any]:
    """The same from its parts."""
    message = f"{title} ({cure})" if cure else title
    return {"message": message, "type": kind, "param": place or None, "code": kind, "kind": kind, "cure": cure}
