"""Schemathesis asks every described route with what fits and what does not: never a 5xx, never an undescribed crash.

Short here; `python -m bench registry_schemathesis` is the long run.
"""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error

from tests.security.conftest import Site

EXAMPLES = 8
AWAY = ("/api/v1/chat", "/api/v1/experiments", "/api/v1/mlflow", "/api/v1/traces")
"""These ask another service, which is away here: they answer 503 as they should."""


@schemathesis.serializer("application/x-tar", "application/x-ndjson")
def _as_bytes(_context: object, value: object) -> bytes:
    """Bodies that are not JSON are sent as they were made."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def operations(site: Site) -> list[tuple[str, str]]:
    document = site.client.get("/api/v1/openapi.json").json()
    return [(method, path) for path, methods in document["paths"].items() for method in methods]


def fuzz(site: Site, examples: int) -> dict[str, int]:
    """Every operation with `examples` requests by an admin; {"METHOD path": requests}. AssertionError names a bad one."""
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", site.app)
    asked: dict[str, int] = {}
    headers = {**site.cookie("admin"), "host": "127.0.0.1"}
    for found in schema.get_all_operations():
        operation = found.ok()
        name = f"{operation.method.upper()} {operation.path}"

        asked[name] = _ask(operation, headers, examples, away=operation.path.startswith(AWAY))
    return asked


def _ask(operation: object, headers: dict[str, str], examples: int, *, away: bool) -> int:
    from hypothesis import given

    count = 0

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    @given(case=operation.as_strategy())  # type: ignore[attr-defined]  # schemathesis' APIOperation
    def one(case: schemathesis.Case) -> None:
        nonlocal count
        count += 1
        answer = case.call(headers=headers)
        if away and answer.status_code == 503:
            return
        case.validate_response(answer, checks=(not_a_server_error,))

    one()
    return count


def test_no_request_ends_in_a_server_error(site: Site) -> None:
    asked = fuzz(site, EXAMPLES)
    described = {f"{method.upper()} {path}" for method, path in operations(site)}
    assert set(asked) == described
