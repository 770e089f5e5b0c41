"""The pipelines that hatstack has, by name. Each module builds one `Dag`; the runner and the compilers derive from it.

A name with a dot is a module of your own with a function `build(arms, *, imported)`; it may take `branches` and `seeds`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from hat_pipelines.dag import Dag, suggest
from hat_pipelines.dags import ablate, evaluate, evolve, judge, nightly, release, train
from hat_pipelines.errors import DagError

BUILDERS: dict[str, Callable[..., Dag]] = {
    "ablate": ablate.build,
    "evaluate": evaluate.build,
    "evolve": evolve.build,
    "judge": judge.build,
    "nightly": nightly.build,
    "release": release.build,
    "train": train.build,
}


def names() -> tuple[str, ...]:
    """Names of the pipelines, in alphabetical order."""
    return tuple(sorted(BUILDERS))


def build(
    name: str,
    arms: Sequence[str],
    *,
    imported: bool = False,
    branches: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> Dag:
    """The pipeline `name` for these arms.

    `imported`: its conversations come from a file. `branches`: optional parts of it. `seeds`: its evaluations are played
    once for each. What a pipeline does not know is an error.
    """
    builder = _own(name) if "." in name else BUILDERS.get(name)
    if builder is None:
        raise DagError(f"no pipeline {name!r}", place="pipeline", cure=suggest(name, names()))
    known = inspect.signature(builder).parameters
    more: dict[str, Any] = {}
    for key, value in (("branches", tuple(branches)), ("seeds", tuple(seeds))):
        if key in known:
            more[key] = value
        elif value:
            raise DagError(f"pipeline {name} has no {key}", place=key, cure="leave them out")
    return builder(tuple(arms), imported=imported, **more)


def has_branches(name: str) -> bool:
    """Whether a pipeline has optional parts."""
    builder = _own(name) if "." in name else BUILDERS.get(name)
    return builder is not None and "branches" in inspect.signature(builder).parameters


def _own(name: str) -> Callable[..., Dag]:
    try:
        builder: Callable[..., Dag] = importlib.import_module(name).build
    except (ModuleNotFoundError, AttributeError) as error:
        raise DagError(f"no pipeline {name!r}: {error}", place="pipeline", cure="check the module's name") from None
    return builder
