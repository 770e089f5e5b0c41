"""The laws of augmentation over every single-turn BFCL entry: restored exactly, canonical calls equal, gold valid.

Run: `python bench/augment_bfcl.py [draws]`. Needs `bfcl-eval` (`pip install --no-deps bfcl-eval`). Prints the number of
entries and draws; exits 1 at the first entry that breaks a law.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from random import Random
from typing import Any

from hat_components.bfcl import conversations, fits
from hat_harness.augment.conversation import (
    GENERAL,
    KEY,
    augment_conversation,
    canonical_conversation_call,
    restore_conversation,
)
from hat_harness.augment.operators import (
    AnyOperator,
    DistractorTool,
    ParameterName,
    ParameterOrder,
    ParameterType,
    ToolName,
    ToolOrder,
)
from hat_harness.canonical import CanonicalCall

NAMES = ("trained", "random", "combination", "swap", "misleading", "char_noise")


def operators(seed: int) -> list[AnyOperator]:
    """All families that conversations have, with drawn modes."""
    rng = Random(seed)
    return [
        ToolName(modes={rng.choice(NAMES): 1.0}),
        ParameterName(modes={rng.choice(NAMES): 1.0}),
        ParameterType(),
        ToolOrder(),
        ParameterOrder(),
        DistractorTool(counts=(0, 1, 2)),
    ]


def calls(conversation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The gold calls."""
    found = conversation["messages"][-1].get("tool_calls", ())
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in found]


def parsed(conversation: dict[str, Any]) -> dict[str, Any]:
    """The conversation with arguments as objects: grouping does not keep the order of their keys."""
    made = json.loads(json.dumps(conversation))
    for message in made["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return made


def check(conversation: dict[str, Any], seed: int, counts: Counter[str]) -> str:
    """The law that one draw breaks, or ""; `counts` gains what was rewritten."""
    made = augment_conversation(conversation, operators(seed), seed, GENERAL)
    for rewrite in made["metadata"][KEY]["rewrites"]:
        counts.update({kind.partition("/")[0]: len(names) for kind, names in rewrite["names"].items()})
    if parsed(restore_conversation(made)) != parsed(conversation):
        return "restored conversation differs"
    if made != augment_conversation(conversation, operators(seed), seed, GENERAL):
        return "the same seed gave other bytes"
    valid = fits(conversation)
    if valid and not fits(made):
        return "a valid gold call became invalid"
    for (name, arguments), (old_name, old) in zip(calls(made), calls(conversation), strict=True):
        found = canonical_conversation_call(made, name, arguments)
        if valid and found != CanonicalCall(old_name, old):
            return f"canonical call {found} is not {old_name}({old})"
    return ""


def main() -> int:
    """Checks all entries."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    start, entries, wrong, rewrites = time.process_time(), 0, 0, 0
    counts: Counter[str] = Counter()
    for entry in conversations():
        entries += 1
        wrong += not fits(entry)
        for draw in range(draws):
            rewrites += 1
            broken = check(entry, entries * 100 + draw, counts)
            if broken:
                print(f"{entry['id']} draw {draw}: {broken}")
                return 1
    spent = time.process_time() - start
    print(f"{entries} entries, {rewrites} draws, all laws hold, {spent:.1f} s of processor time")
    print(
        f"renamed: {counts['tool']} tools, {counts['parameter']} parameters, {counts['inner']} properties inside parameters"
    )
    print(f"{wrong} entries contradict their own schema in BFCL; for them validity is not checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
