"""Gates: CEL expressions over evidence that decide whether a proposal may go on. Pure; the observed value is kept.

A gate has an observed value (CEL over the context below), an operator and a threshold, so that a page can show the
number beside its limit. An error, a missing field or a value that is no number is `missing`, which never passes.

    suites     map  suite → metric → value, of the newest evaluation of the proposed digest ("T2": {"accuracy": 0.93})
    baseline   map  the same for the digest that the pointer has now
    canary     map  the newest canary window: requests, errors, p95_s, acceptance_length, verdict
    cost       map  tokens_per_reply, cost_per_reply
    diff       map  token_delta, changed_tools, changed_hooks, changed_skills
    approvals  int  approvals by accounts other than the author

Not here: where evidence is stored (evidence), who approves (proposals).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from cel_expr_python import cel
from pydantic import BaseModel, ConfigDict, Field, field_validator

from hat_registry.errors import InvalidError

Outcome = Literal["passed", "failed", "missing"]
OPERATORS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt, "==": operator.eq}
CONTEXT: dict[str, str] = {
    "suites": "map<string, map<string, double>>",
    "baseline": "map<string, map<string, double>>",
    "canary": "map<string, dyn>",
    "cost": "map<string, double>",
    "diff": "map<string, dyn>",
    "approvals": "int",
}


class Gate(BaseModel):
    """One gate of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    title: str = ""
    """What a person reads; the id where empty."""
    observed: str
    """CEL; a number or a boolean (true counts as 1)."""
    operator: Literal[">=", ">", "<=", "<", "=="] = ">="
    threshold: float
    required: bool = True
    """A failed gate that is not required is shown and does not hold the proposal."""

    @field_validator("observed")
    @classmethod
    def _compiles(cls, expression: str) -> str:
        compiled(expression)
        return expression


class Result(BaseModel):
    """What one gate saw."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str
    title: str
    observed: str
    """The number, written as JSON; "" where missing."""
    threshold: str
    """Operator and number."""
    outcome: Outcome
    required: bool
    note: str = ""
    """Why it is missing."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    maps = {name: cel.Type.Map(cel.Type.STRING, cel.Type.DYN) for name in CONTEXT if name != "approvals"}
    return cel.NewEnv(variables={**maps, "approvals": cel.Type.INT})


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Any:
    """The type-checked expression. Raises InvalidError that says what CEL found wrong."""
    try:
        return _environment().compile(expression)
    except Exception as error:  # the binding raises its own unrelated classes for parse and type errors
        reason = str(error).strip().splitlines()[0][:300]
        raise InvalidError(
            f"gate expression {expression[:120]!r} is not valid: {reason}", cure=f"fields: {', '.join(CONTEXT)}"
        ) from None


def evaluate(gate: Gate, context: Mapping[str, Any]) -> Result:
    """Evaluate one gate; never raises for what the evidence holds or lacks."""
    empty: dict[str, Any] = {name: {} for name in CONTEXT if name != "approvals"}
    value = compiled(gate.observed).eval(data={**empty, "approvals": 0, **context})
    number: float | None = None
    note = ""
    plain = value.plain_value()
    if value.type() == cel.Type.ERROR:
        note = str(plain)[:200]
    elif isinstance(plain, bool | int | float):
        number = float(plain)
        number = None if number != number else number
    if number is None:
        outcome: Outcome = "missing"
        note = note or "the expression gives no number"
    else:
        outcome = "passed" if OPERATORS[gate.operator](number, gate.threshold) else "failed"
    return Result(
        gate=gate.id,
        title=gate.title or gate.id,
        observed="" if number is None else _written(number),
        threshold=f"{gate.operator} {_written(gate.threshold)}",
        outcome=outcome,
        required=gate.required,
        note=note,
    )


def blocking(results: list[Result]) -> list[Result]:
    """The required gates that did not pass."""
    return [result for result in results if result.required and result.outcome != "passed"]


def _written(number: float) -> str:
    return f"{number:.6g}"
