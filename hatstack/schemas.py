"""Every published format of the platform with its model: `python -m hatstack.schemas` writes docs/schemas anew.

Not here: the models (their packages), what a change of one needs (a format number, a reader for the old one, a design note).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"


def formats() -> dict[str, type[BaseModel]]:
    """Format name → model, of all packages above the harness."""
    from hat_components.data import Dataset, Trajectory
    from hat_components.evaluate.result import Evaluation
    from hat_pipelines.runs import RunRecord
    from hat_registry.evidence import Evidence
    from hat_registry.ledger import Body
    from hat_registry.releases import Release

    return {
        "hatstack.trajectory/1": Trajectory,
        "hatstack.dataset/1": Dataset,
        "hatstack.evaluation/1": Evaluation,
        "hatstack.evidence/1": Evidence,
        "hatstack.release/1": Release,
        "hatstack.ledger/1": Body,
        "hatstack.run/1": RunRecord,
    }


if __name__ == "__main__":
    from hat_harness.schemas import regenerate

    regenerate([FOLDER], formats())
