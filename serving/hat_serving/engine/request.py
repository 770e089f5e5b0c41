"""One generation from the queue to its last token, and what is told about it.

Always holds: `tokens` is what the client gets as `output_ids`; a finished request has a finish reason in SGLang's shape
and never changes again. Not here: batching (scheduler), HTTP (api).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hat_serving.engine.sampling import Draws, SamplingParams
from hat_serving.engine.speculate import AcceptStats
from hat_serving.engine.text import Decoder

TokenLogprob = tuple[float | None, int]
Ranked = list[TokenLogprob] | None


@dataclass(slots=True)
class LogprobWish:
    """Which log-probabilities a request wants. `start` counts prompt tokens; the prompt's length means none of it."""

    start: int
    top: int = 0
    tokens: tuple[int, ...] = ()


@dataclass(slots=True)
class Logprobs:
    """Log-probabilities of prompt tokens (from `start` on; the first has none) and of generated tokens."""

    prompt: list[TokenLogprob] = field(default_factory=list)
    prompt_top: list[Ranked] = field(default_factory=list)
    prompt_tokens: list[Ranked] = field(default_factory=list)
    output: list[TokenLogprob] = field(default_factory=list)
    output_top: list[Ranked] = field(default_factory=list)
    output_tokens: list[Ranked] = field(default_factory=list)


@dataclass(slots=True)
class Times:
    """Monotonic seconds; 0 where it has not happened."""

    arrived: float = 0.0
    started: float = 0.0
    first: float = 0.0
    finished: float = 0.0


@dataclass(slots=True)
class Progress:
    """A snapshot for the client, complete in itself: all text and tokens so far."""

    text: str
    tokens: list[int]
    finish: dict[str, Any] | None
    completion_tokens: int
    reasoning_tokens: int


class Request:
    """What the scheduler keeps of one generation."""

    __slots__ = (
        "cached",
        "counts",
        "decoder",
        "draws",
        "finish",
        "id",
        "kept_prefix",
        "logprobs",
        "max_tokens",
        "notify",
        "params",
        "prompt",
        "prompt_set",
        "reasoning_open",
        "reasoning_tokens",
        "stats",
        "stream",
        "times",
        "tokens",
        "weight_version",
        "wish",
    )

    def __init__(
        self,
        prompt: list[int],
        params: SamplingParams,
        decoder: Decoder,
        notify: Callable[[Request, Progress], None],
        *,
        max_tokens: int,
        seed: int,
        stream: bool = False,
        wish: LogprobWish | None = None,
        rid: str | None = None,
        reasoning: bool = False,
        draft_tokens: int = 0,
    ) -> None:
        """`max_tokens` is the most that fit; `reasoning` counts tokens up to the end of the thinking block."""
        self.id = rid or uuid.uuid4().hex
        self.prompt = prompt
        self.prompt_set = frozenset(prompt) if params.repetition_penalty != 1.0 else frozenset()
        self.params = params
        self.decoder = decoder
        self.notify = notify
        self.max_tokens = max_tokens
        self.stream = stream
        self.wish = wish
        self.draws = Draws(params.sampling_seed if params.sampling_seed is not None else seed)
        self.tokens: list[int] = []
        self.counts: Counter[int] = Counter()
        self.logprobs = Logprobs()
        self.finish: dict[str, Any] | None = None
        self.cached = 0
        self.kept_prefix = 0
        self.times = Times(arrived=time.perf_counter())
        self.reasoning_open = reasoning
        self.reasoning_tokens = 0
        self.stats = AcceptStats(draft_tokens) if draft_tokens else None
        self.weight_version = ""

    def push(self, token: int, ends: frozenset[int], think_end: int | None) -> None:
        """Take a generated token and see whether it is the last."""
        params = self.params
        self.tokens.append(token)
        if params.shaped:
            self.counts[token] += 1
        if self.reasoning_open:
            self.reasoning_tokens += 1
            self.reasoning_open = token != think_end
        stops = not params.ignore_eos and (token in params.stop_token_ids or token in ends)
        if not stops or params.no_stop_trim:
            self.decoder.push(token)
        # SGLang's order: a stop string beats an end token, and both beat the length.
        self.finish = self._matched()
        if self.finish is None and stops:
            self.finish = {"type": "stop", "matched": token}
        if self.finish is None and len(self.tokens) >= self.max_tokens:
            self.finish = {"type": "length", "length": self.max_tokens}

    def _matched(self) -> dict[str, Any] | None:
        if self.params.stop:
            text = self.decoder.whole()
            for stop in self.params.stop:
                if stop in text:
                    return {"type": "stop", "matched": stop}
        return None

    def progress(self) -> Progress:
        """A snapshot of now."""
        text = self.decoder.text if self.finish is None else self.decoder.whole()
        if self.finish is not None and not self.params.no_stop_trim:
            matched = self.finish.get("matched")
            if isinstance(matched, str) and matched in text:
                text = text[: text.index(matched)]
        return Progress(text, list(self.tokens), self.finish, len(self.tokens), self.reasoning_tokens)
