"""A trace as a page tells it: turn by turn what was said, thought, called and judged, with times and a waterfall.

Always holds: everything comes from the trace alone; times are milliseconds since the turn began. Not here: where traces
are found (pages.traces), who may see them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from hat_components.report.conversations import cited_lines
from hat_harness.export import to_spans
from hat_harness.trace import Entry, Trace, turns

EPOCH_S = 1e9
"""A session's clock at or above this tells the time of day; below it is a clock of its own."""
_OWN = re.compile(r"^hatstack\.|^gen_ai\.usage\.|^error\.type$")
Row = dict[str, Any]


def told(trace: Trace, *, upto: int, most: int) -> Row:
    """The last `most` turns up to turn `upto` (0: the newest), with the harness lines that their reasoning quotes."""
    summaries = [one for one in turns(trace) if not upto or one.index <= upto]
    shown = summaries[-most:]
    entries: dict[int, list[Entry]] = {one.index: [] for one in shown}
    for entry in trace.entries:
        if entry.turn in entries:
            entries[entry.turn].append(entry)
    lines = _prompt(trace, entries.values())
    bars = _bars(trace)
    rows = []
    for one in shown:
        row = asdict(one)
        del row["calls"], row["hooks"], row["reasoning"]
        row |= {"at": _moment(one.started), "ms": _ms(one.ended - one.started), "bars": bars.get(one.index, [])}
        row["steps"] = [step for entry in entries[one.index] for step in _step(entry, one.started, lines)]
        rows.append(row)
    quoted = {line for row in rows for step in row["steps"] for line in step.get("cites", ())}
    return {
        "session": trace.session,
        "harness": trace.harness,
        "harness_name": trace.harness_name,
        "room": trace.room,
        "at": _moment(trace.started),
        "timed": any(row["ms"] for row in rows),
        "count": len(turns(trace)),
        "earlier": shown[0].index - 1 if shown and shown[0].index > 1 else 0,
        "turns": rows,
        "prompt": [{"text": line, "cited": line.strip() in quoted} for line in lines],
        "segments": [
            {"index": one.index, "reason": one.reason, "harness": one.harness, "messages": len(one.messages)}
            for one in trace.segments
        ],
        "ignored": trace.ignored,
    }


def _prompt(trace: Trace, wanted: Any) -> list[str]:
    """The lines of the system prompt that the last shown turns were rendered under."""
    asked = [entry.data.get("segment") for part in wanted for entry in part if entry.type == "CallModel"]
    by_index = {one.index: one for one in trace.segments}
    segment = by_index.get(asked[-1]) if asked else None
    chosen = segment or (trace.segments[-1] if trace.segments else None)
    system = next((one.content for one in chosen.messages if one.role == "system"), "") if chosen else ""
    return system.splitlines()


def _step(entry: Entry, began: float, lines: Sequence[str]) -> list[Row]:
    """What one entry adds to the telling; nothing for entries that others say better."""
    data = entry.data
    base: Row = {"ms": _ms(entry.at - began), "type": entry.type}
    match entry.kind, entry.type:
        case "event", "ModelOutput":
            reasoning = str(data.get("reasoning", ""))
            cites = cited_lines(reasoning, [line.strip() for line in lines if line.strip()]) if reasoning else ()
            asked = [_called(call.get("name", ""), call.get("arguments", {})) for call in data.get("tool_calls", ())]
            told = {"content": data.get("content", ""), "reasoning": reasoning, "cites": list(cites), "asked": asked}
            used = {name: data.get(name, 0) for name in ("prompt_tokens", "completion_tokens")}
            return [{**base, "kind": "model", **told, **used, "finish": data.get("finish_reason", "stop")}]
        case "event", "RoomEvent":
            return [{**base, "kind": "room", "event": data.get("kind", ""), "data": data.get("data", {})}]
        case "event", ("Failure" | "Cancel"):
            return [{**base, "kind": "failure", "data": data}]
        case "note", "call":
            names = ("tool", "result", "failure", "recorded")
            call = {name: data.get(name, "") for name in names} | {
                "asked": _called(data.get("name", ""), data["arguments"])
            }
            return [{**base, "kind": "tool", **call}]
        case "note", "skill":
            return [{**base, "kind": "skill", "skill": data["skill"], "repeated": bool(data.get("repeated"))}]
        case "note", "round":
            return [{**base, "kind": "round", "hooks": list(data["hooks"]), "message": data["message"]}]
        case "note", ("segment" | "harness" | "ignored"):
            return [{**base, "kind": "note", "data": data}]
        case "action", "Restart":
            return [{**base, "kind": "note", "data": data}]
        case "hook", _:
            names = ("hook", "action", "message", "error")
            verdict = {name: data.get(name, "") for name in names}
            return [{**base, "kind": "hook", **verdict, "fired": bool(data.get("fired"))}]
    return []


def _called(name: str, arguments: Any) -> str:
    if not isinstance(arguments, Mapping):  # what a model wrote and nobody could make a call of
        return f"{name}({arguments!r})"
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _bars(trace: Trace) -> dict[int, list[Row]]:
    """Turn → the spans of its model and tool calls, the turn's own first."""
    found: dict[int, list[Row]] = {}
    number, began = 0, 0
    for span in to_spans(trace):
        if "hatstack.turn" in span["attributes"]:
            number, began = span["attributes"]["hatstack.turn"], span["start_ns"]
        kind = span["attributes"]["gen_ai.operation.name"]
        own = {key: value for key, value in span["attributes"].items() if _OWN.search(key)}
        found.setdefault(number, []).append(
            {
                "name": span["name"].partition(" ")[2],
                "kind": {"invoke_agent": "turn", "chat": "model", "execute_tool": "tool"}[kind],
                "from_ms": round((span["start_ns"] - began) / 1e6, 1),
                "ms": round((span["end_ns"] - span["start_ns"]) / 1e6, 1),
                "failed": span["status"] == "ERROR",
                "error": own.get("error.type", ""),
            }
        )
    return found


def _moment(at: float) -> str:
    """The time of day of a session's clock; "" where the session had a clock of its own."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds") if at >= EPOCH_S else ""


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
