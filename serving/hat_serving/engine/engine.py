"""The engine as an object: takes prompts as token ids, gives snapshots of their generations. No HTTP.

Always holds: a request that `open` returns is either refused at once (CallError) or ends with a finish reason; closing
a generation aborts it. Snapshots are complete in themselves, so a slow reader skips some and misses nothing.
Not here: routes and JSON (api), chat templates (openai).
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from hat_serving.engine.errors import CallError
from hat_serving.engine.model import LoadedModel, load
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.reasoning import ThinkingRule
from hat_serving.engine.request import LogprobWish, Progress, Request
from hat_serving.engine.sampling import SamplingParams
from hat_serving.engine.scheduler import Scheduler


class Generation:
    """One request as its reader sees it."""

    __slots__ = ("_latest", "_loop", "_waiter", "request")

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self._loop = loop
        self._latest: Progress | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, progress: Progress) -> None:
        """Take a snapshot; on the reader's loop."""
        self._latest = progress
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def snapshots(self) -> AsyncIterator[Progress]:
        """Snapshots until the last, which has a finish reason."""
        while True:
            while self._latest is None:
                self._waiter = self._loop.create_future()
                await self._waiter
            progress, self._latest = self._latest, None
            yield progress
            if progress.finish is not None:
                return


class Engine:
    """A loaded model with its thread. Use as a context manager, or `start` and `stop`."""

    def __init__(self, options: EngineOptions) -> None:
        """Load the model. ModelError."""
        self.options = options
        self._outbox: list[tuple[Generation, Progress]] = []
        self.scheduler = Scheduler(load(options.model_path, options), options, self._deliver)
        self._count = itertools.count(options.random_seed)
        self.thinking = ThinkingRule(self.model.text.template_text)

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the engine's thread."""
        self.scheduler.start()

    def stop(self) -> None:
        """Abort what runs and end the thread."""
        self.scheduler.stop()

    @property
    def model(self) -> LoadedModel:
        """The weights that are served now."""
        return self.scheduler.model

    @property
    def context(self) -> int:
        """The longest context."""
        return self.options.context(self.model.folder.shape.positions)

    def open(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        stream: bool = False,
        wish: LogprobWish | None = None,
        rid: str | None = None,
        reasoning: bool = False,
    ) -> Generation:
        """Queue a generation; on a running event loop. CallError where it is refused."""
        generation: Generation
        outbox = self._outbox

        def notify(_: Request, progress: Progress) -> None:
            outbox.append((generation, progress))

        request = self._request(prompt, params, notify, stream=stream, wish=wish, rid=rid, reasoning=reasoning)
        generation = Generation(request, asyncio.get_running_loop())
        self._submit(request)
        return generation

    def complete(
        self, prompts: Sequence[list[int]], params: SamplingParams, wish: LogprobWish | None = None
    ) -> list[Request]:
        """Generate for all prompts and wait; for use without an event loop. CallError where one is refused."""
        left = threading.Semaphore(0)

        def notify(_: Request, progress: Progress) -> None:
            if progress.finish is not None:
                left.release()

        requests = [self._request(prompt, params, notify, wish=wish) for prompt in prompts]
        for request in requests:
            self._submit(request, queue=False)
        for _ in requests:
            left.acquire()
        return requests

    def load(self, path: Path) -> LoadedModel:
        """Read a model folder for `replace`: may take a while, blocks nothing. ModelError."""
        return load(path, self.options)

    def replace(
        self, model: LoadedModel, version: str | None = None, *, abort: bool = False, keep_pause: bool = False
    ) -> Future[None]:
        """Serve other weights of the same shape. CallError where the shape differs."""
        if model.folder.shape != self.model.folder.shape:
            raise CallError("the new weights have another shape than the served model")
        return self.scheduler.replace(model, version, abort=abort, keep_pause=keep_pause)

    def _request(
        self,
        prompt: list[int],
        params: SamplingParams,
        notify: object,
        *,
        stream: bool = False,
        wish: LogprobWish | None = None,
        rid: str | None = None,
        reasoning: bool = False,
    ) -> Request:
        self._check(prompt, params)
        room = self.context - len(prompt)
        decoder = self.model.text.decoder(skip_special_tokens=params.skip_special_tokens)
        return Request(
            prompt,
            params,
            decoder,
            notify,  # type: ignore[arg-type]  # two shapes of closure, one signature
            max_tokens=room if params.max_new_tokens is None else min(params.max_new_tokens, room),
            seed=next(self._count),
            stream=stream,
            wish=wish,
            rid=rid,
            reasoning=reasoning,
            draft_tokens=self.options.draft_tokens,
        )

    def _check(self, prompt: list[int], params: SamplingParams) -> None:
        vocabulary = self.model.folder.shape.vocabulary
        params.verify(vocabulary)
        if not prompt:
            raise CallError("input_ids cannot be empty.")
        if min(prompt) < 0 or max(prompt) >= vocabulary:
            raise CallError(f"input_ids must be in [0, {vocabulary - 1}].")
        if len(prompt) >= self.context:
            raise CallError(
                f"The input ({len(prompt)} tokens) is longer than the model's context length ({self.context} tokens)."
            )
        wanted = params.max_new_tokens
        if wanted is not None and len(prompt) + wanted > self.context:
            raise CallError(
                f"Requested token count exceeds the model's maximum context length of {self.context} tokens. You "
                f"requested a total of {len(prompt) + wanted} tokens: {len(prompt)} tokens from the input messages and "
                f"{wanted} tokens for the completion. Please reduce the number of tokens in the input messages or the "
                "completion to fit within the limit."
            )

    def _submit(self, request: Request, *, queue: bool = True) -> None:
        if self.scheduler.failed is not None:
            raise CallError(f"the engine failed: {self.scheduler.failed}", status=500, type_name="500")
        if not self.scheduler.submit(request, limited=queue):
            raise CallError("The request queue is full.", status=503, type_name="503")

    def _deliver(self) -> None:
        """Hand a turn's snapshots to their loops: one wake-up each."""
        if not self._outbox:
            return
        sent, self._outbox[:] = list(self._outbox), []
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Generation, Progress]]] = {}
        for generation, progress in sent:
            by_loop.setdefault(generation._loop, []).append((generation, progress))
        for loop, pairs in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_put_all, pairs)


def _put_all(pairs: list[tuple[Generation, Progress]]) -> None:
    for generation, progress in pairs:
        generation.put(progress)
