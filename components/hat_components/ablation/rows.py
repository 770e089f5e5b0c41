"""Rows of the ablation (`hatstack.ablation/1`, JSON lines): one for each policy and seed, one for each contrast.

Always holds: a row names what it was measured on by digest, so that rows of any machine can stand in one file; reading
drops none and knows no duplicate (the newest of a key wins); scores are shares, not percent. Not here: tables (paper).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.ablation.policies import COLUMNS, PAIRS
from hat_components.evaluate.result import Evaluation
from hat_components.step import InputError
from hat_stats.bootstrap import Contrast, paired_bootstrap

DRAWS = 10_000


class Row(BaseModel):
    """One measured policy, or one contrast of two."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["hatstack.ablation/1"] = "hatstack.ablation/1"
    kind: Literal["policy", "contrast"]
    policy: str
    """Policy, or the candidate of a contrast."""
    reference: str = ""
    """What a contrast is measured against; "" for a policy."""
    seed: int
    """Seed of the run that trained it."""
    profile: str
    """Digest of the resolved profile without its seeds: rows that share it are of one measurement."""
    models: tuple[str, ...]
    """Digest of the policy, and of the reference."""
    dataset: str
    """Digest of the items."""
    harness: str
    n: dict[str, int] = Field(default_factory=dict)
    """Column → items."""
    scores: dict[str, float] = Field(default_factory=dict)
    """Column → mean; of a contrast the difference."""
    low: dict[str, float] = Field(default_factory=dict)
    """Column → lower end of the 95 % interval over items."""
    high: dict[str, float] = Field(default_factory=dict)
    p_le_0: dict[str, float] = Field(default_factory=dict)
    """Column → share of resampled differences at or below 0; contrasts alone."""

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """What a newer row replaces."""
        return self.kind, self.policy, self.reference, self.seed, self.profile


def rows_of(evaluations: Mapping[str, Evaluation], seed: int, profile: str) -> list[Row]:
    """Rows of the evaluations that are there, by policy, and of every contrast whose two sides are."""
    found = [_policy(name, one, seed, profile) for name, one in evaluations.items()]
    for pair in PAIRS:
        if pair.candidate in evaluations and pair.reference in evaluations:
            found.append(_contrast(pair.candidate, pair.reference, evaluations, seed, profile))
    return found


def _policy(name: str, one: Evaluation, seed: int, profile: str) -> Row:
    scores = {suite.id: suite for suite in one.suites}
    measured = {
        column: (scores[suite].scores[metric], scores[suite].n)
        for column, (suite, metric) in COLUMNS.items()
        if suite in scores and metric in scores[suite].scores
    }
    return Row(
        kind="policy",
        policy=name,
        seed=seed,
        profile=profile,
        models=(one.model,),
        dataset=one.dataset,
        harness=one.harness,
        n={column: n for column, (_, n) in measured.items()},
        scores={column: value.mean for column, (value, _) in measured.items()},
        low={column: value.low for column, (value, _) in measured.items()},
        high={column: value.high for column, (value, _) in measured.items()},
    )


def _contrast(candidate: str, reference: str, evaluations: Mapping[str, Evaluation], seed: int, profile: str) -> Row:
    ours, theirs = evaluations[candidate], evaluations[reference]
    if (ours.dataset, ours.harness) != (theirs.dataset, theirs.harness):
        raise InputError(
            f"{candidate} and {reference} were measured on other items or another harness",
            place="evaluations",
            cure="measure both in one run",
        )
    found: dict[str, tuple[float, Contrast]] = {}
    for column, (suite, metric) in COLUMNS.items():
        a, b = ours.suite(suite), theirs.suite(suite)
        if a is None or b is None:
            continue
        left, right = a.values(metric), b.values(metric)
        common = sorted(left.keys() & right.keys())
        if not common:
            continue
        one = paired_bootstrap(
            [left[item] for item in common], [right[item] for item in common], draws=DRAWS, seed=seed
        )
        if one.delta is not None:
            found[column] = one.delta, one
    return Row(
        kind="contrast",
        policy=candidate,
        reference=reference,
        seed=seed,
        profile=profile,
        models=(ours.model, theirs.model),
        dataset=ours.dataset,
        harness=ours.harness,
        n={column: one.n for column, (_, one) in found.items()},
        scores={column: delta for column, (delta, _) in found.items()},
        low={column: one.low for column, (_, one) in found.items()},
        high={column: one.high for column, (_, one) in found.items()},
        p_le_0={column: one.p_le_0 for column, (_, one) in found.items()},
    )


def read_rows(path: Path) -> list[Row]:
    """Rows of a file, the newest of each key, in the order of their first appearance; InputError with file and line."""
    found: dict[tuple[str, str, str, int, str], Row] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the rows of the ablation cannot be read", place=str(path), cure="check the file") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = Row.model_validate_json(line)
        except ValidationError as error:
            place = f"{path}:{number}"
            raise InputError(f"no row of the ablation: {error.errors()[0]['msg']}", place=place) from error
        found[row.key] = row
    return list(found.values())


def append_rows(path: Path, rows: Iterable[Row]) -> int:
    """Add the rows that the file does not hold yet, all or none of them; returns how many."""
    known = {row.key: row for row in read_rows(path)} if path.is_file() else {}
    fresh = [row for row in rows if known.get(row.key) != row]
    if fresh:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        part = path.with_name(f".{path.name}.part{os.getpid()}")
        part.write_text(before + "".join(row.model_dump_json() + "\n" for row in fresh), encoding="utf-8")
        part.replace(path)
    return len(fresh)
