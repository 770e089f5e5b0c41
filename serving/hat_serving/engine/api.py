"""The routes: SGLang's generation, information and control routes over one engine.

Always holds: every route answers with SGLang's status and error shape; a request that nobody listens to any more is
aborted. Routes of SGLang that are not here answer 404. Not here: the shapes themselves (native, openai, completions).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from hat_serving.engine import completions, native, openai, protocol
from hat_serving.engine.control import Control
from hat_serving.engine.engine import Engine, Generation
from hat_serving.engine.errors import CallError
from hat_serving.engine.http import (
    ClientGoneError,
    EventStream,
    Gate,
    JsonResponse,
    openai_error,
    read_body,
    while_connected,
)
from hat_serving.engine.metrics import Metrics
from hat_serving.engine.prompts import chat_prompt
from hat_serving.engine.request import Progress, Request
from hat_serving.engine.sampling import SamplingParams
from hat_serving.engine.streams import aborting, last

HEALTH_TIMEOUT_S = 20.0
_OPEN_PATHS = frozenset({"/health", "/health_generate", "/ready", "/metrics", "/ping"})


class Api:
    """Handlers over one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.metrics = Metrics(engine) if engine.options.enable_metrics else None
        self.draining = False
        self._limit = engine.options.max_body_bytes

    def app(self) -> Starlette:
        """The ASGI application."""
        control = Control(self.engine)
        pairs: list[tuple[str, Any, list[str]]] = [
            ("/v1/chat/completions", self.chat, ["POST"]),
            ("/v1/completions", self.completion, ["POST"]),
            ("/generate", self.generate, ["POST", "PUT"]),
            ("/health", self.health, ["GET"]),
            ("/health_generate", self.health, ["GET"]),
            ("/ready", self.ready, ["GET"]),
            ("/ping", self.ready, ["GET"]),
            ("/metrics", self.scrape, ["GET"]),
            ("/v1/models", self.models, ["GET"]),
            ("/v1/models/{model:path}", self.one_model, ["GET"]),
            *control.routes(),
        ]
        routes = [Route(path, handler, methods=methods) for path, handler, methods in pairs]
        cors = Middleware(
            CORSMiddleware, allow_origins=["*"], allow_credentials=True, allow_methods=["*"], allow_headers=["*"]
        )
        gate = Middleware(Gate, metrics=self.metrics, api_key=self.engine.options.api_key, open_paths=_OPEN_PATHS)
        handlers: dict[Any, Any] = {
            CallError: _refused,
            HTTPException: _http_error,
            ClientGoneError: lambda *_: Response(status_code=499),
        }
        return Starlette(routes=routes, middleware=[cors, gate], exception_handlers=handlers)

    async def chat(self, request: HttpRequest) -> Response:
        """`POST /v1/chat/completions`."""
        body = await read_body(request, protocol.ChatBody, self._limit)
        prompt = chat_prompt(self.engine, body)
        generations = openai.open_chat(self.engine, body, prompt)
        if body.stream:
            events = openai.ChatStream(self.engine, body, prompt, generations).events()
            return EventStream(self._streamed(generations, events))
        found = await self._all(request, generations)
        return JsonResponse(openai.chat_answer(self.engine, body, prompt, found))

    async def completion(self, request: HttpRequest) -> Response:
        """`POST /v1/completions`."""
        body = await read_body(request, protocol.CompletionBody, self._limit)
        generations = completions.open_completions(self.engine, body)
        if body.stream:
            events = completions.completion_events(self.engine, body, generations)
            return EventStream(self._streamed(generations, events))
        found = await self._all(request, generations)
        return JsonResponse(completions.completion_answer(self.engine, body, found))

    async def generate(self, request: HttpRequest) -> Response:
        """`POST /generate`."""
        body = await read_body(request, protocol.GenerateBody, self._limit)
        try:
            jobs, listed = native.jobs(body, self.engine)
            generations = [native.open_job(self.engine, job, stream=body.stream) for job in jobs]
        except protocol.UnknownFieldError as error:
            return JsonResponse({"error": error.message}, status_code=400)
        except CallError as error:
            return _native_error(error)
        if body.stream:

            async def events() -> AsyncIterator[bytes]:
                async for found in native.stream(self.engine, jobs, generations, listed=listed):
                    yield openai.sse(found)
                yield openai.DONE

            return EventStream(self._streamed(generations, events()))
        try:
            found = await self._all(request, generations)
        except CallError as error:
            return _native_error(error)
        answers = [native.answer(self.engine, job, *one) for job, one in zip(jobs, found, strict=True)]
        return JsonResponse(answers if listed else answers[0])

    async def health(self, request: HttpRequest) -> Response:
        """`GET /health`: one token, unless the engine is at work and its thread has turned lately."""
        scheduler = self.engine.scheduler
        if self.draining or scheduler.failed is not None:
            return Response(status_code=503)
        if scheduler.counters.running and time.perf_counter() - scheduler.counters.beat < HEALTH_TIMEOUT_S:
            return Response(status_code=200)
        try:
            probe = self.engine.open([0], SamplingParams(max_new_tokens=1, temperature=0.0))
            with aborting(self.engine, [probe]):
                await asyncio.wait_for(last(probe), HEALTH_TIMEOUT_S)
        except (TimeoutError, CallError):
            return Response(status_code=503)
        return Response(status_code=200)

    async def ready(self, request: HttpRequest) -> Response:
        """`GET /ready`."""
        return Response(status_code=503 if self.draining or self.engine.scheduler.failed is not None else 200)

    async def scrape(self, request: HttpRequest) -> Response:
        """`GET /metrics`."""
        if self.metrics is None:
            raise HTTPException(404)
        return Response(self.metrics.render(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def models(self, request: HttpRequest) -> Response:
        """`GET /v1/models`."""
        return JsonResponse({"object": "list", "data": [self._card()]})

    async def one_model(self, request: HttpRequest) -> Response:
        """`GET /v1/models/NAME`."""
        name = request.path_params["model"]
        if name != self.engine.options.name:
            error = {
                "message": f"The model '{name}' does not exist",
                "type": "invalid_request_error",
                "param": "model",
                "code": "model_not_found",
            }
            return JsonResponse({"error": error}, status_code=404)
        return JsonResponse(self._card())

    def _card(self) -> dict[str, Any]:
        name = self.engine.options.name
        return {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self.engine.context,
        }

    async def _all(self, request: HttpRequest, generations: Sequence[Generation]) -> list[tuple[Request, Progress]]:
        """The final snapshots of all generations; ClientGoneError aborts them."""

        async def wait() -> list[Progress]:
            return [await last(generation) for generation in generations]

        with aborting(self.engine, generations):
            found = await while_connected(request, wait())
        self._observe(generations, found)
        return [(generation.request, one) for generation, one in zip(generations, found, strict=True)]

    async def _streamed(self, generations: Sequence[Generation], events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with ExitStack() as stack:
            stack.callback(self._observe_ended, generations)
            stack.enter_context(aborting(self.engine, generations))
            async for event in events:
                yield event

    def _observe_ended(self, generations: Sequence[Generation]) -> None:
        self._observe(generations, [generation.request.progress() for generation in generations])

    def _observe(self, generations: Sequence[Generation], found: Sequence[Progress]) -> None:
        if self.metrics is not None:
            for generation, progress in zip(generations, found, strict=True):
                if progress.finish is not None:
                    self.metrics.observe(generation.request, progress)


def _native_error(error: CallError) -> Response:
    return JsonResponse({"error": {"message": error.message}}, status_code=error.status)


async def _refused(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, CallError)
    return openai_error(error)


async def _http_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JsonResponse({"detail": error.detail}, status_code=error.status_code)
