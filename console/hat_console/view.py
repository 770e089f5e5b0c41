"""How a page is made: one body, as HTML from a template or as the JSON twin; filters for time, digests and numbers.

Not here: what stands on a page (pages), texts (messages).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from hat_console.messages import LANGUAGES, catalogue, preferred, translator
from hat_registry.accounts import Actor

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
STEPS = ((60, "second"), (60, "minute"), (24, "hour"), (7, "day"), (52, "week"))


class Views:
    """Renders templates."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._jinja = environment()

    def prepare(self) -> None:
        """Read the messages and compile every template, so that no visitor waits for it; once for a process."""
        for language in LANGUAGES:
            catalogue(language)
        for name in self._jinja.list_templates():
            self._jinja.get_template(name)

    def page(self, request: Request, template: str, body: Any, *, status: int = 200, **extra: Any) -> Response:
        """The HTML of `template`, or `body` itself where JSON is asked for."""
        if wants_json(request):
            return JSONResponse(body, status)
        language = preferred(request.cookies.get("hatstack_language"), request.headers.get("accept-language", ""))
        t = translator(language)
        actor: Actor | None = getattr(request.state, "actor", None)
        fields = {
            "t": t,
            "language": language,
            "actor": actor,
            "may": actor.may if actor else (lambda *_: False),
            "csrf": getattr(request.state, "csrf", ""),
            "path": request.url.path,
            "ago": lambda value: ago(value, self._clock(), t),
            "body": body,
            "request": request,
        }
        content = self._jinja.get_template(template).render(**fields, **extra)
        headers = {
            "Content-Security-Policy": CSP,
            "Cache-Control": "no-store",
            "Vary": "Accept, Accept-Language, Cookie",
        }
        return HTMLResponse(content, status, headers=headers)


@cache
def environment() -> Environment:
    """The templates, compiled once for the whole process."""
    made = Environment(
        loader=FileSystemLoader(str(files(__package__).joinpath("templates"))),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
    )
    made.filters["short"] = lambda digest: str(digest).removeprefix("sha256:")[:12]
    made.filters["number"] = lambda value: f"{value:,}"
    return made


def wants_json(request: Request) -> bool:
    """Whether the JSON twin is asked for."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def ago(value: str | None, now: datetime, t: Callable[..., str]) -> str:
    """`value` (ISO 8601) relative to now, in words."""
    if not value:
        return ""
    amount = int((now - datetime.fromisoformat(value.replace("Z", "+00:00"))).total_seconds())
    if amount < 10:
        return t("time.now")
    for size, unit in STEPS:
        if amount < size or unit == "week":
            return t(f"time.{unit}", count=amount)
        amount //= size
    return value
