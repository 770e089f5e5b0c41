"""Lifecycle hooks: CEL expressions over a documented, typed context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hat_harness.spec import Harness, Hook


class CompiledHooks:
    """The hooks of one harness, type-checked and compiled."""


def compile_hooks(harness: Harness) -> CompiledHooks:
    """Type-checks and compiles every hook (cached by expression)."""
    raise NotImplementedError


def explain(hook: Hook, context: Mapping[str, Any]) -> Any:
    """Verdict of one hook over a context, with the values of the fields it read."""
    raise NotImplementedError
