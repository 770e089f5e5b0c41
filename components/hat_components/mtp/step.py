"""The mtp step: gives a trained policy a draft head that foresees it, and keeps it through saving.

Always holds: the policy's weights come out as they went in; the written folder holds the head under the names that
SGLang reads, and it was read back and compared; one config and its inputs give one head, also after a kill; the
artifact appears whole. Inputs: `start` (the policy), `harness`, and `head` (a model whose head is carried over;
without it the head of `start`, or a fresh one). Not here: drafting while serving (hat_serving).
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hat_components.data import digest_path, require_path
from hat_components.model.anymodel import AnyModel
from hat_components.model.artifact import new_folder
from hat_components.model.codec import IGNORED, Codec
from hat_components.model.course import Pace, check_finite, checkpoints_of
from hat_components.model.folder import TRAINING, load_folder, threads
from hat_components.model.general import general_words, words_in
from hat_components.model.generate import MicroModel
from hat_components.model.qwen import check_folder
from hat_components.model.stages import MODEL, Identity, earlier
from hat_components.mtp.acceptance import Acceptance
from hat_components.mtp.config import Config
from hat_components.mtp.fit import Course, Trunk, measure
from hat_components.mtp.head import DraftHead
from hat_components.mtp.tensors import check_head, fused, put_head, read_head
from hat_components.rl.config import Config as Rollouts
from hat_components.rl.reward import Term
from hat_components.rl.rollouts import Player
from hat_components.rl.rows import FlatRow
from hat_components.scenarios import load
from hat_components.step import InputError, Progress, StepError, StepResult
from hat_scenarios import general

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NO_GAIN = 1.05
"""Accept length up to which a head is told to be of no use."""
FRESH = "fresh"
AT_ONCE = 64
"""Sessions that are played side by side; the random numbers of a session depend on it."""


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Fit the head and write the artifact `model`."""
    names = [name for name in ("start", "harness", "head") if name != "head" or name in inputs]
    identity = Identity("mtp", config, {name: digest_path(require_path(inputs, name)) for name in names})
    with threads(config.threads):
        done = earlier(out, identity, progress)
        if done is not None:
            return done
        start = Path(inputs["start"])
        loaded = load_folder(start, config.large.dtype if config.large else "float32")
        device = "cuda" if config.large and torch.cuda.is_available() else "cpu"
        policy = loaded.model.to(device).eval().requires_grad_(False)
        head, origin = _head(policy, Path(inputs.get("head", start)), "head" in inputs, config.seed)
        head.to(device)
        learn = play(config, inputs, loaded.codec, policy, config.sessions, greedy=False)
        tested = play(config, inputs, loaded.codec, policy, config.held_out, greedy=True)
        held = Trunk(policy, tested)
        before = measure(policy, head, tested, config.depth, trunk=held)
        checkpoints = checkpoints_of(out, identity, Pace.of(config))
        copy = _copying(config, loaded.codec) if origin == FRESH and config.copying else None
        course = Course(policy, head, learn, config, progress, checkpoints, copy)
        course.run()
        check_finite(head, "mtp")
        after = measure(policy, head, tested, config.depth, trunk=held)
        if after.length <= NO_GAIN:
            progress.warning(f"the head's accept length is {after.length:.2f}: it makes serving no faster")
        facts = {"origin": origin, **course.means(), **_told("before", before), **_told("after", after)}
        _save(out / MODEL, start, head, config, {**identity.record(), "identity": identity.digest()}, course, facts)
        if checkpoints:
            checkpoints.clear()
    result = earlier(out, identity, progress)
    assert result is not None
    return result


def _told(when: str, found: Acceptance) -> dict[str, float]:
    return {f"accept_{name}_{when}": round(value, 6) for name, value in found.metrics().items()}


def _head(policy: PreTrainedModel, folder: Path, wanted: bool, seed: int) -> tuple[DraftHead, str]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = DraftHead(policy.config)
        for parameter in head.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=float(policy.config.initializer_range))
    check_folder(folder)
    tensors = read_head(folder)
    if not tensors:
        if wanted:
            raise InputError("there is no draft head (mtp.*) in it", place=str(folder), cure="leave out the input")
        return head, FRESH
    tensors = fused(tensors)
    check_head(tensors, head.shapes(), folder)
    head.take(tensors)
    return head, "carried over"


def _copying(config: Config, codec: Codec) -> Callable[[random.Random], FlatRow]:
    """Draws a general text that is copied, without the words that the scenario holds out."""
    scenario = load(config.scenario, config.settings)
    words = general_words(codec, words_in(scenario.vocabulary(True)) - words_in(scenario.vocabulary(False)))

    def draw(rng: random.Random) -> FlatRow:
        asked, answer = general.stream("copy", rng, words)
        prompt, row = codec.encode_prefix([asked]), codec.row([asked, answer])
        mask = tuple(int(label != IGNORED) for label in row.labels[len(prompt) :])
        return FlatRow(tuple(prompt), tuple(row.ids[len(prompt) :]), mask, (0.0,) * len(mask))

    return draw


def play(
    config: Config, inputs: Mapping[str, Path], codec: Codec, policy: PreTrainedModel, count: int, greedy: bool
) -> list[FlatRow]:
    """Rows of `count` sessions of the policy, each of an item and a state of its own; greedy ones are of other items."""
    at_once = min(count, AT_ONCE)
    played = Rollouts(
        seed=config.seed + (1_000_003 if greedy else 0),
        scenario=config.scenario,
        settings=config.settings,
        states=config.states,
        plan=config.plan,
        turns=config.turns,
        groups=at_once,
        rows_at_once=1,
        temperature=config.temperature,
        call_tokens=config.call_tokens,
        terms={"accuracy": Term()},
        large=config.large,
    )
    kind = AnyModel if config.large else MicroModel
    player = Player(played, Path(inputs["harness"]), codec, policy, greedy=greedy, policy=kind)
    rows = [row for step in range(-(-count // at_once)) for row in player.once(step, policy)]
    found = [row for row in rows[:count] if row.sampled()]
    if not found:
        raise InputError("the policy wrote nothing in any session", place=str(inputs["start"]), cure="train it first")
    return found


def _save(
    folder: Path,
    start: Path,
    head: DraftHead,
    config: Config,
    record: Mapping[str, Any],
    course: Course,
    facts: Mapping[str, Any],
) -> None:
    tensors = {name: tensor.cpu().to(getattr(torch, config.dtype)) for name, tensor in head.tensors().items()}
    training = {
        **record,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "stages": {"mtp": {"steps": course.steps, **facts}},
    }
    with new_folder(folder) as draft:
        shutil.copytree(start, draft, dirs_exist_ok=True)
        put_head(draft, tensors)
        text = json.dumps(training, indent=2, sort_keys=True, ensure_ascii=False)
        (draft / TRAINING).write_text(text + "\n", encoding="utf-8")
        stored = read_head(draft)
        if stored.keys() != tensors.keys() or any(not torch.equal(stored[name], tensors[name]) for name in tensors):
            raise StepError("the head that was written is not the one that was fitted", place=str(folder))
