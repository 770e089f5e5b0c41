"""Continuous batching: one thread that admits, prefills, decodes and finishes requests, step by step.

Always holds: requests join and leave between any two steps; a finished, aborted or disconnected request frees its row
in the step that notices; prompts are computed in chunks so that running requests go on meanwhile; a request whose
prompt begins like one that is being computed waits for it, so that a shared beginning is computed once. Running rows
are the bank's first rows, without gaps, so that a step reads them in place; prompts are computed in the rows behind.
Not here: what a step computes for its rows (steps), HTTP (api).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from hat_serving.engine.model import LoadedModel
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.prefix import PrefixCache, common_beginning
from hat_serving.engine.request import Request
from hat_serving.engine.rows import RowBook, make_bank
from hat_serving.engine.speculate import AcceptStats
from hat_serving.engine.steps import Filling, Row, Stepper

CROWD = 8
"""From this many running rows on, streams are told of every second step: a chunk costs as much as a token does."""

SHARE_FROM = 16
"""Two prompts that share this many uncached tokens are not computed at the same time."""


@dataclass(slots=True)
class Counters:
    """Totals since the start, and the state of now; written by the engine's thread, read by any."""

    running: int = 0
    waiting: int = 0
    row_tokens: int = 0
    """Tokens in rows at work."""
    kept_tokens: int = 0
    """Tokens kept for prompts to come."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    beat: float = 0.0
    """Monotonic time of the last turn of the loop."""
    accept_length: float = 0.0
    """Mean accepted length of the last second that had verifications."""
    accept_rate: float = 0.0
    """SGLang's rate over the same second."""
    throughput: float = 0.0
    """Generated tokens a second over the last full second."""
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=100))
    """(prompt, cached) tokens of the last admissions."""


@dataclass(frozen=True, slots=True)
class _Swap:
    """New weights that wait for what is at work to end."""

    model: LoadedModel
    version: str | None
    keep_pause: bool
    done: Future[None]


class Scheduler:
    """Owns the model's rows. `submit`, `abort` and the controls may be called from any thread."""

    def __init__(self, model: LoadedModel, options: EngineOptions, after_turn: Callable[[], None]) -> None:
        """`after_turn` is called by the engine's thread when a turn has told its requests' progress."""
        self.options = options
        self._after_turn = after_turn
        self.model = model
        self.counters = Counters()
        self.weight_version = options.weight_version
        self.failed: BaseException | None = None
        self._bank = make_bank(model, options)
        self._rows = RowBook(self._bank, drafting=model.draft is not None)
        self._prefix = PrefixCache(0 if options.disable_radix_cache else options.cache_tokens)
        self._stepper = Stepper(model, self._bank, options)
        self._waiting: deque[Request] = deque()
        self._filling: list[Filling] = []
        self._running: list[Row] = []
        self._arrivals: deque[Request] = deque()
        self._inbox: deque[Callable[[], None]] = deque()
        self._swap: _Swap | None = None
        self._wake = threading.Event()
        self._paused = self._stopping = False
        self._shared: int | None = None
        """First tokens that all running prompts have in common; None: to be counted."""
        self._aborted: set[str] = set()
        self._window = (time.perf_counter(), 0)
        self._thread = threading.Thread(target=self._loop, name="hat-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what runs is aborted."""
        self._post(lambda: setattr(self, "_stopping", True))
        self._thread.join(timeout=30)

    def submit(self, request: Request, *, limited: bool = True) -> bool:
        """Queue a request; False where the queue is full."""
        most = self.options.max_queued_requests if limited else None
        room = self.options.max_running_requests - self.counters.running
        if most is not None and len(self._arrivals) + len(self._waiting) >= most + max(room, 0):
            return False
        self._arrivals.append(request)
        self._wake.set()
        return True

    def abort(self, rid: str = "", *, everything: bool = False) -> None:
        """Abort the requests whose id begins with `rid`, as SGLang does, or all."""
        self._post(lambda: self._mark(rid, everything))

    def pause(self, mode: str) -> None:
        """Hold all generation until `resume`; mode `abort` ends what runs."""
        if mode == "abort":
            self.abort(everything=True)
        self._post(lambda: setattr(self, "_paused", True))

    def resume(self) -> None:
        """Go on."""
        self._post(lambda: setattr(self, "_paused", False))

    def flush(self) -> Future[bool]:
        """Forget cached prefixes; False where requests are at work."""
        done: Future[bool] = Future()

        def run() -> None:
            idle = not (self._running or self._filling or self._waiting)
            if idle:
                self._forget()
            done.set_result(idle)

        self._post(run)
        return done

    def replace(self, model: LoadedModel, version: str | None, *, abort: bool, keep_pause: bool) -> Future[None]:
        """Serve `model` once what is at work has ended; what waits is served by the new weights."""
        done: Future[None] = Future()
        if abort:
            self.abort(everything=True)
        self._post(lambda: setattr(self, "_swap", _Swap(model, version, keep_pause, done)))
        return done

    def _forget(self) -> None:
        """Forget everything that was computed."""
        self._prefix.clear()
        self._rows.forget()

    def _post(self, work: Callable[[], None]) -> None:
        self._inbox.append(work)
        self._wake.set()

    def _at_work(self) -> list[Request]:
        waiting = [*self._arrivals, *self._waiting]
        return [*waiting, *(part.request for part in self._filling), *(row.request for row in self._running)]

    def _mark(self, rid: str, everything: bool) -> None:
        at_work = self._at_work()
        self._aborted |= {request.id for request in at_work if everything or (rid and request.id.startswith(rid))}

    @torch.inference_mode()
    def _loop(self) -> None:
        if self.options.threads:
            torch.set_num_threads(self.options.threads)
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:  # whoever waits must be told, whatever it was
            self.failed = error
            self._end_all(f"the engine failed: {type(error).__name__}: {error}", status=500)
            raise
        self._end_all("the engine stops")

    def _turn(self) -> None:
        """One turn of the loop: commands, admissions, one chunk of prompts, one step of what runs."""
        for _ in range(len(self._inbox)):
            self._inbox.popleft()()
        while self._arrivals:
            self._waiting.append(self._arrivals.popleft())
        if self._aborted:
            self._drop_aborted()
        if self._swap is not None and not (self._running or self._filling):
            self._exchange(self._swap)
        worked = False
        if not self._paused:
            self._admit()
            worked = self._fill() | self._step()
        self._count()
        self._after_turn()
        if not worked and not self._stopping:
            self._wake.wait(1.0)
            self._wake.clear()

    def _exchange(self, swap: _Swap) -> None:
        self._swap = None
        self.model = swap.model
        self._stepper = Stepper(swap.model, self._bank, self.options)
        self._forget()
        self.weight_version = swap.version or self.weight_version
        self._paused = self._paused and swap.keep_pause
        swap.done.set_result(None)

    def _count(self) -> None:
        counters = self.counters
        counters.beat = now = time.perf_counter()
        counters.running = len(self._running) + len(self._filling)
        counters.waiting = len(self._waiting) + len(self._arrivals)
        counters.row_tokens = sum(row.length for row in self._running) + sum(part.done for part in self._filling)
        counters.kept_tokens = self._prefix.tokens
        since, tokens = self._window
        if now - since >= 1.0:
            counters.throughput = (counters.generated_tokens - tokens) / (now - since)
            self._window = (now, counters.generated_tokens)
            stats = self._stepper.stats
            if stats.verified:
                counters.accept_length, counters.accept_rate = stats.length, stats.rate
                self._stepper.stats = AcceptStats(self.options.draft_tokens)

    def _admit(self) -> None:
        room = self.options.max_running_requests - len(self._running) - len(self._filling)
        skipped: list[Request] = []
        room = min(room, self.options.filling_rows - len(self._filling))
        while self._waiting and room > 0 and self._swap is None:
            request = self._waiting.popleft()
            if request.max_tokens <= 0:
                request.finish = {"type": "length", "length": 0}
                request.weight_version = self.weight_version
                self._tell(request)
                continue
            if self._shares_with_filling(request):
                skipped.append(request)
                continue
            self._filling.append(self._begin(request))
            room -= 1
        self._waiting.extendleft(reversed(skipped))

    def _begin(self, request: Request) -> Filling:
        row = self._rows.acquire()
        limit = len(request.prompt) - 1
        if request.wish is not None:
            limit = min(limit, request.wish.start)
        found, segments = self._prefix.match(request.prompt, limit)
        if self.model.draft is not None and found:
            found -= 1  # the head's last kept place depends on a token that may differ
            segments = [*segments[:-1], segments[-1][:, :, :-1]]
        self._rows.restore(row, request.prompt, found, segments)
        request.cached = request.kept_prefix = found
        request.times.started = time.perf_counter()
        request.weight_version = self.weight_version
        self.counters.prompt_tokens += len(request.prompt)
        self.counters.cached_tokens += found
        self.counters.recent.append((len(request.prompt), found))
        return Filling(request, row, found)

    def _shares_with_filling(self, request: Request) -> bool:
        """Whether waiting a moment would let the request find much of its prompt computed."""
        if self.options.disable_radix_cache:
            return False
        for part in self._filling:
            other = part.request.prompt
            probe = part.request.cached + SHARE_FROM
            if len(request.prompt) > probe <= len(other) and request.prompt[:probe] == other[:probe]:
                return True
        return False

    def _fill(self) -> bool:
        if not self._filling:
            return False
        for part in self._stepper.fill(self._filling):
            self._filling.remove(part)
            request = part.request
            # The head's place of the last prompt token depends on what comes next, so it is never kept.
            known = len(request.prompt)
            self._keep(request, part.row, request.prompt, known)
            target = len(self._running)
            self._rows.settle(part, target, self._filling)
            self.counters.generated_tokens += len(request.tokens)
            self._running.append(Row(request, part.hidden))
            self._shared = None
            if request.finish is not None:
                self._leave(target)
            elif request.stream:
                self._tell(request)
        return True

    def _step(self) -> bool:
        if not self._running:
            return False
        before = [len(row.request.tokens) for row in self._running]
        if self._shared is None:
            self._shared = common_beginning([row.request.prompt for row in self._running])
        self._stepper.step(self._running, self._shared)
        self.counters.steps += 1
        self.counters.generated_tokens += sum(
            len(row.request.tokens) - old for row, old in zip(self._running, before, strict=True)
        )
        told = self.counters.steps % (1 if len(self._running) < CROWD else 2) == 0
        for index in range(len(self._running) - 1, -1, -1):
            request = self._running[index].request
            if request.finish is not None:
                self._leave(index)
            elif request.stream and told:
                self._tell(request)
        return True

    def _leave(self, index: int) -> None:
        """Free a running row: keep its prefix, close the gap with the last row, tell the client."""
        row = self._running[index]
        request = row.request
        context = request.prompt + request.tokens
        self._keep(request, index, context, row.known(self.model.draft is not None))
        last = self._running.pop()
        self._shared = None
        freed = len(self._running)
        holds = (last.request.prompt + last.request.tokens)[: last.known(self.model.draft is not None)]
        if last is not row:
            self._bank.move(freed, index, len(last.request.prompt) + len(last.request.tokens))
            self._running[index] = last
        self._rows.release(freed, holds)
        self._tell(request)

    def _keep(self, request: Request, row: int, context: list[int], known: int) -> None:
        if self._prefix.budget and known > request.kept_prefix:
            self._prefix.insert(context[:known], request.kept_prefix, self._bank.take(row, request.kept_prefix, known))
            request.kept_prefix = known

    def _tell(self, request: Request) -> None:
        now = time.perf_counter()
        if not request.times.first and request.tokens:
            request.times.first = now
        if request.finish is not None:
            request.times.finished = now
        request.notify(request, request.progress())

    def _drop_aborted(self) -> None:
        gone = self._aborted
        self._aborted = set()
        finish = {"type": "abort", "message": "Abort in waiting queue"}
        for request in [request for request in self._waiting if request.id in gone]:
            self._waiting.remove(request)
            request.finish = dict(finish)
            self._tell(request)
        for part in [part for part in self._filling if part.request.id in gone]:
            self._filling.remove(part)
            self._rows.release(part.row, [])
            part.request.finish = {"type": "abort", "message": "Aborted"}
            self._tell(part.request)
        for index in range(len(self._running) - 1, -1, -1):
            request = self._running[index].request
            if request.id in gone:
                request.finish = {"type": "abort", "message": "Aborted"}
                self._leave(index)

    def _end_all(self, message: str, status: int = 503) -> None:
        for request in self._at_work():
            request.finish = {"type": "abort", "message": message, "status_code": status}
            self._tell(request)
        self._after_turn()
