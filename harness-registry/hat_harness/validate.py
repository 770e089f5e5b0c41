"""Is a harness consistent?"""

from __future__ import annotations

from hat_harness.errors import Problem
from hat_harness.spec import Harness


def validate(harness: Harness) -> list[Problem]:
    """Every inconsistency, in order of part."""
    raise NotImplementedError
