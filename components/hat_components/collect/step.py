"""The collect step: a teacher behind any OpenAI-compatible endpoint plays items; what scores well is kept.

Always holds: the teacher meets the very Session that serves; ground truth decides what is kept, not the teacher; who
taught, under which licence, how often it was right and what it cost stand in the manifest; a restarted step goes on
after the last finished item. Inputs: `items` (tagged for training) and `harness`. Not here: training (sft).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hat_components.collect.config import Config
from hat_components.collect.journal import Collected, Journal
from hat_components.data import (
    Dataset,
    DatasetWriter,
    Trajectory,
    digest_path,
    read_items,
    require,
    require_path,
    text_size,
)
from hat_components.endpoint import Endpoint
from hat_components.scenarios import load
from hat_components.sessions import Played, States, draw_seed, play_scored, read_harness, training_messages
from hat_components.step import InputError, Progress, StepError, StepResult
from hat_harness.digest import decimals, digest_json
from hat_harness.errors import Kind
from hat_harness.events import CallModel, Failure, ModelOutput
from hat_harness.ports import BatchModel
from hat_harness.trace import turns
from hat_scenarios.base import Item

JOURNAL = "collected.jsonl"
_OUTAGES = ("timeout", "rate_limit", "server", "unavailable")


class EndpointDownError(StepError):
    """The teacher's endpoint fails item after item."""

    kind: Kind = "unavailable"


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Write the dataset `trajectories`, of one split named after the arm."""
    folder, source = require(inputs, "items", kind="items", purposes=["training"])
    harness = require_path(inputs, "harness")
    sources = {"items": source.digest, "harness": digest_path(harness)}
    identity = digest_json(decimals({"config": _deciding(config), "inputs": sources}))
    items = read_items(folder)
    with Journal(out / JOURNAL, identity) as journal:
        known = len(journal.found)
        if known:
            progress.warning(f"{known} items were collected before and are not asked again")
        _collect(config, items, harness, journal, progress)
        finished = [journal.found[item.id] for item in items if item.id in journal.found]
    facts = _facts(config, items, finished)
    manifest = _write(out / "trajectories", config, finished, sources, facts)
    (out / JOURNAL).unlink()
    progress.artifact("trajectories", out / "trajectories")
    numbers = ("accepted_share", "kept", "failed", "cost", "prompt_tokens", "completion_tokens")
    return StepResult(
        artifacts={"trajectories": "trajectories"},
        digests={"trajectories": manifest.digest},
        metrics={name: float(facts[name]) for name in numbers},
        notes=manifest.facts,
    )


def _deciding(config: Config) -> dict[str, Any]:
    """What of the config decides the result; how fast and for how long it tries does not."""
    leave = {"endpoint", "parallel", "timeout_s", "batch", "failing", "key_variable"}
    return config.model_dump(mode="json", exclude=leave)


def _collect(config: Config, items: Sequence[Item], harness: Path, journal: Journal, progress: Progress) -> None:
    scenario = load(config.scenario, config.settings)
    plan = config.plan if config.states == "augmented" else None
    states = States(scenario, read_harness(harness), plan, config.seed)
    todo = [item for item in items if item.id not in journal.found]
    failing = 0
    with ExitStack() as stack:
        teachers = [_Watched(stack.enter_context(_endpoint(config, number))) for number in range(config.samples)]
        for start in range(0, len(todo), config.batch):
            part = todo[start : start + config.batch]
            cases = [(item, states.of(item)) for item in part]
            played: dict[str, list[tuple[Played, bool]]] = {item.id: [] for item in part}
            for number, teacher in enumerate(teachers):
                label = f"collect/{number}/"
                for one in play_scored(scenario, cases, teacher, label=label, batch=len(cases)):
                    lost = teacher.failed(one.item.id) and _least(one) < config.keep_at  # a retry may have saved it
                    played[one.item.id].append((one, lost))
            for item in part:
                sessions = played[item.id]
                if all(lost for _, lost in sessions):
                    failing += 1
                    if failing >= config.failing:
                        raise EndpointDownError(
                            f"the sessions of {failing} items in a row met a failing endpoint",
                            place=config.endpoint,
                            cure="start the endpoint, then the step again in the same folder: it goes on",
                        )
                    continue
                failing = 0
                journal.add(_collected(config, item, sessions))
            progress.progress(len(journal.found), len(items), "items")
    missing = len(items) - len(journal.found)
    if missing:
        progress.warning(f"{missing} items met a failing endpoint in every session and were left out")


def _endpoint(config: Config, number: int) -> Endpoint:
    return Endpoint(
        config.endpoint,
        config.teacher,
        key_variable=config.key_variable,
        parallel=config.parallel,
        timeout_s=config.timeout_s,
        temperature=config.temperature,
        seed=draw_seed(config.seed, "collect", number) % 2**31,  # a server that heeds it must not repeat itself
    )


class _Watched:
    """A model that remembers which items' sessions met a failing endpoint. One session an item at a time."""

    def __init__(self, model: BatchModel) -> None:
        self._model = model
        self._failed: set[str] = set()

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        """The model's outputs."""
        found = self._model.generate(calls)
        for (session, _), output in zip(calls, found, strict=True):
            if isinstance(output, Failure) and output.kind in _OUTAGES:
                self._failed.add(session)
        return found

    def failed(self, item: str) -> bool:
        """Whether a session of the item met a failure, so that its score is no word on the teacher."""
        return any(session.partition("-")[2] == item for session in self._failed)


def _collected(config: Config, item: Item, sessions: Sequence[tuple[Played, bool]]) -> Collected:
    whole = [played for played, failed in sessions if not failed]
    accepted = [played for played in whole if _least(played) >= config.keep_at]
    rejected = [played for played in whole if _least(played) < config.keep_at]
    summaries = [turn for played, _ in sessions for turn in turns(played.trace)]
    kept: dict[str, list[Trajectory]] = {}
    for number, played in enumerate(accepted):
        rows = list(_trajectories(config, played, number))
        kept.setdefault(str([row.messages for row in rows]), rows)  # no two alike
    best = sorted(kept.values(), key=lambda rows: (-rows[0].score, sum(row.size for row in rows)))[: config.keep]
    return Collected(
        item=item.id,
        played=len(whole),
        failed=len(sessions) - len(whole),
        accepted=len(accepted),
        prompt_tokens=sum(turn.prompt_tokens for turn in summaries),
        completion_tokens=sum(turn.completion_tokens for turn in summaries),
        causes=tuple(cause for played in rejected for cause in _causes(played)),
        trajectories=tuple(row for rows in best for row in rows),
    )


def _values(played: Played) -> list[float]:
    scores = played.scores
    return [x for s in scores for x in (s.accuracy, s.effectiveness, s.skill_selection, s.tool_rationality)]


def _least(played: Played) -> float:
    return min(_values(played), default=0.0)


def _causes(played: Played) -> list[str]:
    return sorted({cause for score in played.scores for cause in score.causes}) or ["unscored"]


def _trajectories(config: Config, played: Played, number: int) -> Iterable[Trajectory]:
    values = _values(played)
    for segment in played.trace.segments:
        if not segment.sampled:
            continue
        messages = training_messages(segment)
        yield Trajectory(
            id=f"{config.arm}/{played.item.id}/{number}/{segment.index}",
            arm=config.arm,
            item=played.item.id,
            scenario=config.scenario,
            source=config.teacher,
            harness=played.state.digest,
            operators=played.state.families,
            messages=messages,
            tools=segment.tools,
            score=sum(values) / len(values),
            size=text_size(messages, segment.tools),
        )


def _facts(config: Config, items: Sequence[Item], finished: Sequence[Collected]) -> dict[str, Any]:
    played, accepted = (sum(getattr(one, name) for one in finished) for name in ("played", "accepted"))
    prompt, completion = (sum(getattr(one, f"{name}_tokens") for one in finished) for name in ("prompt", "completion"))
    cost = (prompt * config.prompt_price + completion * config.completion_price) / 1e6
    causes = Counter(cause for one in finished for cause in one.causes)
    return {
        "teacher": config.teacher,
        "licence": config.licence,
        "items": len(items),
        "items_finished": len(finished),
        "items_kept": sum(bool(one.trajectories) for one in finished),
        "sessions": played,
        "failed": sum(one.failed for one in finished),
        "accepted": accepted,
        "accepted_share": round(accepted / played, 4) if played else 0.0,
        "kept": sum(len(one.trajectories) for one in finished),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cost": round(cost, 6),
        "causes": dict(sorted(causes.items())),
    }


def _write(
    folder: Path, config: Config, finished: Sequence[Collected], sources: dict[str, str], facts: dict[str, Any]
) -> Dataset:
    if not facts["kept"]:
        raise InputError(
            f"no session scored {config.keep_at} in everything; causes: {facts['causes']}",
            place=config.endpoint,
            cure="ask a stronger teacher, more samples, or lower keep_at",
        )
    with DatasetWriter(folder, kind="trajectories", splits=[config.arm]) as writer:
        for one in finished:
            for row in one.trajectories:
                writer.write(config.arm, row)
        return writer.finish(
            name=f"{config.scenario.replace('_', '-')}-{config.arm}",
            purpose="training",
            seed=config.seed,
            sources=sources,
            facts=facts,
        )
