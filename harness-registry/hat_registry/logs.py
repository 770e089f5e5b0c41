"""Logs as JSON lines with the trace id of the request that they belong to (W3C Trace Context).

Always holds: one line is one JSON object; a value never breaks a line; a query string, header, token or body is never
logged. `install` is for programs; libraries only log. Not here: metrics.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

access = logging.getLogger("hatstack.access")
TRACE: ContextVar[str] = ContextVar("hatstack_trace", default="")
"""The trace id of the running request: 32 hex digits, "" outside of one."""
_PARENT = re.compile(rb"^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
SLOW_S = 1.0


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, trace_id, what `extra` held, and an error's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = TRACE.get()
        if trace:
            told["trace_id"] = trace
        told.update({key: value for key, value in vars(record).items() if key not in _OWN})
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def install(stream: TextIO | None = None, level: str = "INFO") -> logging.Handler:
    """Send all logs of this process to `stream` (stderr) as JSON lines, in place of other handlers of the root."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("httpx", "httpx2"):  # they log addresses with their queries
        logging.getLogger(name).setLevel("WARNING")
    return handler


class Traced:
    """Gives each request a trace id (the caller's, where it sends `traceparent`), answers it in `x-trace-id`, and logs.

    Every change and every answer of 500 or slower than a second is logged; all others too when `all_requests`. What the
    application raises is answered by `broken`, inside the trace, unless an answer has begun.
    """

    def __init__(
        self, app: ASGIApp, *, all_requests: bool = False, broken: Callable[[Scope, Exception], ASGIApp] | None = None
    ) -> None:
        self._app = app
        self._all = all_requests
        self._broken = broken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = _given(scope) or secrets.token_hex(16)
        held = TRACE.set(trace)
        began = time.monotonic()
        status = 0

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-trace-id", trace.encode())]
            await send(message)

        try:
            await self._app(scope, receive, told)
        except Exception as error:
            if self._broken is None or status:
                raise
            await self._broken(scope, error)(scope, receive, told)
        finally:
            taken = time.monotonic() - began
            status = status or 500
            if self._all or status >= 500 or taken > SLOW_S or scope["method"] not in {"GET", "HEAD"}:
                fields = {
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "ms": round(1000 * taken, 1),
                }
                access.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra=fields)
            TRACE.reset(held)


def _given(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"traceparent":
            found = _PARENT.match(value)
            return found.group(1).decode() if found and found.group(1) != b"0" * 32 else ""
    return ""
