"""Who acts: plays items under a harness with a model folder, an endpoint or the scripted expert.

Always holds: a policy is opened once and closed at the end; playing the same items again gives the same sessions for a
local model and the expert. Not here: what is measured (measure).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hat_components.data import digest_path, require_path
from hat_components.evolve.config import Config, EndpointPolicy, ExpertPolicy, ModelPolicy, Policy
from hat_components.evolve.faults import Fault, FaultyExpert
from hat_components.sessions import Played, State, play_scored
from hat_components.step import InputError
from hat_harness.augment.engine import base_digest
from hat_harness.digest import decimals, digest_json
from hat_harness.ports import BatchModel
from hat_harness.spec import Harness
from hat_scenarios.base import Item, Scenario
from hat_scenarios.play import play


@dataclass(frozen=True)
class Actor:
    """An open policy."""

    name: str
    kind: str
    digest: str
    """Of the model folder, or of what names the policy otherwise."""
    model: BatchModel | None = None
    count: Callable[[str], int] | None = None
    faults: tuple[Fault, ...] = ()

    def play(
        self, scenario: Scenario, harness: Harness, items: Sequence[Item], *, seed: int, batch: int
    ) -> Iterator[Played]:
        """Every item in order under `harness`, scored."""
        state = State(harness, base_digest(harness))
        if self.model is not None:
            cases = [(item, state) for item in items]
            yield from play_scored(scenario, cases, self.model, label="evolve-", batch=batch, count=self.count)
            return
        for start in range(0, len(items), batch):
            part = items[start : start + batch]
            cast = [(harness, item) for item in part]
            model = FaultyExpert(scenario.expert(), cast, self.faults, seed)
            for item, trace in zip(part, play(scenario, cast, model), strict=True):
                yield Played(item, state, trace, tuple(scenario.score(harness, item, trace)))


@contextlib.contextmanager
def open_policies(config: Config, inputs: Mapping[str, Path]) -> Iterator[list[Actor]]:
    """All policies of a config; InputError before any is opened when a model's folder is missing."""
    folders = {one.name: _folder(one, config, inputs) for one in config.policies if isinstance(one, ModelPolicy)}
    with contextlib.ExitStack() as stack:
        yield [_open(one, config, folders, stack) for one in config.policies]


def _folder(policy: ModelPolicy, config: Config, inputs: Mapping[str, Path]) -> Path:
    alone = sum(isinstance(one, ModelPolicy) for one in config.policies) == 1
    name = "model" if alone and "model" in inputs else f"model-{policy.name}"
    folder = require_path(inputs, name)
    if not folder.is_dir():
        raise InputError("a model is a folder", place=str(folder), cure="give the folder that a training step wrote")
    return folder


def _open(policy: Policy, config: Config, folders: Mapping[str, Path], stack: contextlib.ExitStack) -> Actor:
    if isinstance(policy, ExpertPolicy):
        digest = digest_json(decimals([fault.model_dump(mode="json") for fault in policy.faults]))
        return Actor(policy.name, "expert", digest, faults=policy.faults)
    if isinstance(policy, EndpointPolicy):
        from hat_components.endpoint import Endpoint

        client = Endpoint(
            policy.url,
            policy.model,
            key_variable=policy.key_variable,
            parallel=policy.parallel,
            timeout_s=policy.timeout_s,
            temperature=policy.temperature,
            seed=config.seed,
        )
        return Actor(policy.name, "endpoint", policy.model, stack.enter_context(client))
    from hat_components.model.anymodel import policy_from_folder

    folder = folders[policy.name]
    model = policy_from_folder(
        folder, temperature=policy.temperature, seed=config.seed, precision=config.precision, rows=config.batch
    )
    return Actor(policy.name, "model", digest_path(folder), model, lambda text: len(model.codec.encode_text(text)))
