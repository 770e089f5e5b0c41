"""The policies of the ablation, and which contrasts tables make of them.

Always holds: every policy that a table names is one that the pipeline `ablate` trains. Not here: training, scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

POLICIES: Final = {
    "base": "Base",
    "sft-naive": "+ SFT",
    "opd-naive": "+ General OPD",
    "rl-naive": "+ RL",
    "sft-hsa": "+ Aug-SFT",
    "opd-hsa": "+ General OPD",
    "rl-hsa": "+ RL",
    "hat": "+ Aug env (HAT)",
    "distil-orig": "Agentic OPD, original harness",
    "distil-aug": "Agentic OPD, augmented harnesses",
    "cell-std-std": "SFT, RL",
    "cell-std-aug": "SFT, RL in augmented harnesses",
    "cell-aug-std": "Aug-SFT, RL",
    "cell-aug-aug": "Aug-SFT, RL in augmented harnesses",
}
"""Step that trains it → its label in tables."""
STAGES: Final = tuple(POLICIES)[:8]
"""Rows of table t4, in order."""
ABOVE: Final = {
    "sft-naive": "base",
    "opd-naive": "sft-naive",
    "rl-naive": "opd-naive",
    "sft-hsa": "base",
    "opd-hsa": "sft-hsa",
    "rl-hsa": "opd-hsa",
    "hat": "opd-hsa",
}
"""Stage → the stage that it was added to."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One paired contrast: candidate minus reference, on the same items."""

    candidate: str
    reference: str
    label: str


PAIRS: Final = (
    *(Pair(after, before, f"{after} − {before}") for after, before in ABOVE.items()),
    Pair("sft-hsa", "sft-naive", "Aug-SFT − SFT"),
    Pair("hat", "rl-hsa", "RL: augmented − original harnesses"),
    Pair("rl-hsa", "rl-naive", "RL on Aug-SFT − RL on SFT"),
    Pair("hat", "rl-naive", "HAT − RL on SFT"),
    Pair("rl-hsa", "distil-orig", "RL − OPD, original harness"),
    Pair("hat", "distil-aug", "RL − OPD, augmented harnesses"),
    Pair("distil-aug", "distil-orig", "OPD: augmented − original harnesses"),
    Pair("cell-std-aug", "cell-std-std", "SFT: RL in augmented − original"),
    Pair("cell-aug-std", "cell-std-std", "RL: Aug-SFT − SFT"),
    Pair("cell-aug-aug", "cell-aug-std", "Aug-SFT: RL in augmented − original"),
)
COLUMNS: Final = {
    "T1": ("t1", "average"),
    "T2": ("t2", "average"),
    "T2x": ("t2x", "average"),
    "Tool": ("t3-tool", "average"),
    "Prompt": ("t3-prompt", "average"),
    "IFE-P": ("t4", "prompt_strict"),
    "IFE-I": ("t4", "instruction_strict"),
    "T4m": ("t4m", "followed"),
}
"""Column → (suite, metric)."""
