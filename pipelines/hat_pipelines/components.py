"""How a DAG's step finds its code: the component's package gives a config class and a run function.

`sft` means the package `hat_components.sft`; a name with a dot is a package anywhere. Only `config` is imported to
check a profile, so that no check waits for torch. Not here: running (worker).
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

from hat_components.step import Run, StepConfig
from hat_pipelines.dag import suggest
from hat_pipelines.errors import DagError

PACKAGES = {"import": "importer"}
"""Steps whose package has another name, since `import` is a keyword."""


def module_name(component: str) -> str:
    """The package of a component."""
    return component if "." in component else f"hat_components.{PACKAGES.get(component, component)}"


@cache
def config_class(component: str) -> type[StepConfig]:
    """The class `Config` in the component's `config` module; DagError when there is none."""
    module = _import(component, "config")
    found = getattr(module, "Config", None)
    if not (isinstance(found, type) and issubclass(found, StepConfig)):
        raise DagError(f"{module.__name__} defines no Config derived from StepConfig", place=component)
    return found


def run_function(component: str) -> Run:
    """The component's `step.run`; imports whatever the step needs."""
    run: Run = _import(component, "step").run
    return run


def installed() -> tuple[str, ...]:
    """Names of the steps that hat_components has."""
    steps = {package: step for step, package in PACKAGES.items()}
    root = Path(str(importlib.import_module("hat_components").__file__)).parent
    return tuple(sorted(steps.get(path.parent.name, path.parent.name) for path in root.glob("*/step.py")))


def _import(component: str, part: str) -> ModuleType:
    name = f"{module_name(component)}.{part}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise DagError(f"no component {component!r}", place=name, cure=suggest(component, installed())) from None
        raise
