"""Makes real MLflow traces: `python trace_maker.py FOLDER`. An agent under `mlflow.openai.autolog` asks a small local server.

Writes `agent.json`, `stream.json`, `broken.json`, `two.json` (`Trace.to_json`) and `table.jsonl` (`search_traces`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "description": "Look up an order.",
        "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]},
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"order": 7}'}}


class Chat(BaseHTTPRequestHandler):
    """Calls a tool, then answers; breaks when it is told to."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""

    def do_POST(self) -> None:
        """One chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = body["messages"][-1]
        message: dict[str, Any] = {"role": "assistant", "content": f"on its way, mail me at a@b.example, {len(last)}"}
        finish = "stop"
        if last["role"] == "user" and body.get("tools"):
            message, finish = {"role": "assistant", "content": None, "tool_calls": [CALL]}, "tool_calls"
        if "break" in str(last["content"]):
            self._send(400, {"error": {"message": "no"}})
        elif body.get("stream"):
            half = len(message["content"]) // 2
            parts = [
                {"role": "assistant", "content": message["content"][:half]},
                {"content": message["content"][half:]},
            ]
            self._stream([*((part, None) for part in parts), ({}, finish)])
        else:
            choice = {"index": 0, "message": message, "finish_reason": finish}
            usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
            head = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
            self._send(200, {**head, "choices": [choice], "usage": usage})

    def _send(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, parts: list[tuple[dict[str, Any], str | None]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for delta, finish in parts:
            chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def main(folder: Path) -> None:
    """All traces."""
    os.environ["OPENAI_API_KEY"] = "none"
    import mlflow
    import openai

    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_experiment("traces")
    mlflow.openai.autolog()
    chat = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", max_retries=0).chat.completions

    def save(name: str) -> None:
        mlflow.flush_trace_async_logging()
        found = mlflow.get_trace(mlflow.get_last_active_trace_id())
        (folder / f"{name}.json").write_text(found.to_json(), encoding="utf-8")

    @mlflow.trace(span_type="TOOL")
    def get_order(order: int) -> str:
        return f"{order} shipped"

    @mlflow.trace(span_type="AGENT")
    def agent(question: str) -> str:
        mlflow.update_current_trace(metadata={"mlflow.trace.user": "customer-7", "mlflow.trace.session": "session-1"})
        messages: list[Any] = [{"role": "system", "content": "be kind"}, {"role": "user", "content": question}]
        asked = chat.create(model="m", messages=messages, tools=[TOOL]).choices[0].message
        messages.append(asked.model_dump(exclude_none=True))
        result = get_order(**json.loads(asked.tool_calls[0].function.arguments))
        messages.append({"role": "tool", "tool_call_id": "c1", "content": result})
        return str(chat.create(model="m", messages=messages, tools=[TOOL]).choices[0].message.content)

    @mlflow.trace
    def two() -> None:
        for question in ("first", "second"):
            chat.create(model="m", messages=[{"role": "user", "content": question}])

    agent("where is order 7, says customer-7")
    save("agent")
    for _ in chat.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True):
        pass
    save("stream")
    two()
    save("two")
    table = mlflow.search_traces()
    table.to_json(folder / "table.jsonl", orient="records", lines=True)
    try:
        chat.create(model="m", messages=[{"role": "user", "content": "break"}])
    except openai.APIStatusError:
        save("broken")
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
