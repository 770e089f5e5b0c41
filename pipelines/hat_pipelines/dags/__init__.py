"""The pipelines that hatstack has, by name. Each module builds one `Dag`; the runner and the compilers derive from it.

A name with a dot is a module of your own with a function `build(arms, *, imported)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from hat_pipelines.dag import Dag, suggest
from hat_pipelines.dags import evaluate, train
from hat_pipelines.errors import DagError

BUILDERS: dict[str, Callable[..., Dag]] = {"evaluate": evaluate.build, "train": train.build}


def names() -> tuple[str, ...]:
    """Names of the pipelines, in alphabetical order."""
    return tuple(sorted(BUILDERS))


def build(name: str, arms: Sequence[str], *, imported: bool = False) -> Dag:
    """The pipeline `name` for these arms; `imported`: its conversations come from a file."""
    if "." in name:
        return _own(name)(tuple(arms), imported=imported)
    if name not in BUILDERS:
        raise DagError(f"no pipeline {name!r}", place="pipeline", cure=suggest(name, names()))
    return BUILDERS[name](tuple(arms), imported=imported)


def _own(name: str) -> Callable[..., Dag]:
    try:
        builder: Callable[..., Dag] = importlib.import_module(name).build
    except (ModuleNotFoundError, AttributeError) as error:
        raise DagError(f"no pipeline {name!r}: {error}", place="pipeline", cure="check the module's name") from None
    return builder
