"""CPU of one agent episode (viewer asks, model calls a tool, tool answers, model replies) against a hand-written loop.

Run: `python bench/harness_episode.py [rounds]`. Interleaved rounds of 2,000 episodes; the median of each round's CPU time
per episode, and the median of the per-round ratios to the floor: a dict-and-list loop that checks nothing and keeps
nothing. A session checks arguments against the tool's JSON Schema, keeps a replayable trace and, in the last rows,
evaluates eight CEL hooks, or the ten of the shipped live-commerce harness, whose reply needs a skill loaded beside the tool;
`+ trace` also builds the `Trace`. The model and the tool are functions that cost the same everywhere.
Prints one JSON object; exits 1 when a goal is missed (0.1 ms without hooks, 0.3 ms with hooks, both with the trace,
scaled by how much slower than the reference machine a calibration loop runs; import within 150 ms of pydantic's own).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hat_harness.events import CallTools, ModelOutput, Reply, ToolCall, ToolResult, ViewerMessage
from hat_harness.hooks import NO_HOOKS, CompiledHooks, compile_hooks
from hat_harness.load import load_harness
from hat_harness.session import Session
from hat_harness.spec import Harness, Hook, Prompt, Skill, Tool

EPISODES = 2_000
LIVE_COMMERCE = Path(__file__).resolve().parents[1] / "harness-registry" / "harnesses" / "live-commerce"
REFERENCE_MS = 0.5
"""What the calibration loop took on the machine of the goals."""
ROOM = {"list": ["red mug", "blue lamp", "steel kettle", "wool scarf"], "sale": "ten"}
SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["item"],
}
CONDITIONS = [
    ("before_model", "turn > 99", "refuse"),
    ("after_model", "calls.exists(c, c == 'pay') && skills.size() == 0", "block"),
    ("before_tool", "tool.id == 'pay' && skills.size() == 0", "block"),
    ("after_tool", "tool.failed == true", "annotate"),
    ("stop", "!reply.endsWith(args.gate)", "require"),
    ("stop", "!numbers.all(n, n in known_numbers)", "block"),
    ("stop", "reply.lowerAscii().contains('guarantee')", "refuse"),
    ("stop", "reply.size() > 400", "block"),
]


def harness(hooks: bool) -> Harness:
    """Thirteen skills, eleven tools, eight hooks or none: the size of the live-commerce harness."""
    return Harness(
        name="bench",
        skills=tuple(
            Skill(id=f"skill_{i}", name=f"skill_{i}", description=f"do the thing {i}", body="be kind .")
            for i in range(13)
        ),
        tools=tuple(
            Tool(id=f"tool_{i}", name=f"tool_{i}", description=f"look up {i}", parameters=dict(SCHEMA))
            for i in range(11)
        ),
        prompts=(Prompt(id="rules", section="rules", text="end every reply with = bye"),),
        hooks=tuple(
            Hook(id=f"h{i}", event=event, when=when, action=action, message="m", arguments={"gate": "bye"})  # type: ignore[arg-type]
            for i, (event, when, action) in enumerate(CONDITIONS)
        )
        if hooks
        else (),
    )


def session_episode(given: Harness, hooks: CompiledHooks, number: int, trace: bool) -> None:
    """One episode through a session."""
    session = Session(given, session_id=f"s{number}", room=ROOM, hooks=hooks)
    (call, _) = session.handle(ViewerMessage(("how much is the red mug",)))
    asked = ToolCall("", "tool_3", {"item": "red mug", "count": 2})
    (tools,) = session.handle(ModelOutput(call.call_id, "", "look up 3:tool_3(item", (asked,), "tool_calls"))  # type: ignore[union-attr]
    assert isinstance(tools, CallTools)
    (call,) = session.handle(ToolResult(tools.calls[0].call_id, "red mug : price 39 , stock 7"))
    (reply, _) = session.handle(ModelOutput(call.call_id, "the red mug is 39 yuan bye"))  # type: ignore[union-attr]
    assert isinstance(reply, Reply)
    assert not reply.safe
    if trace:
        assert session.trace.entries


def room_episode(given: Harness, hooks: CompiledHooks, number: int) -> None:
    """The same under live-commerce, with the trace: the model loads its skill and asks for the record in one output."""
    session = Session(given, session_id=f"s{number}", room=ROOM, hooks=hooks)
    (call, _) = session.handle(ViewerMessage(("how much is the red mug",)))
    asked = (ToolCall("", "use_skill", {"skill": "item_qa"}), ToolCall("", "get_item", {"item": "red mug"}))
    (tools,) = session.handle(ModelOutput(call.call_id, "", "price", asked, "tool_calls"))  # type: ignore[union-attr]
    assert isinstance(tools, CallTools)
    (call,) = session.handle(ToolResult(tools.calls[0].call_id, "red mug : price 39 , stock 7"))
    said = "dear , the red mug is 39 yuan thanks for watching"
    (reply, _) = session.handle(ModelOutput(call.call_id, said))  # type: ignore[union-attr]
    assert isinstance(reply, Reply)
    assert not reply.safe
    assert session.trace.entries


def floor_episode(prompt: str, number: int) -> None:
    """The least that a loop must do."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": "how much is the red mug"},
    ]
    outputs = iter(
        (
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "a", "name": "tool_3", "arguments": {"item": "red mug"}}],
            },
            {"role": "assistant", "content": "the red mug is 39 yuan bye"},
        )
    )
    tools: dict[str, Callable[..., str]] = {"tool_3": lambda item: f"{item} : price 39 , stock 7"}
    while True:
        output = next(outputs)
        messages.append(output)
        if "tool_calls" not in output:
            return
        for call in output["tool_calls"]:
            result = tools[call["name"]](**call["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def calibrate() -> float:
    """Milliseconds of a fixed loop."""
    began = time.process_time()
    total = 0
    for i in range(20_000):
        total += i % 7
    return (time.process_time() - began) * 1e3


def measured(run: Callable[[int], None]) -> float:
    """CPU microseconds an episode."""
    began = time.process_time()
    for number in range(EPISODES):
        run(number)
    return (time.process_time() - began) / EPISODES * 1e6


def import_ms(code: str) -> float:
    """CPU milliseconds of a fresh interpreter that runs `code`, the least of five."""
    probe = f"import time; began = time.process_time(); {code}; print((time.process_time() - began) * 1e3)"
    runs = [subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def main(rounds: int = 7) -> int:
    """Measures, prints, and says whether the goals are met."""
    plain, hooked = harness(False), harness(True)
    compiled = compile_hooks(hooked)
    room = load_harness(LIVE_COMMERCE)
    of_room = compile_hooks(room)
    rows: dict[str, Callable[[int], None]] = {
        "floor": lambda i: floor_episode("x" * 600, i),
        "session": lambda i: session_episode(plain, NO_HOOKS, i, False),
        "session + trace": lambda i: session_episode(plain, NO_HOOKS, i, True),
        "session, 8 hooks": lambda i: session_episode(hooked, compiled, i, False),
        "session, 8 hooks + trace": lambda i: session_episode(hooked, compiled, i, True),
        "live-commerce, its hooks + trace": lambda i: room_episode(room, of_room, i),
    }
    times: dict[str, list[float]] = {name: [] for name in rows}
    slow: list[float] = []
    for _ in range(rounds):
        slow.append(calibrate() / REFERENCE_MS)
        for name, run in rows.items():
            times[name].append(measured(run))
    medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
    ratios = {
        name: round(statistics.median(a / b for a, b in zip(values, times["floor"], strict=True)), 1)
        for name, values in times.items()
    }
    pydantic = import_ms(
        "import pydantic; from pydantic import BaseModel, Field; exec('class A(BaseModel):\\n a: int')"
    )
    imported = import_ms("import hat_harness.session")
    factor = max(1.0, statistics.median(slow))
    report = {
        "cpu_us_per_episode": medians,
        "ratio_to_floor": ratios,
        "import_ms": {"pydantic": round(pydantic), "hat_harness.session": round(imported)},
        "slower_than_reference": round(statistics.median(slow), 2),
    }
    print(json.dumps(report, indent=2))
    met = (
        medians["session + trace"] <= 100 * factor
        and medians["session, 8 hooks + trace"] <= 300 * factor
        and medians["live-commerce, its hooks + trace"] <= 300 * factor
        and imported - pydantic <= 150 * factor
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
