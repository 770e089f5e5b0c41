"""Running several generations of one request together, and leaving none behind.

Always holds: whoever stops listening, for whatever reason, has aborted what is unfinished. Not here: what is said about
them (native, openai).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from hat_serving.engine.engine import Engine, Generation
from hat_serving.engine.errors import CallError
from hat_serving.engine.request import Progress


@contextmanager
def aborting(engine: Engine, generations: Sequence[Generation]) -> Iterator[None]:
    """Abort what is unfinished when the block is left."""
    try:
        yield
    finally:
        for generation in generations:
            if generation.request.finish is None:
                engine.scheduler.abort(generation.request.id)


async def last(generation: Generation) -> Progress:
    """The final snapshot. CallError where the engine gave up with a status."""
    async for progress in generation.snapshots():
        if progress.finish is not None:
            status = progress.finish.get("status_code")
            if isinstance(status, int):
                raise CallError(str(progress.finish.get("message")), status=status, type_name=str(status))
            return progress
    raise AssertionError("a generation ends with a finish reason")


async def merged(generations: Sequence[Generation]) -> AsyncIterator[tuple[int, Progress]]:
    """(index, snapshot) of all generations as they come, until each has had its last."""
    if len(generations) == 1:
        async for progress in generations[0].snapshots():
            yield 0, progress
        return
    queue: asyncio.Queue[tuple[int, Progress]] = asyncio.Queue()

    async def pump(index: int, generation: Generation) -> None:
        async for progress in generation.snapshots():
            queue.put_nowait((index, progress))

    tasks = [asyncio.ensure_future(pump(index, generation)) for index, generation in enumerate(generations)]
    left = len(tasks)
    try:
        while left:
            index, progress = await queue.get()
            left -= progress.finish is not None
            yield index, progress
    finally:
        for task in tasks:
            task.cancel()
