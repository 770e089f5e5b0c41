"""What one turn of the engine computes: a chunk of prompts, or one step of all running rows, speculative or plain.

Always holds: a step puts out at least one token for every row; greedy rows get the same tokens with and without
speculation. Shapes: B rows, K drafted tokens, V vocabulary. Not here: who runs when (scheduler).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from hat_serving.engine.bank import Bank
from hat_serving.engine.model import LoadedModel
from hat_serving.engine.network import Segment
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.request import Ranked, Request, TokenLogprob
from hat_serving.engine.sampling import cut, invert, shape_logits, temperatures
from hat_serving.engine.speculate import AcceptStats, accept_greedy, accept_sampled


@dataclass(slots=True)
class Filling:
    """A prompt under way in bank row `row`; its first `done` tokens are computed."""

    request: Request
    row: int
    done: int
    hidden: torch.Tensor | None = None
    """State of the last prompt token, [1, hidden], once it is computed."""


@dataclass(slots=True)
class Row:
    """A running row. `hidden` are the states that the draft head has not seen yet, from position `drafted` on."""

    request: Request
    hidden: torch.Tensor | None
    drafted: int = field(default=-1)

    def __post_init__(self) -> None:
        if self.drafted < 0:
            self.drafted = len(self.request.prompt) - 1

    @property
    def length(self) -> int:
        """Tokens so far."""
        return len(self.request.prompt) + len(self.request.tokens)

    def known(self, drafting: bool) -> int:
        """How many tokens have all their keys and values in the bank."""
        return min(self.length - 1, self.drafted + 1) if drafting else self.length - 1


class Stepper:
    """Runs the network for one model over one bank."""

    def __init__(self, model: LoadedModel, bank: Bank, options: EngineOptions) -> None:
        self._model, self._bank, self._options = model, bank, options
        self._network, self._draft = model.network, model.draft
        think = model.text.tokenizer.token_to_id("</think>")
        self._think_end = int(think) if think is not None else None
        self.stats = AcceptStats(options.draft_tokens)

    def fill(self, filling: Sequence[Filling]) -> list[Filling]:
        """Compute the next chunk of the prompts, in order; those that are complete have drawn their first token."""
        budget = self._options.chunked_prefill_size
        parts: list[tuple[Filling, int]] = []
        for part in filling:
            count = min(budget, len(part.request.prompt) - part.done)
            if count <= 0:
                break
            parts.append((part, count))
            budget -= count
        segments = [Segment(part.row, part.done, count) for part, count in parts]
        ids = [token for part, count in parts for token in part.request.prompt[part.done : part.done + count]]
        hidden = self._network.forward(self._network.packed_batch(self._bank, ids, segments), self._bank)
        if self._draft is not None:
            self._fill_draft(parts, hidden)
        ready: list[Filling] = []
        lasts: list[int] = []
        at = 0
        for part, count in parts:
            self._prompt_logprobs(part, hidden[at : at + count])
            at += count
            part.done += count
            if part.done == len(part.request.prompt):
                part.hidden = hidden[at - 1 : at]
                ready.append(part)
                lasts.append(at - 1)
        if ready:
            tokens = self._choose([part.request for part in ready], self._network.logits(hidden[torch.tensor(lasts)]))
            for part, token in zip(ready, tokens, strict=True):
                self._push(part.request, token)
        return ready

    def step(self, rows: Sequence[Row], shared: int = 0) -> None:
        """One step of all running rows, which are the bank's first rows in this order.

        `shared` is the number of first prompt tokens that all rows have in common.
        """
        if self._draft is None or all(row.request.params.shaped for row in rows):
            ids = torch.tensor([row.request.tokens[-1:] for row in rows])
            batch = self._network.rows_batch(self._bank, 0, ids, [row.length - 1 for row in rows], shared)
            logits = self._network.logits(self._network.forward(batch, self._bank))
            for row, token in zip(rows, self._choose([row.request for row in rows], logits), strict=True):
                self._push(row.request, token)
            return
        self._speculate(rows, max(shared - 1, 0))  # the head's place of the last shared token knows the next one

    def _push(self, request: Request, token: int) -> None:
        request.push(token, self._model.ends, self._think_end)

    def _fill_draft(self, parts: Sequence[tuple[Filling, int]], hidden: torch.Tensor) -> None:
        """Bring the draft head's cache up to the token before the last known one."""
        assert self._draft is not None
        ids: list[int] = []
        segments: list[Segment] = []
        picked: list[torch.Tensor] = []
        at = 0
        for part, count in parts:
            following = part.request.prompt[part.done + 1 : part.done + 1 + count]
            if following:
                ids += following
                segments.append(Segment(part.row, part.done, len(following)))
                picked.append(hidden[at : at + len(following)])
            at += count
        if ids:
            batch = self._network.packed_batch(self._bank, ids, segments)
            self._draft.forward(batch, torch.cat(picked), self._bank)

    def _speculate(self, rows: Sequence[Row], shared: int) -> None:
        """Draft K tokens for each row, verify them in one pass, put out what is accepted."""
        assert self._draft is not None
        steps = self._options.speculative_num_steps
        drafts = self._propose(rows, steps, shared)
        lasts = torch.tensor([row.request.tokens[-1:] for row in rows])
        ids = torch.cat([lasts, drafts], dim=1)  # [B, K + 1]
        starts = [row.length - 1 for row in rows]
        batch = self._network.rows_batch(self._bank, 0, ids, starts, shared)
        hidden = self._network.forward(batch, self._bank).view(len(rows), steps + 1, -1)
        logits = self._network.logits(hidden.reshape(-1, hidden.shape[-1])).view(len(rows), steps + 1, -1)
        best = logits.argmax(dim=-1).tolist()
        proposed = drafts.tolist()
        for index, row in enumerate(rows):
            request = row.request
            if request.params.shaped:
                made = self._choose([request], logits[index, :1].clone(), note=False)
            elif request.params.greedy:
                made = accept_greedy(proposed[index], best[index])
            else:
                made = accept_sampled(
                    proposed[index],
                    logits[index],
                    request.params,
                    request.draws,
                    self._options.speculative_accept_threshold_single,
                    self._options.speculative_accept_threshold_acc,
                )
            for place, token in enumerate(made):
                self._push(request, token)
                if request.wish is not None:
                    self._note([request], logits[index, place : place + 1], [token])
                if request.finish is not None:
                    break
            if not request.params.shaped:
                row.hidden, row.drafted = hidden[index, : len(made)], starts[index]
                self.stats.add(len(made) - 1, len(made))
                if request.stats is not None:
                    request.stats.add(len(made) - 1, len(made))

    def _propose(self, rows: Sequence[Row], steps: int, shared: int) -> torch.Tensor:
        """[B, K] drafted tokens, after the head has seen what was accepted since it last ran."""
        assert self._draft is not None
        counts = [1 if row.request.params.shaped else row.length - 1 - row.drafted for row in rows]
        width = max(counts)
        size = self._network.shape.hidden
        states = torch.zeros(len(rows), width, size, dtype=self._network.dtype)
        following: list[list[int]] = []
        starts: list[int] = []
        for index, (row, count) in enumerate(zip(rows, counts, strict=True)):
            start = row.length - 1 - count
            tokens = row.request.tokens[-count:]
            following.append(tokens + tokens[-1:] * (width - count))
            starts.append(start)
            if row.hidden is not None and not row.request.params.shaped:
                states[index, :count] = row.hidden
        batch = self._network.rows_batch(self._bank, 0, torch.tensor(following), starts, shared)
        pick = torch.tensor([index * width + count - 1 for index, count in enumerate(counts)])
        at = [start + count - 1 for start, count in zip(starts, counts, strict=True)]
        return self._draft.propose(self._bank, 0, batch, states.view(-1, size), pick, at, steps)

    def _choose(self, requests: Sequence[Request], logits: torch.Tensor, *, note: bool = True) -> list[int]:
        """One token per row of `logits` [B, V]."""
        plain = all(request.params.greedy and not request.params.shaped for request in requests)
        if plain:
            tokens: list[int] = logits.argmax(dim=-1).tolist()
        else:
            params = [request.params for request in requests]
            for index, request in enumerate(requests):
                if request.params.shaped:
                    ends = sorted(self._model.ends | request.params.stop_token_ids)
                    shape_logits(logits[index], request.params, request.counts, request.prompt_set, ends)
            tokens = logits.argmax(dim=-1).tolist()
            sampled = [index for index, row in enumerate(params) if not row.greedy]
            if sampled:
                chosen = [params[index] for index in sampled]
                scaled = logits[torch.tensor(sampled)] / temperatures(chosen)
                probabilities = cut(torch.softmax(scaled, dim=-1), chosen)
                for place, index in enumerate(sampled):
                    tokens[index] = invert(probabilities[place], requests[index].draws.uniform())
        if note and any(request.wish is not None for request in requests):
            self._note(requests, logits, tokens)
        return tokens

    def _note(self, requests: Sequence[Request], logits: torch.Tensor, tokens: Sequence[int]) -> None:
        """Record the log-probabilities of what was chosen from `logits` [B, V]."""
        scaled = torch.log_softmax(logits / temperatures([request.params for request in requests]), dim=-1)
        for index, (request, token) in enumerate(zip(requests, tokens, strict=True)):
            if request.wish is None:
                continue
            kept = request.logprobs
            kept.output.append((float(scaled[index, token]), token))
            kept.output_top.append(_top(scaled[index], request.wish.top))
            kept.output_tokens.append(_of(scaled[index], request.wish.tokens))

    def _prompt_logprobs(self, part: Filling, hidden: torch.Tensor) -> None:
        """Record the prompt's log-probabilities for the chunk whose states are `hidden` [count, …]."""
        request, wish = part.request, part.request.wish
        if wish is None or wish.start >= len(request.prompt):
            return
        kept = request.logprobs
        if not kept.prompt:
            kept.prompt.append((None, request.prompt[wish.start]))
            kept.prompt_top.append(None)
            kept.prompt_tokens.append(None)
        begin = max(part.done, wish.start)
        end = min(part.done + len(hidden), len(request.prompt) - 1)
        if begin >= end:
            return
        scaled = torch.log_softmax(self._network.logits(hidden[begin - part.done : end - part.done]), dim=-1)
        for place, position in enumerate(range(begin, end)):
            token = request.prompt[position + 1]
            kept.prompt.append((float(scaled[place, token]), token))
            kept.prompt_top.append(_top(scaled[place], wish.top))
            kept.prompt_tokens.append(_of(scaled[place], wish.tokens))


def _top(logprobs: torch.Tensor, count: int) -> Ranked:
    if not count:
        return []
    values, tokens = logprobs.topk(min(count, len(logprobs)))
    return list(zip(values.tolist(), tokens.tolist(), strict=True))


def _of(logprobs: torch.Tensor, tokens: tuple[int, ...]) -> list[TokenLogprob]:
    return [(float(logprobs[token]), token) for token in tokens]
