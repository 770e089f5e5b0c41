"""Descriptions of different skills and tools never begin with the same word, in no paraphrase: that word finds the line."""

from __future__ import annotations

from pathlib import Path

from hat_harness.load import load_harness
from hat_scenarios.live_commerce import LiveCommerce


def test_the_first_word_of_a_description_belongs_to_one_skill_or_tool(repository: Path) -> None:
    harness = load_harness(repository / "harness-registry" / "harnesses" / "live-commerce")
    words = LiveCommerce().vocabulary()
    found = [(part.id, part.description) for part in (*harness.skills, *harness.tools)]
    found.append(("activation", harness.activation.description))
    found += [(key, text) for key, texts in words.descriptions.items() for text in texts]
    found += list(words.distractors)
    owners: dict[str, str] = {}
    for key, text in found:
        first = text.split()[0]
        assert owners.setdefault(first, key) == key, f"{key} and {owners[first]} both begin with {first!r}"
    assert len(owners) > 60
