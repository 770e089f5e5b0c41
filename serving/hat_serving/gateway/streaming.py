"""Server-sent events of a streamed turn, as chat completion chunks and as the events of `/v1/responses`.

Always holds: what was shown is never taken back: where the final reply does not continue it, it is sent whole; a turn that fails
ends the stream with one error in OpenAI's shape; a client that goes away cancels the turn, which stops the engine; a client
that reads slowly holds up no turn. What is there at once leaves in one write: a write costs as much as parsing a chunk.
Not here: turns (host), bodies that are not streamed (chat).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hat_harness.errors import PlatformError
from hat_serving.gateway import answers, chat
from hat_serving.gateway.host import Host
from hat_serving.gateway.turns import Answer
from hat_serving.gateway.watch import Watch


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known when a turn begins: its arm, and its number in the conversation."""

    arm: str
    number: int


DONE = b"data: [DONE]\n\n"


class Streamed:
    """One turn under way: texts as they may be shown, then its answer. `stop` gives it up."""

    def __init__(self, host: Host, parsed: chat.Parsed) -> None:
        self.conversation = parsed.ask.conversation
        self.opening = Opening("", 0)
        """What `begin` waited for."""
        self._opened = False
        self._texts: list[str] = []
        self._shown: list[str] = []
        self._waiter: asyncio.Future[None] | None = None
        self._turn = asyncio.ensure_future(host.turn(parsed.ask, self._on_text, self._on_open))
        self._turn.add_done_callback(self._wake)

    async def begun(self) -> None:
        """Wait for the opening. Raises what keeps the turn from beginning."""
        await self._wait(lambda: self._opened)
        if not self._opened:
            answer = self._turn.result()  # a muted room: there is no turn
            self.opening = Opening(answer.arm, answer.turn.index)

    async def more(self) -> tuple[list[str], Answer | None]:
        """The texts since the last call, and the answer once the turn is over. Raises what the turn raises."""
        await self._wait(lambda: bool(self._texts))
        texts, self._texts = self._texts, []
        self._shown += texts
        if not self._turn.done() or (texts and self._turn.exception() is not None):
            return texts, None
        answer, shown = self._turn.result(), "".join(self._shown)
        rest = answer.text[len(shown) :] if answer.text.startswith(shown) else answer.text
        return [*texts, rest] if rest else texts, answer

    async def stop(self) -> None:
        """The turn is given up if it is not over."""
        if not self._turn.done():
            self._turn.cancel()
        await asyncio.wait({self._turn})
        if not self._turn.cancelled():
            self._turn.exception()  # somebody has looked at it

    async def _wait(self, there: Callable[[], bool]) -> None:
        while not there() and not self._turn.done():
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _on_open(self, arm: str, number: int) -> None:
        self.opening, self._opened = Opening(arm, number), True
        self._wake()

    def _on_text(self, text: str) -> None:
        self._texts.append(text)
        self._wake()

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def begin(host: Host, parsed: chat.Parsed) -> Streamed:
    """A turn that has begun. Raises what keeps it from beginning, so that it can be a status."""
    turn = Streamed(host, parsed)
    try:
        await turn.begun()
    except BaseException:
        await turn.stop()
        raise
    return turn


class Events(Protocol):
    """How a streamed turn is written."""

    def begin(self) -> bytes:
        """What comes before the first text."""

    def text(self, piece: str) -> bytes:
        """One piece of shown text."""

    def end(self, answer: Answer) -> bytes:
        """What comes after the last."""

    def fail(self, error: PlatformError) -> bytes:
        """The end of a turn that failed."""


class EventStream(Response):
    """The answer of a streamed turn."""

    media_type = "text/event-stream"

    def __init__(self, turn: Streamed, events: Events, headers: Mapping[str, str]) -> None:
        told = {"x-hatstack-arm": turn.opening.arm, "x-hatstack-conversation": turn.conversation}
        self.status_code, self.background = 200, None
        self.init_headers({**headers, **told, "X-Accel-Buffering": "no"})  # without a body it has no length
        self._turn, self._events = turn, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a client that goes away ends the turn."""
        watch = Watch(receive)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send(_body(self._events.begin(), more=True))
            await self._send_turn(send)
        except PlatformError as error:
            await send(_body(self._events.fail(error)))
        except asyncio.CancelledError:
            if not watch.gone:
                raise
        finally:
            watch.stop()
            await self._turn.stop()

    async def _send_turn(self, send: Send) -> None:
        events, answer = self._events, None
        while answer is None:
            texts, answer = await self._turn.more()
            parts = [events.text(piece) for piece in texts]
            if answer is not None:
                parts.append(events.end(answer))
            await send(_body(b"".join(parts), more=answer is None))


def _body(content: bytes, *, more: bool = False) -> MutableMapping[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


class ChatEvents:
    """A streamed chat completion."""

    def __init__(self, parsed: chat.Parsed, opening: Opening) -> None:
        self._named = (f"chatcmpl-{parsed.ask.conversation}-{opening.number}", parsed.ask.name, int(time.time()))
        self._usage = parsed.usage
        # All chunks of text are alike but for the text.
        self._before, _, self._after = answers.chunk(*self._named, {"content": ""}).rpartition(b'""')

    def begin(self) -> bytes:
        """The role."""
        return answers.chunk(*self._named, {"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """One chunk."""
        return self._before + orjson.dumps(piece) + self._after

    def end(self, answer: Answer) -> bytes:
        """Calls, the finish reason, the usage where it was asked for."""
        calls = [
            answers.chunk(*self._named, {"tool_calls": [{"index": index, **call}]})
            for index, call in enumerate(answers.tool_calls(answer))
        ]
        finish = answers.chunk(*self._named, {}, "tool_calls" if answer.calls else "stop")
        used = answers.chunk(*self._named, usage=answers.usage(answer)) if self._usage else b""
        return b"".join([*calls, finish, used, DONE])

    def fail(self, error: PlatformError) -> bytes:
        """The error."""
        return b"data: " + orjson.dumps({"error": told(error)}) + b"\n\n" + DONE


class ResponseEvents:
    """A streamed response: created, in progress, one message with one text part, completed or failed."""

    def __init__(self, parsed: chat.Parsed) -> None:
        self._model = parsed.ask.name
        self._identity = identity = f"{parsed.ask.conversation}_s{secrets.token_hex(6)}"
        self._at: dict[str, Any] = {"item_id": f"msg_{identity}", "output_index": 0, "content_index": 0}
        self._number = 0
        self._shown: list[str] = []

    def begin(self) -> bytes:
        """A response in progress with an empty message."""
        empty = answers.response_body(self._identity, self._model, "in_progress", "")
        item = {**answers.response_message(self._identity, ""), "status": "in_progress", "content": []}
        event = self._event
        return b"".join(
            [
                event("response.created", response=empty),
                event("response.in_progress", response=empty),
                event("response.output_item.added", output_index=0, item=item),
                event("response.content_part.added", **self._at, part=answers.response_part("")),
            ]
        )

    def text(self, piece: str) -> bytes:
        """One delta."""
        self._shown.append(piece)
        return self._event("response.output_text.delta", **self._at, delta=piece, logprobs=[])

    def end(self, answer: Answer) -> bytes:
        """The message, the calls, the whole response."""
        event, shown = self._event, "".join(self._shown)
        parts = [
            event("response.output_text.done", **self._at, text=shown, logprobs=[]),
            event("response.content_part.done", **self._at, part=answers.response_part(shown)),
            event("response.output_item.done", output_index=0, item=answers.response_message(self._identity, shown)),
        ]
        calls = answers.response_calls(answer)
        parts += [_called(event, index, call) for index, call in enumerate(calls, 1)]
        whole = answers.response_body(self._identity, self._model, "completed", shown, answers.usage(answer))
        return b"".join([*parts, event("response.completed", response={**whole, "output": [*whole["output"], *calls]})])

    def fail(self, error: PlatformError) -> bytes:
        """The error."""
        failed = answers.response_body(self._identity, self._model, "failed", "")
        reason = {"code": "server_error", "message": told(error)["message"]}
        return self._event("response.failed", response={**failed, "error": reason})

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(body) + b"\n\n"


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
