"""Damaged input for everything that reads: harness folders, skills, conversations, schemas; one counter over all of it.

Takes real inputs (the live-commerce harness, an Agent Skill, public conversations, their tools), damages them by a seeded
generator (bytes, lines, tokens, JSON values) and gives each to its reader. An input must be taken or refused by the
reader's own error, within `SLOW_S`; what is taken must keep its law: a harness saves and loads as itself, a skill
is exported byte for byte, a rewritten conversation comes back. Prints one JSON object with counts; exits 1 with the input
at the first that breaks this. Run: python bench/harness_fuzz.py [inputs] [seed]
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from augment_bfcl import operators, parsed
from augment_rate import HARNESS
from harness_episode import harness as sample_harness

from hat_components.bfcl import load_sample
from hat_components.importer.conversation import Reader
from hat_harness.augment.conversation import GENERAL, augment_conversation, restore_conversation
from hat_harness.errors import AugmentError, LoadError
from hat_harness.load import parse_files, read_folder
from hat_harness.reading import ReadError, read_json, read_yaml
from hat_harness.save import harness_files
from hat_harness.schema_checks import schema_problems
from hat_harness.skills_folder import add_skills, parse_skill, skill_files
from hat_harness.spec import Harness

SLOW_S = 5.0
"""CPU seconds of one input, at most."""
TOKENS = [
    *(
        b"---\n",
        b"\n",
        b": ",
        b"- ",
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"'",
        b"\\",
        b"&a",
        b"*a",
        b"!!",
        b"<<: ",
        b"|",
        b">",
        b"#",
    ),
    *(
        b"\xff",
        b"\x00",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\r\n",
        b"null",
        b"true",
        b"1e999",
        b"-0",
        b"9" * 30,
        b"$ref",
    ),
    *(b"type", b"properties", b"enum", b"anyOf", b"name", b"`x_y`", b"{reply}", b"\xed\xa0\x80", b"\\ud800", b"role"),
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    {"type": "object"},
    {"$ref": "#"},
    "9" * 99,
]
Target = Callable[[Random], str]
"""Makes and reads one input; returns how it ended. Raises what should not happen."""


def damaged(data: bytes, rng: Random) -> bytes:
    """The bytes with one to three faults."""
    for _ in range(rng.randint(1, 3)):
        at, length = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 8, 60])
        kind = rng.randrange(6)
        if kind == 0:
            data = data[:at] + data[at + length :]
        elif kind == 1:
            data = data[:at] + rng.choice(TOKENS) + data[at:]
        elif kind == 2:
            data = data[:at] + bytes(rng.randrange(256) for _ in range(length)) + data[at + length :]
        elif kind == 3:
            data = data[:at] + data[at : at + length] * rng.choice([2, 5]) + data[at + length :]
        elif kind == 4:
            lines = data.split(b"\n")
            place = rng.randrange(len(lines))
            lines.insert(rng.randrange(len(lines) + 1), lines.pop(place))
            data = b"\n".join(lines)
        else:
            data = data[:at]
    return data


def bent(value: Any, rng: Random, depth: int = 0) -> Any:
    """A JSON value with one value inside it replaced, removed or moved."""
    if depth > 8 or not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(VALUES)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:at] + value[at + 1 :]
        return [*value[:at], bent(value[at], rng, depth + 1), *value[at + 1 :]]
    key = rng.choice(list(value))
    if rng.random() < 0.2:
        return {other: inner for other, inner in value.items() if other != key}
    if rng.random() < 0.1:
        return {rng.choice(["", "type", "$ref", "x" * 200, "a.b"]) if k == key else k: v for k, v in value.items()}
    return {**value, key: bent(value[key], rng, depth + 1)}


def loader() -> Target:
    """One file of a small harness is damaged; the folder is loaded."""
    whole = sample_harness(True)
    update = {"skills": whole.skills[:2], "tools": whole.tools[:2], "hooks": whole.hooks[4:6]}
    small = harness_files(whole.model_copy(update=update))
    parse_files(small)
    names = sorted(small)

    def run(rng: Random) -> str:
        name = rng.choice(names)
        changed = {**small, name: damaged(small[name], rng)}
        try:
            harness = parse_files(changed, strict=rng.random() < 0.5)
        except LoadError:
            return "refused"
        assert parse_files(harness_files(harness), strict=False) == harness
        return "taken"

    return run


def texts() -> Target:
    """One file of the harness is damaged and read as what it is: the bulk of what a loader meets."""
    files = read_folder(HARNESS)
    yaml = [data for path, data in sorted(files.items()) if path.endswith(".yaml")]
    tools = [data for path, data in sorted(files.items()) if path.endswith(".json")]

    def run(rng: Random) -> str:
        as_json = rng.random() < 0.5
        text = damaged(rng.choice(tools if as_json else yaml)[:1500], rng).decode(errors="replace")
        try:
            document = read_json(text) if as_json else read_yaml(text)
        except ReadError:
            return "refused"
        assert () in document.lines or document.value is None
        return "taken"

    return run


def skills() -> Target:
    """SKILL.md files, strict and lenient; what is taken is exported as it came."""
    bodies = [data for path, data in sorted(read_folder(HARNESS).items()) if path.endswith("SKILL.md")]
    empty = Harness(name="fuzz")

    def run(rng: Random) -> str:
        data = damaged(rng.choice(bodies), rng)
        try:
            one = parse_skill({"SKILL.md": data, "a/b.md": b"x"}, "item-faq", lenient=rng.random() < 0.7)
        except LoadError:
            return "refused"
        harness = add_skills(empty, [one])
        assert skill_files(harness, one.skill.id) == {"SKILL.md": data, "a/b.md": b"x"}
        return "taken"

    return run


def conversations() -> Target:
    """Lines of conversations, damaged as bytes or as JSON."""
    rows = load_sample("held_in")
    reader = Reader()

    def run(rng: Random) -> str:
        row = rng.choice(rows)
        line = json.dumps(bent(row, rng)).encode() if rng.random() < 0.6 else damaged(json.dumps(row).encode(), rng)
        _, problems = reader.parse(line)
        return "refused" if problems else "taken"

    return run


def schemas() -> Target:
    """Tools with bent schemas: checked, and where they can be used rewritten and led back."""
    rows = load_sample("held_in")

    def run(rng: Random) -> str:
        row = rng.choice(rows)
        at = rng.randrange(len(row["tools"]))
        function = row["tools"][at]["function"]
        schema = bent(function["parameters"], rng)
        if schema_problems(schema):
            return "refused"
        tool = {"type": "function", "function": {**function, "parameters": schema}}
        given = {"messages": row["messages"], "tools": [*row["tools"][:at], tool, *row["tools"][at + 1 :]]}
        seed = rng.randrange(10**6)
        try:
            made = augment_conversation(given, operators(seed), seed, GENERAL)
        except AugmentError:
            return "refused"
        assert parsed(restore_conversation(made)) == parsed(given)
        return "taken"

    return run


SHARES: dict[str, tuple[Callable[[], Target], int]] = {
    "loader": (loader, 1),
    "texts": (texts, 8),
    "skills": (skills, 3),
    "conversations": (conversations, 6),
    "schemas": (schemas, 2),
}


def main(inputs: int = 1_000_000, seed: int = 1) -> int:
    """Feeds all readers in turn, by their shares."""
    targets = {name: (make(), share) for name, (make, share) in SHARES.items()}
    order = [name for name, (_, share) in targets.items() for _ in range(share)]
    counts: Counter[str] = Counter()
    slowest: dict[str, float] = dict.fromkeys(targets, 0.0)
    spent: dict[str, float] = dict.fromkeys(targets, 0.0)
    for number in range(inputs):
        name = order[number % len(order)]
        began = time.process_time()
        try:
            ended = targets[name][0](Random(f"{seed} {number}"))
        except Exception as error:
            print(
                json.dumps(
                    {"target": name, "seed": seed, "number": number, "error": f"{type(error).__name__}: {error}"[:500]}
                )
            )
            raise
        took = time.process_time() - began
        spent[name] += took
        slowest[name] = max(slowest[name], took)
        counts[f"{name} {ended}"] += 1
        if took > SLOW_S:
            print(json.dumps({"target": name, "seed": seed, "number": number, "seconds": took}))
            return 1
    report = {
        "inputs": inputs,
        "counts": dict(sorted(counts.items())),
        "slowest_ms": {name: round(took * 1e3, 1) for name, took in slowest.items()},
        "cpu_s": {name: round(took, 1) for name, took in spent.items()},
    }
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
