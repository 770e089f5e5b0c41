"""Rate of the judge's own machinery: 10,000 items with a judge that answers at once, as a ratio to a floor.

The floor does by hand what cannot be left out: one draw and one JSON line per item and criterion. Prints one JSON object:
median seconds of judging, of calibrating and of the floor, interleaved, the ratios, and items a second.
Run: python bench/judge_rate.py [--items 10000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Callable, Iterator

from hat_components.judge.calibration import calibrate
from hat_components.judge.labels import labels_of
from hat_components.judge.panel import Judgement, open_panel
from hat_components.judge.spec import Judge, build_judge, load_judge
from hat_components.judge.subject import Subject
from hat_harness.events import Message
from hat_harness.trace import Entry, Segment, Trace

ROW = {"right": {"right": 0.9, "wrong": 0.1}, "wrong": {"wrong": 0.9, "right": 0.1}}


def instant() -> Judge:
    """The shipped judge's rubric and checks with a member that answers at once."""
    judge = load_judge("live-commerce")
    member = {"type": "oracle", "name": "instant", "confusion": {"accuracy": ROW}}
    fields = judge.model_dump(mode="json") | {"members": [member]}
    return build_judge({**fields, "name": "instant"})


def subjects(count: int) -> Iterator[Subject]:
    """One finished turn each, as a session records it."""
    for number in range(count):
        text = f"dear , the mug is {number % 90 + 10} yuan . thanks for watching"
        entries = (
            Entry(kind="note", at=0.0, turn=1, type="turn", data={"event": "ViewerMessage", "texts": ["how much"]}),
            Entry(kind="note", at=0.0, turn=1, type="call", data={"tool": "get_item", "arguments": {"item": "mug"},
                  "result": f"mug : price {number % 90 + 10}", "name": "get_item", "call_id": "c"}),
            Entry(kind="note", at=1.0, turn=1, type="end", data={"outcome": "reply", "text": text, "reason": ""}),
        )  # fmt: skip
        said = (Message("system", "# rules"), Message("user", "how much"), Message("assistant", text))
        segment = Segment(index=0, reason="start", harness="sha256:x", messages=said)
        trace = Trace(session=str(number), harness="sha256:x", harness_name="toy", entries=entries, segments=(segment,))
        truth = {"accuracy": "wrong" if number % 4 == 0 else "right", "effectiveness": "met"}
        yield Subject(id=f"{number}/0#1", item=str(number), turn=1, trace=trace, intent="product_qa", truth=truth)


def floor(count: int) -> None:
    """A draw and a line of JSON per item and criterion."""
    for number in range(count):
        for criterion in ("accuracy", "effectiveness"):
            draw = int.from_bytes(hashlib.sha256(f"{number}{criterion}".encode()).digest()[:8], "big") / 2**64
            json.dumps({"subject": number, "label": "right" if draw < 0.9 else "wrong", "votes": [{"by": "m"}]})


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure the three, interleaved within each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    judge, asked = instant(), list(subjects(options.items))
    judged: list[Judgement] = []

    def judging() -> None:
        with open_panel(judge) as panel:
            judged[:] = panel.judge_all(asked)

    taken: dict[str, list[float]] = {"judge": [], "calibrate": [], "floor": []}
    for _ in range(options.rounds):
        taken["judge"].append(seconds(judging))
        taken["calibrate"].append(seconds(lambda: calibrate(judge, judged, labels_of(asked))))
        taken["floor"].append(seconds(lambda: floor(options.items)))
    middle = {name: statistics.median(values) for name, values in taken.items()}
    print(
        json.dumps(
            {
                "items": options.items,
                "judge_seconds": round(middle["judge"], 3),
                "calibrate_seconds": round(middle["calibrate"], 3),
                "both_under_10_s": middle["judge"] + middle["calibrate"] < 10,
                "judge_times_floor": round(middle["judge"] / middle["floor"], 2),
                "calibrate_times_floor": round(middle["calibrate"] / middle["floor"], 2),
                "items_per_second": round(options.items / middle["judge"]),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
