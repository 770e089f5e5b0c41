"""`/v1/completions`, whole and streamed, in SGLang's shapes.

Always holds: as for chats, streamed pieces join to the whole. Not here: chats (openai).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from hat_serving.engine.engine import Engine, Generation
from hat_serving.engine.errors import CallError
from hat_serving.engine.openai import DONE, error_body, sse, token_usage, usage, wants_usage, weight_metadata
from hat_serving.engine.prompts import bias
from hat_serving.engine.protocol import CompletionBody, answers
from hat_serving.engine.request import LogprobWish, Progress, Request, TokenLogprob
from hat_serving.engine.sampling import SamplingParams
from hat_serving.engine.streams import merged


def open_completions(engine: Engine, body: CompletionBody) -> list[Generation]:
    """Queue the body's generations: n for each prompt, in order. CallError."""
    body.refuse_absent()
    if body.response_format is not None and body.response_format.type != "text":
        raise CallError(
            f"response_format {body.response_format.type} needs constrained decoding, which this engine has not"
        )
    prompts = _prompts(engine, body)
    params = SamplingParams(
        max_new_tokens=body.max_tokens,
        min_new_tokens=body.min_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=body.repetition_penalty,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        ignore_eos=body.ignore_eos,
        skip_special_tokens=body.skip_special_tokens,
        no_stop_trim=body.no_stop_trim,
        logit_bias=bias(body.logit_bias),
        sampling_seed=body.seed,
    )
    made: list[Generation] = []
    for prompt in prompts:
        start = 0 if body.echo else len(prompt)
        wish = LogprobWish(start, body.logprobs) if body.logprobs else None
        made += [engine.open(prompt, params, stream=body.stream, wish=wish) for _ in range(answers(body.n))]
    return made


def _prompts(engine: Engine, body: CompletionBody) -> list[list[int]]:
    prompt = body.prompt
    if not prompt or (isinstance(prompt, list) and not all(one != "" and one != [] for one in prompt)):
        raise CallError("Prompt cannot be empty")
    if body.max_tokens <= 0:
        raise CallError("max_tokens must be positive", type_name="Bad Request")
    if isinstance(prompt, str):
        return [engine.model.text.encode(prompt)]
    numbers = [one for one in prompt if isinstance(one, int)]
    if numbers:
        return [numbers]
    return [
        engine.model.text.encode(one) if isinstance(one, str) else list(one)
        for one in prompt
        if not isinstance(one, int)
    ]


def completion_answer(
    engine: Engine, body: CompletionBody, found: Sequence[tuple[Request, Progress]]
) -> dict[str, Any]:
    """The whole answer."""
    first = found[0]
    return {
        "id": first[0].id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.model,
        "choices": [_choice(engine, body, index, *one) for index, one in enumerate(found)],
        "usage": usage(engine, found, max(body.n, 1)),
        "metadata": weight_metadata(*first),
    }


def _choice(engine: Engine, body: CompletionBody, index: int, request: Request, progress: Progress) -> dict[str, Any]:
    finish = progress.finish or {}
    logprobs = None
    if body.logprobs:
        logprobs = _logprobs(engine, request, 0, progress.completion_tokens, echo=body.echo)
    made = {
        "index": index,
        "text": _echo(engine, body, request) + progress.text,
        "logprobs": logprobs,
        "finish_reason": finish.get("type"),
        "matched_stop": finish.get("matched"),
    }
    if body.return_token_ids:
        made |= {"token_ids": progress.tokens, "prompt_token_ids": request.prompt}
    return made


def _echo(engine: Engine, body: CompletionBody, request: Request) -> str:
    return engine.model.text.decode(request.prompt, skip_special_tokens=True) if body.echo else ""


def _logprobs(engine: Engine, request: Request, start: int, end: int, *, echo: bool) -> dict[str, Any]:
    text, kept = engine.model.text, request.logprobs
    rows: list[tuple[TokenLogprob, list[TokenLogprob] | None]] = []
    if echo and start == 0:
        rows += list(zip(kept.prompt, kept.prompt_top, strict=True))
    rows += list(zip(kept.output[start:end], kept.output_top[start:end], strict=True))
    return {
        "text_offset": [-1] * len(rows),
        "token_logprobs": [logprob for (logprob, _), _ in rows],
        "tokens": [text.token_text(token) for (_, token), _ in rows],
        "top_logprobs": [
            None if top is None else {text.token_text(token): logprob for logprob, token in top} for _, top in rows
        ],
    }


async def completion_events(
    engine: Engine, body: CompletionBody, generations: Sequence[Generation]
) -> AsyncIterator[bytes]:
    """All events of a stream, `[DONE]` included."""
    created = int(time.time())
    total, every = wants_usage(body.stream_options)
    shown = [0] * len(generations)
    noted = [0] * len(generations)
    latest: dict[int, Progress] = {}
    async for index, progress in merged(generations):
        request = generations[index].request
        finish = progress.finish or {}
        if isinstance(finish.get("status_code"), int):
            error = error_body(str(finish.get("message")), "SERVICE_UNAVAILABLE", finish["status_code"])
            yield sse({"error": error}) + DONE
            return
        text = progress.text[shown[index] :]
        if index not in latest:
            text = _echo(engine, body, request) + text
        choice = {"index": index, "text": text, "logprobs": None}
        if body.logprobs and noted[index] < progress.completion_tokens:
            choice["logprobs"] = _logprobs(engine, request, noted[index], progress.completion_tokens, echo=body.echo)
        choice |= {"finish_reason": finish.get("type"), "matched_stop": finish.get("matched")}
        if body.return_token_ids:
            choice["token_ids"] = progress.tokens[noted[index] :]
        shown[index], noted[index], latest[index] = len(progress.text), progress.completion_tokens, progress
        spent = None
        if every:
            counts = (len(request.prompt), progress.completion_tokens, progress.reasoning_tokens, 0)
            spent = {**token_usage(engine, *counts), "prompt_tokens_details": None}
        yield sse({**_head(body, request, created), "choices": [choice], "usage": spent})
    found = [(generation.request, latest[index]) for index, generation in enumerate(generations)]
    closing = b""
    if total:
        summed = usage(engine, found, max(body.n, 1))
        known = {name: value for name, value in summed.items() if value is not None}
        closing = sse({**_head(body, found[-1][0], created), "choices": [], "usage": known})
    yield closing + DONE


def _head(body: CompletionBody, request: Request, created: int) -> dict[str, Any]:
    return {"id": request.id, "object": "text_completion", "created": created, "model": body.model}
