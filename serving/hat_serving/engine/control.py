"""Information and control routes: what is served, weights from disk, caches, aborts, pauses, parsing on request.

Always holds: a failed weight update leaves the served weights as they were. Not here: generation (api).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from hat_serving.engine import protocol
from hat_serving.engine.engine import Engine
from hat_serving.engine.errors import CallError, ModelError
from hat_serving.engine.http import JsonResponse, read_body
from hat_serving.engine.prompts import chat_prompt
from hat_serving.engine.reasoning import ReasoningSplitter
from hat_serving.engine.toolcalls import parse_calls

SPEAKS = "0.5.23"
"""The SGLang version whose API this is."""


class Control:
    """Handlers over one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._path = str(engine.options.model_path)
        self._began = time.time()
        self._limit = engine.options.max_body_bytes
        self._updating = asyncio.Lock()

    def routes(self) -> list[tuple[str, Any, list[str]]]:
        """(path, handler, methods)."""
        both = ["GET", "POST"]
        return [
            ("/", self.root, ["GET"]),
            ("/model_info", self.model_info, ["GET"]),
            ("/get_model_info", self.model_info, ["GET"]),
            ("/server_info", self.server_info, ["GET"]),
            ("/get_server_info", self.server_info, ["GET"]),
            ("/update_weights_from_disk", self.update_weights, ["POST"]),
            ("/update_weight_version", self.update_version, ["POST"]),
            ("/flush_cache", self.flush, both),
            ("/abort_request", self.abort, ["POST"]),
            ("/pause_generation", self.pause, ["POST"]),
            ("/continue_generation", self.go_on, ["POST"]),
            ("/tokenize", self.tokenize, ["POST"]),
            ("/v1/tokenize", self.tokenize, ["POST"]),
            ("/detokenize", self.detokenize, ["POST"]),
            ("/v1/detokenize", self.detokenize, ["POST"]),
            ("/parse_function_call", self.parse_call, ["POST"]),
            ("/separate_reasoning", self.separate, ["POST"]),
        ]

    async def root(self, request: HttpRequest) -> Response:
        """`GET /`."""
        return JsonResponse("SGLang is running")

    async def model_info(self, request: HttpRequest) -> Response:
        """`GET /model_info`."""
        options, folder = self.engine.options, self.engine.model.folder
        return JsonResponse(
            {
                "model_path": self._path,
                "served_model_name": options.name,
                "tokenizer_path": str(options.model_path),
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self.engine.scheduler.weight_version,
                "load_format": "auto",
                "reasoning_parser": options.reasoning_parser,
                "tool_call_parser": options.tool_call_parser,
                "disaggregation_mode": "null",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": folder.model_type,
                "architectures": list(folder.architectures),
            }
        )

    async def server_info(self, request: HttpRequest) -> Response:
        """`GET /server_info`: the settings, and who really answers."""
        options, counters = self.engine.options, self.engine.scheduler.counters
        settings = options.model_dump(mode="json", exclude={"api_key"})
        state = {
            "last_gen_throughput": counters.throughput,
            "effective_max_running_requests_per_dp": options.max_running_requests,
            "avg_spec_accept_length": counters.accept_length or None,
        }
        return JsonResponse(
            {
                **settings,
                "tokenizer_path": str(options.model_path),
                "served_model_name": options.name,
                "weight_version": options.weight_version,
                "device": "cpu",
                "tp_size": 1,
                "max_total_num_tokens": options.max_running_requests * self.engine.context,
                "startup_time": self._began,
                "internal_states": [state],
                "version": SPEAKS,
                "frontend": "hatstack",
            }
        )

    async def update_weights(self, request: HttpRequest) -> Response:
        """`POST /update_weights_from_disk`: what runs ends on the old weights, what comes after gets the new."""
        body = await read_body(request, protocol.UpdateWeightsBody, self._limit)
        async with self._updating:
            try:
                model = await asyncio.to_thread(self.engine.load, Path(body.model_path))
                swapped = self.engine.replace(
                    model, body.weight_version, abort=body.abort_all_requests, keep_pause=body.keep_pause
                )
                await asyncio.wrap_future(swapped)
            except (ModelError, CallError) as error:
                return JsonResponse(
                    {"success": False, "message": str(error), "num_paused_requests": 0}, status_code=400
                )
            self._path = body.model_path
        message = "Succeeded to update model weights."
        if body.weight_version is not None:
            message += f" Weight version updated to {body.weight_version}."
        return JsonResponse({"success": True, "message": message, "num_paused_requests": 0})

    async def update_version(self, request: HttpRequest) -> Response:
        """`POST /update_weight_version`."""
        body = await read_body(request, protocol.VersionBody, self._limit)
        if body.abort_all_requests:
            self.engine.scheduler.abort(everything=True)
        self.engine.scheduler.weight_version = body.new_version
        message = f"Weight version updated to {body.new_version}"
        return JsonResponse({"success": True, "message": message, "new_version": body.new_version})

    async def flush(self, request: HttpRequest) -> Response:
        """`/flush_cache`; refused while requests are at work, as in SGLang."""
        if await asyncio.wrap_future(self.engine.scheduler.flush()):
            note = "(When there are running or waiting requests, the operation will not be performed.)"
            return Response(f"Cache flushed.\nPlease check backend logs for more details. {note}\n")
        return Response("Flush cache failed.\n", status_code=400)

    async def abort(self, request: HttpRequest) -> Response:
        """`POST /abort_request`."""
        body = await read_body(request, protocol.AbortBody, self._limit)
        self.engine.scheduler.abort(body.rid or "", everything=body.abort_all)
        return Response(status_code=200)

    async def pause(self, request: HttpRequest) -> Response:
        """`POST /pause_generation`."""
        body = await read_body(request, protocol.PauseBody, self._limit, optional=True)
        self.engine.scheduler.pause(body.mode)
        return JsonResponse({"message": "Generation paused successfully.", "status": "ok"})

    async def go_on(self, request: HttpRequest) -> Response:
        """`POST /continue_generation`."""
        self.engine.scheduler.resume()
        return JsonResponse({"message": "Generation continued successfully.", "status": "ok"})

    async def tokenize(self, request: HttpRequest) -> Response:
        """`POST /tokenize`; of a text, texts, or (with `messages`) a conversation."""
        raw = await read_body(request, protocol.Body, self._limit)
        given = raw.model_dump()
        text = self.engine.model.text
        if "messages" in given:
            ids: Any = chat_prompt(self.engine, protocol.ChatBody.model_validate(given)).ids
        elif isinstance(given.get("prompt"), str | list):
            body = protocol.TokenizeBody.model_validate(given)
            special = body.add_special_tokens
            one = isinstance(body.prompt, str)
            texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
            encoded = [text.encode(piece, add_special_tokens=special) for piece in texts]
            ids = encoded[0] if one else encoded
        else:
            raise CallError("a prompt or messages are needed", type_name="Bad Request")
        nested = bool(ids) and isinstance(ids[0], list)
        count = [len(row) for row in ids] if nested else len(ids)
        return JsonResponse({"tokens": ids, "count": count, "max_model_len": self.engine.context})

    async def detokenize(self, request: HttpRequest) -> Response:
        """`POST /detokenize`."""
        body = await read_body(request, protocol.DetokenizeBody, self._limit)
        text = self.engine.model.text
        rows = [row for row in body.tokens if isinstance(row, list)]
        if rows:
            return JsonResponse(
                {"text": [text.decode(row, skip_special_tokens=body.skip_special_tokens) for row in rows]}
            )
        ids = [token for token in body.tokens if isinstance(token, int)]
        return JsonResponse({"text": text.decode(ids, skip_special_tokens=body.skip_special_tokens)})

    async def parse_call(self, request: HttpRequest) -> Response:
        """`POST /parse_function_call`."""
        body = await read_body(request, protocol.ParseCallsBody, self._limit)
        if body.tool_call_parser not in {"qwen", "qwen25"}:
            raise CallError(f"the tool call parser {body.tool_call_parser!r} is not served by this engine")
        names = [tool.function.name for tool in body.tools]
        content, calls = parse_calls(body.text, names) or (body.text, [])
        found = [{"tool_index": names.index(name), "name": name, "parameters": text} for name, text in calls]
        return JsonResponse({"normal_text": content, "calls": found})

    async def separate(self, request: HttpRequest) -> Response:
        """`POST /separate_reasoning`."""
        body = await read_body(request, protocol.SeparateReasoningBody, self._limit)
        if body.reasoning_parser != "qwen3":
            raise CallError(f"the reasoning parser {body.reasoning_parser!r} is not served by this engine")
        reasoning, content = ReasoningSplitter(force=False).whole(body.text)
        return JsonResponse({"reasoning_text": reasoning, "text": content})
