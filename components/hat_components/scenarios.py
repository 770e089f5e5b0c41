"""Finds a scenario package by name and gives it its settings.

A scenario named `x` is a module `hat_scenarios.x`, or any importable module for a dotted name, with a class whose
attribute `name` is the name, and with a model `Settings`. Not here: the scenarios themselves.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hat_components.step import InputError
from hat_scenarios.base import Scenario, ScenarioError


def load(name: str, settings: Mapping[str, Any] | None = None) -> Scenario:
    """The scenario `name` under `settings`; raises `InputError` when either is unknown."""
    module_name = name if "." in name else f"hat_scenarios.{name}"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise InputError(
            f"there is no scenario {name!r}", place="scenario", cure="live_commerce, or a module"
        ) from None
    short = name.rsplit(".", 1)[-1]
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    found = next((cls for cls in classes if getattr(cls, "name", None) == short), None)
    if found is None:
        raise InputError(
            f"{module_name} has no class called {short!r}", place="scenario", cure="set its attribute name"
        )
    try:
        scenario: Scenario = found(module.Settings.model_validate(dict(settings or {})))
    except (ValidationError, ValueError, ScenarioError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise InputError(
            f"settings of {name}: {reason}", place="settings", cure="see the scenario's Settings"
        ) from error
    return scenario
