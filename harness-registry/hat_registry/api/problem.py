"""Errors over HTTP: problem+json (RFC 9457) with a closed `kind`, never a traceback, never a secret.

invalid_input 422 · not found 404 · too many requests 429 · conflict 409 · forbidden 403 · not signed in 401 · check_failed 409
unavailable 503 · exhausted 507 · internal 500
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from hat_harness.errors import LoadError, PlatformError
from hat_registry.errors import AuthenticationError, LimitedError, NotFoundError
from hat_registry.logs import TRACE

log = logging.getLogger("hatstack.registry")
STATUS = {
    "invalid_input": 422,
    "usage": 400,
    "conflict": 409,
    "forbidden": 403,
    "check_failed": 409,
    "unavailable": 503,
    "exhausted": 507,
    "internal": 500,
}
KINDS_OF_STATUS = {404: "invalid_input", 405: "usage", 413: "invalid_input", 415: "invalid_input", 429: "exhausted"}


def response(status: int, kind: str, title: str, **more: Any) -> JSONResponse:
    """One problem document."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status in {429, 503}:
        headers["Retry-After"] = str(more.pop("retry_after_s", 1))
    body = {
        "type": "about:blank",
        "status": status,
        "kind": kind,
        "title": title,
        **{k: v for k, v in more.items() if v},
    }
    return JSONResponse(body, status, headers=headers, media_type="application/problem+json")


def install(app: FastAPI) -> None:
    """Register the handlers."""

    @app.exception_handler(PlatformError)
    async def _platform(_request: Request, error: PlatformError) -> JSONResponse:
        return of(error)

    @app.exception_handler(RequestValidationError)
    async def _request(_request: Request, error: RequestValidationError) -> JSONResponse:
        return response(422, "invalid_input", "the request is not valid", problems=_told(error.errors()))

    @app.exception_handler(ValidationError)
    async def _model(_request: Request, error: ValidationError) -> JSONResponse:
        return response(422, "invalid_input", "the request is not valid", problems=_told(error.errors()))

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> JSONResponse:
        return response(error.status_code, KINDS_OF_STATUS.get(error.status_code, "usage"), str(error.detail))


def of(error: PlatformError) -> JSONResponse:
    """The problem document of an error of ours."""
    if isinstance(error, LimitedError):
        return response(429, error.kind, error.message, cure=error.cure, retry_after_s=error.retry_after_s)
    status = STATUS[error.kind]
    if isinstance(error, NotFoundError):
        status = 404
    elif isinstance(error, AuthenticationError):
        status = 401
    problems = [str(one) for one in error.problems] if isinstance(error, LoadError) else None
    return response(status, error.kind, error.message, place=error.place, cure=error.cure, problems=problems)


def broken(scope: Scope, error: Exception) -> JSONResponse:
    """The answer to an error that nobody foresaw; the log has it with the trace id that the answer tells."""
    identity = TRACE.get()
    log.error("unexpected error in %s %s", scope["method"], scope["path"], exc_info=error)
    return response(500, "internal", "something went wrong on the server", place=identity, cure="look into its log")


def _told(errors: Any) -> list[str]:
    return [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"[:300] for one in errors][:20]
