"""The same content has the same digest; any change has another; hashing again costs only what changed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from hat_harness import digest as module
from hat_harness.digest import canonical_json, decimals, digest_bytes, digest_json, harness_digest, part_digests, short
from hat_harness.errors import DigestError
from hat_harness.kept import Kept
from hat_harness.spec import File, Harness, Limits, Retry
from tests.harness.kit import GATE, small

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(JSON)
def test_canonical_json_is_rfc_8785(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


def test_keys_beyond_the_basic_plane_sort_by_utf_16() -> None:
    value = {"\ufb33": 1, "\U0001f600": 2}
    assert (
        canonical_json(value) == rfc8785.dumps(value) != json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
    )


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {"b": 0.5}]}, "a/1/b"),
        ([2**53], "0"),
        ({"a": {1: "x"}}, "a"),
        ({"a": "\ud800"}, ""),
        ({"a": object()}, "a"),
        (float("nan"), ""),
    ],
)
def test_what_has_no_place_in_hashed_json_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(DigestError) as caught:
        digest_json(value)
    assert caught.value.place == place


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_are_exact_and_have_no_exponent(value: float) -> None:
    text = decimals({"x": value})["x"]["$decimal"]
    assert float(text) == value
    assert "e" not in text.lower()


def test_the_reserved_key_cannot_forge_a_decimal() -> None:
    with pytest.raises(DigestError, match="reserved"):
        decimals({"x": {"$decimal": "0.5"}})


def test_a_harness_digest_is_made_of_its_parts_as_documented() -> None:
    harness = small(hooks=(GATE,))
    parts = part_digests(harness)
    assert list(parts) == [
        "harness.yaml",
        "prompts/rules.md",
        "skills/item-qa/SKILL.md",
        "skills/chat/SKILL.md",
        "tools/get_item.json",
        "tools/order.json",
        "hooks/gate.yaml",
    ]
    expected = hashlib.sha256(rfc8785.dumps({"format": 1, "parts": parts})).hexdigest()
    assert harness_digest(harness) == f"sha256:{expected}"
    assert short(harness_digest(harness)) == expected[:12]


def _changes() -> list[Harness]:
    base = small(hooks=(GATE,))
    tool, skill = base.tools[0], base.skills[0]
    return [
        base.model_copy(update={"limits": Limits(deadline_s=15.5)}),
        base.model_copy(update={"recovery": base.recovery.model_copy(update={"retry": Retry(backoff_s=0.26)})}),
        base.model_copy(update={"tools": (tool.model_copy(update={"timeout_s": 9.0}), *base.tools[1:])}),
        base.model_copy(update={"tools": tuple(reversed(base.tools))}),
        base.model_copy(update={"sections": ("tools", "skills", "rules", "room")}),
        base.model_copy(update={"skills": (skill.model_copy(update={"body": skill.body + " "}), *base.skills[1:])}),
        base.model_copy(update={"aliases": {"item-qa": "item_qa"}}),
        base.model_copy(update={"files": (File(path="skills/chat/a.txt", content="x"),)}),
    ]


def test_every_change_changes_the_digest() -> None:
    digests = [harness_digest(small(hooks=(GATE,))), *map(harness_digest, _changes())]
    assert len(set(digests)) == len(digests)
    assert harness_digest(small(hooks=(GATE,))) == digests[0]


def test_a_rewrite_hashes_only_what_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    base = small(hooks=(GATE,))
    harness_digest(base)
    hashed: list[str] = []
    real = module.decimals

    def counting(value: Any) -> Any:
        if isinstance(value, dict) and "body" in value:
            hashed.append(value["id"])
        return real(value)

    monkeypatch.setattr(module, "decimals", counting)
    skill = base.skills[1].model_copy(update={"body": "be very nice ."})
    harness_digest(base.model_copy(update={"skills": (base.skills[0], skill)}))
    assert hashed == ["chat"]


def test_nothing_is_kept_of_what_is_gone() -> None:
    kept: Kept[Harness, int] = Kept(lambda harness: len(harness.skills))
    for _ in range(50):
        assert kept.of(small()) == 2
    assert len(kept._found) <= 1


def test_bytes_and_files_are_hashed_raw() -> None:
    assert digest_bytes(b"x") == "sha256:" + hashlib.sha256(b"x").hexdigest()
    harness = small(
        files=(
            File(path="skills/chat/a.txt", content="x"),
            File(path="skills/chat/b", content="eA==", encoding="base64"),
        )
    )
    parts = part_digests(harness)
    assert parts["skills/chat/a.txt"] == parts["skills/chat/b"] == digest_bytes(b"x")
