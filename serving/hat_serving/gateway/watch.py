"""A client that goes away while its request is served: the task that serves it is cancelled.

Always holds: after `stop` nobody is cancelled any more. Not here: what a cancelled task cleans up (host, proxy).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

WATCH_AFTER_S = 0.05
"""A request that takes longer is watched; watching each would double what a short one costs."""


class Watch:
    """Cancels the task that it was made in when the client of the request goes away; `gone` says so."""

    __slots__ = ("_receive", "_serving", "_task", "_timer", "gone")

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._serving = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def stop(self) -> None:
        """The request is over."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._serving is not None:
            self._serving.cancel()
