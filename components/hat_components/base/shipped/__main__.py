"""`python -m hat_components.base.shipped FOLDER NAME [EVALUATION]`: ship a trained base, with the scores of an evaluation."""

from __future__ import annotations

import sys
from pathlib import Path

from hat_components.base.shipped import make
from hat_components.evaluate.result import load_evaluation


def main(folder: str, name: str, evaluation: str = "") -> None:
    """Ship it and print the digest."""
    scores = {}
    if evaluation:
        suites = load_evaluation(Path(evaluation)).suites
        scores = {suite.id: round(suite.scores[suite.headline].mean, 4) for suite in suites}
    sys.stdout.write(make(Path(folder), name, scores) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
