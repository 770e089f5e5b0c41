"""Rollouts of RL by our sessions and by TRL's own tool loop (`GRPOTrainer(environment_factory=...)`), on the same work.

Run: `python bench/rollouts_against_trl.py [MODEL_FOLDER] [--items 8] [--group 8] [--rounds 5]` (the shipped base). Both play
the same items with the same model under the same harness; what they sample is given to them from a script, by the exact
tokens that the model has before it: a context that differs by one token ends the benchmark. Both run the model for
every token and take its log-softmax; tools answer from the script in TRL's loop, from the scenario's backend in ours,
which also scores. Prints seconds of each, interleaved; exits 1 when the median ratio is below 3.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from transformers import LogitsProcessor, LogitsProcessorList
from trl import GRPOConfig, GRPOTrainer

from hat_components.base import shipped
from hat_components.model import generate as sampling
from hat_components.model.codec import Codec, with_tools
from hat_components.model.folder import load_folder
from hat_components.model.generate import MicroModel
from hat_components.rl.rows import flat_row
from hat_components.scenarios import load
from hat_components.sessions import Played, States, play_scored, read_harness
from hat_harness.events import Message
from hat_scenarios.base import Item

LEAST = 3.0
HARNESS = Path(__file__).parents[1] / "harness-registry" / "harnesses" / "live-commerce"
Context = tuple[int, ...]


@dataclass(frozen=True)
class Script:
    """What is sampled after each context, and what the tools of each item say in turn."""

    after: Mapping[Context, Context]
    results: Mapping[str, Sequence[str]]
    prompts: Mapping[str, Sequence[Message]]
    arguments: Mapping[str, Sequence[str]]
    """Tool → its argument names."""
    rounds: int
    tokens: int


def script_of(played: Sequence[Played], codec: Codec) -> Script:
    """The expert's sessions as contexts and what follows them."""
    after: dict[Context, Context] = {}
    results: dict[str, list[str]] = {}
    prompts: dict[str, Sequence[Message]] = {}
    arguments: dict[str, set[str]] = {}
    rounds = tokens = 0
    for one in played:
        segment = one.trace.segments[-1]
        places = [place for place, message in enumerate(segment.messages) if message.role == "assistant"]
        prompts[one.item.id] = with_tools(segment.messages[: places[0]], segment.tools)  # type: ignore[assignment]  # messages in, messages out
        context = codec.encode_prefix(segment.messages[: places[0]], segment.tools)
        for number, place in enumerate(places):
            end = places[number + 1] if number + 1 < len(places) else place + 1
            between = segment.messages[place + 1 : end]
            written = _written(codec, segment.messages[place])
            after[tuple(context)] = tuple(written)
            context = [*context, *written, *codec.encode_suffix(between)]
            results.setdefault(one.item.id, []).extend(message.content for message in between)
            rounds, tokens = rounds + 1, tokens + len(written)
            for call in segment.messages[place].tool_calls:
                arguments.setdefault(call.name, set()).update(call.arguments)
    return Script(after, results, prompts, {name: sorted(found) for name, found in arguments.items()}, rounds, tokens)


def _written(codec: Codec, message: Message) -> list[int]:
    row = codec.row([message])
    return [label for label in row.labels if label >= 0]


# ours ----------------------------------------------------------------------------------------------------------------


def ours(model: MicroModel, cases: Sequence[Any], script: Script) -> tuple[float, int]:
    """Seconds and sampled tokens of all rollouts through sessions, scores and rows included."""
    scenario = load("live_commerce", {"mix": "balanced"})
    began = time.perf_counter()
    played = list(play_scored(scenario, cases, model, label="bench/", batch=len(cases)))
    rows = [flat_row(one.trace, model.codec) for one in played]
    return time.perf_counter() - began, sum(row.sampled() for row in rows)


class Scripted(MicroModel):
    """MicroModel that samples the script: a row's random number is the token itself."""

    script: Script

    def _row(self, session_id: str, call: Any) -> Any:
        row = super()._row(session_id, call)
        row.draw = iter(self.script.after[tuple(row.prompt)]).__next__
        return row


def scripted_draw(
    logits: torch.Tensor, temperature: float, uniforms: Sequence[Callable[[], float]]
) -> tuple[list[int], list[float]]:
    """Stands in for `generate.draw`, with all of its arithmetic but the choice."""
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    logprobs.double().exp().cumsum(dim=-1)
    tokens = torch.tensor([int(uniform()) for uniform in uniforms])[:, None]
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()


# TRL's ---------------------------------------------------------------------------------------------------------------


class Teleprompter(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """Leaves `generate` no token but the script's."""

    def __init__(self, script: Script, pad: int) -> None:
        self._script, self._pad = script, pad
        self._rows: list[Context] = []
        self._step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The script's token gets all the weight."""
        if not self._rows:
            contexts = [tuple(token for token in row if token != self._pad) for row in input_ids.tolist()]
            self._rows = [self._script.after[context] for context in contexts]
        tokens = [row[min(self._step, len(row) - 1)] for row in self._rows]
        self._step += 1
        chosen = torch.full_like(scores, float("-inf"))
        chosen[torch.arange(len(tokens)), torch.tensor(tokens)] = 0.0
        return chosen


def environment(script: Script) -> type:
    """A class whose methods are the harness's tools, as TRL wants them: annotated, with documented arguments."""
    lines = [
        "class Room:",
        "    def reset(self, item, **_):",
        "        self._left = iter(RESULTS[item])",
    ]
    for name, arguments in script.arguments.items():
        given = "".join(f", {argument}: str = ''" for argument in arguments)
        told = "".join(f"\n            {argument}: one." for argument in arguments)
        lines += [
            f"    def {name}(self{given}) -> str:",
            f'        """A tool.\n\n        Args:{told or " none"}\n        """',
            "        return next(self._left)",
        ]
    space: dict[str, Any] = {"RESULTS": script.results}
    exec("\n".join(lines), space)  # TRL reads tools from methods of a class: there is no other way to name them
    found: type = space["Room"]
    return found


def trls(
    model: Any, codec: Codec, items: Sequence[Item], group: int, script: Script, folder: str
) -> Callable[[], float]:
    """A function that plays all rollouts in TRL's loop and returns the seconds of it."""
    from datasets import Dataset

    rows = [
        {"prompt": [{"role": m.role, "content": m.content} for m in script.prompts[item.id]], "item": item.id}
        for item in items
        for _ in range(group)
    ]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=len(rows),
            num_generations=group,
            max_completion_length=512,
            max_tool_calling_iterations=8,
            use_cpu=True,
            bf16=False,
            report_to="none",
            disable_tqdm=True,
            activation_checkpointing=False,
        ),
        train_dataset=Dataset.from_list(rows[::group]),
        processing_class=codec.tokenizer,
        environment_factory=environment(script),
    )
    real = model.generate
    pad = int(codec.tokenizer.pad_token_id)

    def generate(**given: Any) -> Any:
        return real(**given, logits_processor=LogitsProcessorList([Teleprompter(script, pad)]))

    model.generate = generate
    spent = [0.0]
    inner = trainer._generate

    def timed(prompts: Any) -> Any:
        began = time.perf_counter()
        found = inner(prompts)
        spent[0] = time.perf_counter() - began
        sampled = sum(sum(mask) for mask in found[2])
        if sampled != script.tokens * group:
            raise SystemExit(f"TRL sampled {sampled} tokens, the script has {script.tokens * group}")
        return found

    trainer._generate = timed

    def run() -> float:
        trainer.model.train()
        trainer._generate_and_score_completions([dict(row) for row in rows])
        return spent[0]

    return run


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=Path(shipped.__file__).parent / "micro-2" / "model")
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="of both, one after the other")
    given = parser.parse_args()
    loaded = load_folder(given.model)
    scenario = load("live_commerce", {"mix": "balanced"})
    items = list(scenario.items(11, "train", given.items, 1))
    states = States(scenario, read_harness(HARNESS), None, 1)
    expert = list(play_scored(scenario, [(item, states.of(item)) for item in items], None, label="bench/"))
    script = script_of(expert, loaded.codec)
    cases = [(item, states.of(item)) for item in items for _ in range(given.group)]
    fast = Scripted(loaded.model.eval(), loaded.codec, temperature=1.0, rows=len(cases), cache_tokens=len(cases) * 2048)
    fast.script = script
    sampling.draw = scripted_draw
    with tempfile.TemporaryDirectory() as folder:
        theirs = trls(loaded.model, loaded.codec, items, given.group, script, folder)
        ratios = []
        for number in range(given.rounds + 1):
            other = theirs()
            loaded.model.eval()
            own, sampled = ours(fast, cases, script)
            if sampled != script.tokens * given.group:
                raise SystemExit(f"our sessions sampled {sampled} tokens, the script has {script.tokens * given.group}")
            if number:  # the first is to warm up
                ratios.append(other / own)
                print(f"TRL {other:.2f} s, ours {own:.2f} s: {other / own:.2f} times as fast")
    ratio = statistics.median(ratios)
    print(
        f"{len(cases)} rollouts, {script.rounds * given.group} calls, {script.tokens * given.group} sampled tokens on "
        f"{torch.get_num_threads()} threads: {ratio:.2f} times as fast as TRL's own tool loop (median of {given.rounds})"
    )
    return int(ratio < LEAST)


if __name__ == "__main__":
    sys.exit(main())
