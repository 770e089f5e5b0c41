"""A strict stand-in for the API of Kubeflow Pipelines, made from the models of `kfp-server-api` and kfp's protobufs.

It takes only fields that the models know, parses the pipeline by the protobuf that the real server uses, checks that
parameters exist and have their types, and moves runs only through states that the API allows. It runs nothing.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kfp_server_api as api
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

RUNS = "/apis/v2beta1/runs"
RECURRING = "/apis/v2beta1/recurringruns"
KINDS = {"STRING": str, "NUMBER_INTEGER": int, "NUMBER_DOUBLE": float, "BOOLEAN": bool, "STRUCT": dict, "LIST": list}


class RefusedError(Exception):
    """What the server answers with a status of 400 and more."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class State:
    """What the server knows."""

    token: str = ""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    recurring: dict[str, dict[str, Any]] = field(default_factory=dict)
    down: int = 0
    """Requests that are still to be answered with 503."""

    def move(self, name: str, state: str, tasks: dict[str, str] | None = None) -> None:
        """Let a run come into a state."""
        run = next(run for run in self.runs.values() if run["display_name"] == name)
        run["state"] = state
        details = [{"display_name": key, "state": value, "task_id": key} for key, value in (tasks or {}).items()]
        run["run_details"] = {"task_details": details}


def strict(model: str, body: dict[str, Any]) -> None:
    """Refuse what the model does not know, down to nested models."""
    cls = getattr(api, model)
    known = {theirs: (ours, cls.openapi_types[ours]) for ours, theirs in cls.attribute_map.items()}
    for key, value in body.items():
        if key not in known:
            raise RefusedError(400, f'unknown field "{key}" in {model}')
        kind = known[key][1]
        if hasattr(api, kind) and isinstance(value, dict):
            strict(kind, value)
        elif kind == "str" and not isinstance(value, str):
            raise RefusedError(400, f"{model}.{key} is no string")


def checked_spec(body: dict[str, Any]) -> pipeline_spec_pb2.PipelineSpec:
    """The pipeline as the server reads it, with the run's parameters held against it."""
    document = body.get("pipeline_spec") or {}
    text = document.get("pipeline_spec", document)
    message = pipeline_spec_pb2.PipelineSpec()
    try:
        json_format.ParseDict(text, message)
        if "platform_spec" in document:
            json_format.ParseDict(document["platform_spec"], pipeline_spec_pb2.PlatformSpec())
    except json_format.ParseError as error:
        raise RefusedError(400, f"invalid pipeline spec: {error}") from None
    inputs = message.root.input_definitions.parameters
    given = (body.get("runtime_config") or {}).get("parameters") or {}
    for key, value in given.items():
        if key not in inputs:
            raise RefusedError(400, f"unknown parameter {key!r}")
        kind = pipeline_spec_pb2.ParameterType.ParameterTypeEnum.Name(inputs[key].parameter_type)
        if not isinstance(value, KINDS[kind]):
            raise RefusedError(400, f"parameter {key!r} is no {kind}")
    for key, one in inputs.items():
        if key not in given and not one.is_optional and not one.HasField("default_value"):
            raise RefusedError(400, f"parameter {key!r} is missing")
    return message


class Handler(BaseHTTPRequestHandler):
    """One request."""

    state: State

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, work: Any) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.body = json.loads(self.rfile.read(length) or b"{}")
        try:
            if self.state.down:
                self.state.down -= 1
                raise RefusedError(503, "upstream connect error")
            if self.state.token and self.headers.get("authorization") != f"Bearer {self.state.token}":
                raise RefusedError(401, "Unauthenticated request")
            status, answer = 200, work()
        except RefusedError as error:
            status, answer = error.status, {"code": 3, "message": str(error), "details": []}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _get(self) -> Any:
        parts = urlsplit(self.path)
        if parts.path == RUNS:
            wanted = json.loads(parse_qs(parts.query)["filter"][0])["predicates"]
            assert wanted[0]["key"] == "name"
            assert set(wanted[0]) == {"operation", "key", "string_value"}
            assert wanted[0]["operation"] == "EQUALS"
            found = [run for run in self.state.runs.values() if run["display_name"] == wanted[0]["string_value"]]
            return {"runs": list(reversed(found))[:1], "total_size": len(found)}
        return self._run(parts.path.removeprefix(f"{RUNS}/"))

    def _post(self) -> Any:
        path = urlsplit(self.path).path
        if path == RUNS:
            strict("V2beta1Run", self.body)
            checked_spec(self.body)
            made = {**self.body, "run_id": str(uuid.uuid4()), "state": "PENDING"}
            self.state.runs[made["run_id"]] = made
            return made
        if path == RECURRING:
            strict("V2beta1RecurringRun", self.body)
            checked_spec(self.body)
            cron = self.body["trigger"]["cron_schedule"]["cron"]
            if len(cron.split()) != 6 or not 1 <= int(self.body["max_concurrency"]) <= 10:
                raise RefusedError(400, "a schedule has six fields, max_concurrency is 1 to 10")
            made = {**self.body, "recurring_run_id": str(uuid.uuid4())}
            self.state.recurring[made["recurring_run_id"]] = made
            return made
        match = re.fullmatch(rf"{RUNS}/([^:]+):(terminate|retry)", path)
        if match is None:
            raise RefusedError(404, f"no route {path}")
        run = self._run(match.group(1))
        if match.group(2) == "terminate":
            if run["state"] not in ("PENDING", "RUNNING"):
                raise RefusedError(400, "the run is over")
            run["state"] = "CANCELING"
        else:
            if run["state"] not in ("FAILED", "CANCELED"):
                raise RefusedError(400, "the run has not failed")
            run["state"] = "RUNNING"
        return {}

    def _run(self, ident: str) -> dict[str, Any]:
        if ident not in self.state.runs:
            raise RefusedError(404, f"run {ident} not found")
        return self.state.runs[ident]

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def serve(token: str = "") -> Iterator[tuple[str, State]]:
    """A server on loopback and what it knows."""
    state = State(token)
    handler = type("Bound", (Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", state
    server.shutdown()
    thread.join(10)
    server.server_close()
