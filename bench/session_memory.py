"""Memory of many live sessions: each with two finished turns of a tool call, its context and its whole trace held.

Prints one JSON object: bytes a session, MB of the process before and after, and the floor (the same messages as plain
lists of dicts). Exits 1 when the sessions take 500 MB or more. Run: python bench/session_memory.py [sessions]
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from harness_episode import ROOM, harness

from hat_harness.events import CallModel, CallTools, ModelOutput, ToolCall, ToolResult, ViewerMessage
from hat_harness.hooks import compile_hooks
from hat_harness.render import render_system
from hat_harness.session import Session

MOST_MB = 500.0


def resident_mb() -> float:
    """MB that the process holds now; its peak where the system does not tell."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def turn(session: Session, number: int) -> None:
    """One turn with a tool call; texts differ from session to session, as real ones do."""
    call = next(
        one for one in session.handle(ViewerMessage((f"how much is mug {number}",))) if isinstance(one, CallModel)
    )
    asked = ToolCall("", "tool_3", {"item": f"mug {number}", "count": 2})
    actions = session.handle(ModelOutput(call.call_id, "", f"look up {number}", (asked,), "tool_calls"))
    tools = next(one for one in actions if isinstance(one, CallTools))
    actions = session.handle(ToolResult(tools.calls[0].call_id, f"mug {number} : price 39 , stock 7"))
    call = next(one for one in actions if isinstance(one, CallModel))
    session.handle(ModelOutput(call.call_id, "the mug is 39 yuan bye"))


def plain(prompt: str, number: int) -> list[dict[str, Any]]:
    """The same messages and nothing else."""
    made: list[dict[str, Any]] = [{"role": "system", "content": prompt}]
    for _ in range(2):
        made += [
            {"role": "user", "content": f"how much is mug {number}"},
            {
                "role": "assistant",
                "tool_calls": [{"name": "tool_3", "arguments": {"item": f"mug {number}", "count": 2}}],
            },
            {"role": "tool", "content": f"mug {number} : price 39 , stock 7"},
            {"role": "assistant", "content": "the mug is 39 yuan bye"},
        ]
    return made


def main(count: int = 10_000) -> int:
    """Measures, prints, judges."""
    given = harness(True)
    compiled = compile_hooks(given)
    prompt = render_system(given, ROOM)
    start = resident_mb()
    lists = [plain(prompt, number) for number in range(count)]
    floor = resident_mb() - start
    before = resident_mb()
    sessions = []
    for number in range(count):
        session = Session(given, session_id=f"s{number}", room=dict(ROOM), hooks=compiled)
        turn(session, number)
        turn(session, number + 1)
        sessions.append(session)
    after = resident_mb()
    used = after - before
    report = {
        "sessions": len(sessions),
        "mb": round(used, 1),
        "kb_a_session": round(used * 1024 / count, 1),
        "floor_mb": round(floor, 1),
        "times_floor": round(used / max(floor, 0.1), 1),
        "process_mb": round(after, 1),
        "floor_lists": len(lists),
    }
    print(json.dumps(report, indent=2))
    return 0 if used < MOST_MB else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
