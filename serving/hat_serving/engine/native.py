"""SGLang's own `/generate`: bodies to generations, and generations to its answers.

Always holds: `meta_info` has the fields that SGLang 0.5.23 has, of the same types (a contract test holds it to that).
Not here: OpenAI's routes (openai), connections (app).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from hat_serving.engine.engine import Engine, Generation
from hat_serving.engine.errors import CallError
from hat_serving.engine.protocol import GenerateBody, sampling_params
from hat_serving.engine.request import LogprobWish, Progress, Ranked, Request
from hat_serving.engine.sampling import SamplingParams
from hat_serving.engine.streams import merged

_EPOCH = time.time() - time.perf_counter()
"""Adds to a monotonic second to make a wall-clock one."""


@dataclass(frozen=True, slots=True)
class Job:
    """One generation that a body asks for."""

    prompt: list[int]
    params: SamplingParams
    wish: LogprobWish | None
    rid: str | None
    texts: bool
    """Whether log-probabilities come with their tokens' text."""


def jobs(body: GenerateBody, engine: Engine) -> tuple[list[Job], bool]:
    """(generations, whether the answer is a list) of a body. CallError."""
    body.refuse_absent()
    prompts, listed = _prompts(body, engine)
    made: list[Job] = []
    for index, prompt in enumerate(prompts):
        given = body.sampling_params
        params, n = sampling_params(given[index] if isinstance(given, list) and index < len(given) else _one(given))
        rid = _at(body.rid, index, None) if isinstance(body.rid, list) or (len(prompts) == 1 and n == 1) else None
        wish = _wish(body, index, len(prompt), engine)
        made += [Job(prompt, params, wish, rid, body.return_text_in_logprobs) for _ in range(n)]
        listed = listed or n > 1
    return made, listed


def _one(given: Any) -> dict[str, Any] | None:
    return given[0] if isinstance(given, list) and given else None if isinstance(given, list) else given


def _prompts(body: GenerateBody, engine: Engine) -> tuple[list[list[int]], bool]:
    if body.input_ids is not None:
        ids = body.input_ids
        if not ids:
            raise CallError("input_ids cannot be empty.")
        if isinstance(ids[0], list):
            return [list(one) for one in ids if isinstance(one, list)], True
        return [[one for one in ids if isinstance(one, int)]], False
    if body.text is None or body.text == []:
        raise CallError("Either text, input_ids or input_embeds should be provided.")
    if isinstance(body.text, str):
        return [engine.model.text.encode(body.text)], False
    return [engine.model.text.encode(text) for text in body.text], True


def _at(value: Any, index: int, default: Any) -> Any:
    found = value[index] if isinstance(value, list) and index < len(value) else value
    return default if found is None or isinstance(found, list) else found


def _wish(body: GenerateBody, index: int, length: int, engine: Engine) -> LogprobWish | None:
    if not _at(body.return_logprob, index, False):
        return None
    start = int(_at(body.logprob_start_len, index, -1))
    tokens = body.token_ids_logprob or []
    chosen = tokens[index] if tokens and isinstance(tokens[0], list) and index < len(tokens) else tokens
    wanted = tuple(token for token in chosen if isinstance(token, int)) if isinstance(chosen, list) else ()
    vocabulary = engine.model.folder.shape.vocabulary
    if any(not 0 <= token < vocabulary for token in wanted):
        raise CallError(f"token_ids_logprob must be in [0, {vocabulary - 1}].")
    top = int(_at(body.top_logprobs_num, index, 0))
    if not 0 <= top <= vocabulary:
        raise CallError(f"top_logprobs_num must be in [0, {vocabulary}].")
    return LogprobWish(length if start < 0 else min(start, length), top, wanted)


def open_job(engine: Engine, job: Job, *, stream: bool) -> Generation:
    """Queue one generation. CallError."""
    return engine.open(job.prompt, job.params, stream=stream, wish=job.wish, rid=job.rid)


def answer(engine: Engine, job: Job, request: Request, progress: Progress) -> dict[str, Any]:
    """What `/generate` says about one generation."""
    return {
        "text": progress.text,
        "output_ids": progress.tokens,
        "meta_info": meta_info(engine, request, progress, texts=job.texts),
    }


async def stream(
    engine: Engine, made: Sequence[Job], generations: Sequence[Generation], *, listed: bool
) -> AsyncIterator[dict[str, Any]]:
    """Growing answers, each complete in itself, of all generations as they come."""
    async for index, progress in merged(generations):
        found = answer(engine, made[index], generations[index].request, progress)
        yield {**found, "index": index} if listed else found


def meta_info(engine: Engine, request: Request, progress: Progress, *, texts: bool = False) -> dict[str, Any]:
    """SGLang's `meta_info`."""
    finished = progress.finish is not None
    timed = engine.options.enable_metrics
    times = request.times
    info: dict[str, Any] = {
        "id": request.id,
        "finish_reason": progress.finish,
        "prompt_tokens": len(request.prompt),
        "weight_version": request.weight_version,
        "num_retractions": 0,
    }
    if timed:
        info |= {
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": _EPOCH + times.started,
            "prefill_finished_time": _EPOCH + (times.first or times.finished),
            "queue_time": max(times.started - times.arrived, 0.0),
        }
    if request.wish is not None:
        info |= _logprobs(engine, request, progress.completion_tokens, texts=texts)
    info |= {
        "reasoning_tokens": progress.reasoning_tokens,
        "completion_tokens": progress.completion_tokens,
        "cached_tokens": request.cached,
    }
    if finished:
        span = {"version": request.weight_version, "start": 0, "end": progress.completion_tokens}
        info["weight_versions"] = [span]
    info["cached_tokens_details"] = {"device": request.cached, "host": 0} if request.cached else None
    info["dp_rank"] = None
    if finished:
        info["e2e_latency"] = times.finished - times.arrived
        info |= spec_info(request)
        if timed:
            spent = times.finished - times.first
            later = progress.completion_tokens - 1
            info |= {
                "request_received_ts": _EPOCH + times.arrived,
                "first_token_latency": (times.first or times.finished) - times.arrived,
                "api_server_dispatch_finish_ts": _EPOCH + times.arrived,
                "request_finished_ts": _EPOCH + times.finished,
                "response_sent_to_client_ts": time.time(),
            }
            if later >= 0:
                info["decode_throughput"] = later / spent if spent > 0 else 0.0
    return info


def spec_info(request: Request) -> dict[str, Any]:
    """SGLang's statistics of acceptance, and the published report's rate beside them; empty without speculation."""
    stats = request.stats
    if stats is None or not stats.verified:
        return {}
    return {
        "spec_accept_rate": stats.rate,
        "spec_accept_length": len(request.tokens) / stats.verified,
        "spec_num_correct_drafts": stats.correct,
        "spec_num_proposed_drafts": stats.verified * (stats.draft_tokens - 1),
        "spec_verify_ct": stats.verified,
        "spec_correct_drafts_histogram": list(stats.histogram),
        "hatstack_spec_accept_length_over_draft_tokens": stats.length_over_drafts,
    }


def _logprobs(engine: Engine, request: Request, count: int, *, texts: bool) -> dict[str, Any]:
    kept, wish = request.logprobs, request.wish
    assert wish is not None

    def one(logprob: float | None, token: int) -> list[Any]:
        return [logprob, token, engine.model.text.token_text(token) if texts else None]

    def ranked(rows: Sequence[Ranked]) -> list[Any]:
        return [None if row is None else [one(*entry) for entry in row] for row in rows]

    found: dict[str, Any] = {
        "input_token_logprobs": [one(*entry) for entry in kept.prompt],
        "output_token_logprobs": [one(*entry) for entry in kept.output[:count]],
        "output_token_logprobs_length": min(count, len(kept.output)),
    }
    if wish.top:
        found["input_top_logprobs"] = ranked(kept.prompt_top)
        found["output_top_logprobs"] = ranked(kept.output_top[:count])
    if wish.tokens:
        found["input_token_ids_logprobs"] = ranked(kept.prompt_tokens)
        found["output_token_ids_logprobs"] = ranked(kept.output_tokens[:count])
    return found
