"""Public tool calling: the single-turn half of the Berkeley Function Calling Leaderboard as OpenAI chat conversations.

Reads the data files of the installed package `bfcl-eval` (Apache-2.0) and nothing else of it. Always holds: an entry's half
(`held_in` for training, `held_out` for suite T5) follows from the SHA-256 of its id; every emitted gold call fits the
schema of its tool. Shipped samples of both halves: `samples/`, written by `python -m hat_components.bfcl FOLDER`.
Not here: BFCL's rules for right calls (bfcl_check), multi-turn and agentic categories.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hat_components.step import InputError
from hat_harness.arguments import check_arguments
from hat_harness.spec import Tool

Half = Literal["held_in", "held_out"]
HALVES: tuple[Half, ...] = ("held_in", "held_out")
Conversation = dict[str, Any]

CALLING = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
"""Categories whose gold is one call or several."""
ABSTAINING = ("irrelevance", "live_irrelevance")
"""Categories in which no tool fits. `live_relevance` says that some call is right but not which: it is left out."""
SCORED = tuple(category for category in (*CALLING, *ABSTAINING) if "java" not in category)
"""Categories of suite T5: Java and JavaScript ask for source literals as text, which JSON calls do not have."""
NO_TOOL = "None of the available tools fits this request."
SAMPLES = Path(__file__).with_name("samples")
"""Folder of the shipped samples: `bfcl_held_in.jsonl`, `bfcl_held_out.jsonl`, NOTICE."""

_TYPES = {
    **dict.fromkeys(("string", "String", "char"), "string"),
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool", "Boolean"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "Array", "ArrayList", "Queue", "Stack"), "array"),
    **dict.fromkeys(("dict", "object", "HashMap", "Hashtable"), "object"),
}


def data_folder() -> Path:
    """Where the installed package keeps its data; InputError when it is not installed."""
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        raise InputError("the package bfcl-eval is not installed", cure="pip install --no-deps bfcl-eval")
    return Path(spec.origin).with_name("data")


def half_of(identifier: str) -> Half:
    """The half that an entry belongs to, by the first byte of the SHA-256 of its id."""
    return "held_in" if hashlib.sha256(identifier.encode()).digest()[0] < 128 else "held_out"


def conversations(categories: Sequence[str] = (*CALLING, *ABSTAINING)) -> Iterator[Conversation]:
    """Every entry of the categories that has tools and a readable gold, in the package's order."""
    folder = data_folder()
    for category in categories:
        answers: dict[str, Any] = {}
        if category in CALLING:
            answers = {row["id"]: row["ground_truth"] for row in _rows(folder / "possible_answer", category)}
        for entry in _rows(folder, category):
            if entry["function"] and (category in ABSTAINING or entry["id"] in answers):
                yield conversation(entry, category, answers.get(entry["id"], ()))


@dataclass(frozen=True, slots=True)
class Task:
    """One entry with what is needed to score calls by BFCL's rules."""

    id: str
    category: str
    messages: tuple[dict[str, Any], ...]
    """What the model reads."""
    tools: tuple[dict[str, Any], ...]
    functions: tuple[Mapping[str, Any], ...]
    """The functions in BFCL's own schema dialect."""
    answers: tuple[Mapping[str, Any], ...]
    """One for each gold call; empty where no tool fits."""
    sound: bool
    """Whether the gold calls fit the schemas of their tools."""


def tasks(half: Half, limit: int | None = None) -> list[Task]:
    """Entries of one half in `SCORED` categories, in an order that mixes them; the first `limit`."""
    folder = data_folder()
    found: list[Task] = []
    for category in SCORED:
        answers: dict[str, Any] = {}
        if category in CALLING:
            answers = {row["id"]: row["ground_truth"] for row in _rows(folder / "possible_answer", category)}
        for entry in _rows(folder, category):
            if (
                entry["function"]
                and half_of(entry["id"]) == half
                and (category in ABSTAINING or entry["id"] in answers)
            ):
                gold = answers.get(entry["id"], ())
                made = conversation(entry, category, gold)
                messages, tools = tuple(made["messages"][:-1]), tuple(made["tools"])
                found.append(
                    Task(entry["id"], category, messages, tools, tuple(entry["function"]), tuple(gold), fits(made))
                )
    found.sort(key=lambda task: hashlib.sha256(f"t5 {task.id}".encode()).digest())
    return found[:limit]


def _rows(folder: Path, category: str) -> Iterator[dict[str, Any]]:
    with (folder / f"BFCL_v4_{category}.json").open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def conversation(entry: Mapping[str, Any], category: str, gold: Sequence[Mapping[str, Any]]) -> Conversation:
    """One entry in OpenAI chat format. Dots in function names become underscores, as OpenAI asks."""
    tools = [_tool(function) for function in entry["function"]]
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    calls = []
    for number, (name, arguments) in enumerate(item for call in gold for item in call.items()):
        own = name.replace(".", "_")
        made = _gold_object(arguments, schemas.get(own, {}))
        function = {"name": own, "arguments": json.dumps(made, ensure_ascii=False)}
        calls.append({"id": f"call_{number}", "type": "function", "function": function})
    answer: dict[str, Any] = {"role": "assistant", "content": "" if calls else NO_TOOL}
    if calls:
        answer["tool_calls"] = calls
    messages = [{"role": message["role"], "content": message["content"]} for message in entry["question"][0]]
    metadata = {"source": "bfcl", "category": category, "half": half_of(entry["id"])}
    return {"id": entry["id"], "messages": [*messages, answer], "tools": tools, "metadata": metadata}


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    made = {
        "name": function["name"].replace(".", "_"),
        "description": function.get("description", ""),
        "parameters": json_schema(function["parameters"]),
    }
    return {"type": "function", "function": made}


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """BFCL's schema dialect as JSON Schema: its language-specific type names, `any`, and `optional` go."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type":
            if value in _TYPES:
                made["type"] = _TYPES[value]
        elif key == "properties" and isinstance(value, Mapping):
            made[key] = {
                name: json_schema(inner) if isinstance(inner, Mapping) else {} for name, inner in value.items()
            }
        elif key == "items" and isinstance(value, Mapping):
            made[key] = json_schema(value)
        elif key == "required" and isinstance(value, list):
            made[key] = [name for name in value if name in schema.get("properties", {})]
        elif key in ("description", "default", "enum", "format", "minimum", "maximum", "minItems", "maxItems"):
            made[key] = value
    return made


def _gold_object(answers: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The first acceptable value of each parameter; "" in first place says that an optional one is left out."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    made = {}
    for name, choices in answers.items():
        values = choices if isinstance(choices, list) else [choices]
        if values and (values[0] != "" or name in required):
            made[name] = _gold_value(values[0], properties.get(name, {}))
    return made


def _gold_value(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return _gold_object(value, schema)
    if isinstance(value, list):
        return [_gold_value(inner, schema.get("items", {})) for inner in value]
    return value


def fits(made: Conversation) -> bool:
    """Whether every gold call fits the schema of its tool (some entries of BFCL contradict their own schema)."""
    tools = {}
    for entry in made["tools"]:
        function = entry["function"]
        name = function["name"]
        tools[name] = Tool.model_construct(id=name, name=name, description="", parameters=function["parameters"])
    for call in made["messages"][-1].get("tool_calls", ()):
        tool = tools.get(call["function"]["name"])
        if tool is None or check_arguments(tool, json.loads(call["function"]["arguments"])):
            return False
    return len(tools) == len(made["tools"])


# ---- samples --------------------------------------------------------------------------------------------------


def sample(half: Half, count: int, most_bytes: int) -> list[Conversation]:
    """`count` conversations of one half, as even over the categories as they allow, none longer than `most_bytes`."""
    by_category: dict[str, list[Conversation]] = {}
    for made in conversations():
        if made["metadata"]["half"] == half and fits(made) and len(line(made)) <= most_bytes:
            by_category.setdefault(made["metadata"]["category"], []).append(made)
    for found in by_category.values():
        found.sort(key=lambda made: hashlib.sha256(f"sample {made['id']}".encode()).digest())
    chosen: list[Conversation] = []
    turn = 0
    while len(chosen) < count and any(len(found) > turn for found in by_category.values()):
        chosen += [found[turn] for found in by_category.values() if len(found) > turn]
        turn += 1
    return sorted(chosen[:count], key=lambda made: str(made["id"]))


def line(made: Conversation) -> bytes:
    """One JSONL line."""
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def load_sample(half: Half) -> list[Conversation]:
    """The shipped sample of one half; it needs no installed package."""
    text = (SAMPLES / f"bfcl_{half}.jsonl").read_text(encoding="utf-8")
    return [json.loads(row) for row in text.splitlines()]


def main(arguments: Sequence[str]) -> None:
    """Writes the samples into the folder that is given."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    sizes: tuple[tuple[Half, int], ...] = (("held_in", 120), ("held_out", 60))
    for half, count in sizes:
        rows = sample(half, count, 3000)
        (folder / f"bfcl_{half}.jsonl").write_bytes(b"".join(line(row) for row in rows))
        sys.stdout.write(f"{half}: {len(rows)} conversations\n")


if __name__ == "__main__":
    main(sys.argv[1:])
