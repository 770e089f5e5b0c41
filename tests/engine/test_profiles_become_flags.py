"""Serving profiles: every shipped one is valid, becomes flags that the real SGLang takes, and bad ones are all found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import hat_serving.sglang.snapshot as snapshot
from hat_serving.engine.__main__ import parser as dev_parser
from hat_serving.engine.options import EngineOptions
from hat_serving.errors import SettingsError
from hat_serving.sglang.catalog import catalog, presence, versions
from hat_serving.sglang.checks import findings, label_findings
from hat_serving.sglang.errors import ProfileError
from hat_serving.sglang.flags import OWN, dev_arguments, settings, sglang_flags
from hat_serving.sglang.profile import ServingProfile, parse_profile, read_profile
from hat_serving.sglang.resolve import resolve
from tests.engine.sglang_env import environment, run_script, variables

PROFILES = sorted((Path(__file__).resolve().parents[2] / "serving" / "profiles").glob("*.yaml"))
LABELS = {"variant": "canary", "release": "0123456789ab"}


def profile(**fields: Any) -> ServingProfile:
    return ServingProfile.model_validate({"name": "p", **fields})


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_shipped_profile_is_valid(path: Path) -> None:
    found = read_profile(path)
    assert found.name == path.stem
    assert found.digest.startswith("sha256:")
    if found.engine == "dev":
        line = dev_arguments(found, model_path="m", labels=LABELS)
        EngineOptions.model_validate(vars(dev_parser().parse_args(line)))
    else:
        line = sglang_flags(found, labels=LABELS)
        known = catalog(found.sglang)
        assert all(known.find(word.removeprefix("--")) for word in line if word.startswith("--"))
        assert "--device" in line


def test_there_are_presets_for_one_h20() -> None:
    exact, fast, off = (
        read_profile(path.parent / f"h20-{name}.yaml") for name in ("exact", "fast", "off") for path in PROFILES[:1]
    )
    assert exact.speculative is not None
    assert fast.speculative is not None
    assert (exact.needs_quality_evidence, fast.needs_quality_evidence, off.needs_quality_evidence) == (
        False,
        True,
        False,
    )
    assert (fast.speculative.accept_threshold_single, fast.speculative.accept_threshold_acc) == (0.5, 0.7)
    differing = {name for name in ServingProfile.model_fields if getattr(exact, name) != getattr(fast, name)}
    assert differing == {"name", "description", "speculative"}
    assert len({exact.digest, fast.digest, off.digest}) == 3


def test_the_digest_covers_what_serves_and_nothing_else() -> None:
    base = profile(speculative={"preset": "exact"})
    assert base.digest == profile(name="other", description="x", speculative={"preset": "custom"}).digest
    for change in ({"tp_size": 2}, {"sglang": "0.5.19"}, {"flags": {"page-size": 16}}, {"mem_fraction_static": 0.5}):
        assert profile(speculative={"preset": "exact"}, **change).digest != base.digest


def test_equal_profiles_give_equal_command_lines() -> None:
    one = profile(flags={"page-size": 16, "schedule-policy": "lpm"})
    other = profile(flags={"schedule-policy": "lpm", "page-size": 16})
    assert sglang_flags(one, labels={"b": "1", "a": "2"}) == sglang_flags(other, labels={"a": "2", "b": "1"})
    line = sglang_flags(one, labels={"b": "1", "a": "2"})
    assert line[line.index("--extra-metric-labels") + 1] == '{"a":"2","b":"1"}'


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"flags": {"mem-fraction": 0.5}}, "abbreviated"),
    ({"flags": {"no-such-flag": 1}}, "no such flag"),
    ({"flags": {"--page-size": 16}}, "without dashes"),
    ({"flags": {"tp-size": 2}}, "a field of the profile"),
    ({"flags": {"page-size": "many"}}, "no int"),
    ({"flags": {"schedule-policy": "guess"}}, "no choice"),
    ({"flags": {"disable-radix-cache": 3}}, "a switch"),
    ({"flags": {"page-size": True}}, "takes a value"),
    ({"flags": {"page-size": [1, 2]}}, "one value"),
    ({"flags": {"json-model-override-args": "{", "page-size": 1}}, None or ""),
    ({"tool_call_parser": "nope"}, "none of SGLang"),
    ({"reasoning_parser": "nope"}, "none of SGLang"),
    ({"cuda": 12}, "CUDA 12 ends at 0.5.19"),
    ({"sglang": "0.4.0"}, "no snapshot"),
    ({"custom_labels": ["model_name"]}, "label name"),
    ({"custom_labels": ["a-b"]}, "label name"),
    ({"device": "cpu"}, "names no CUDA"),
    ({"engine": "dev"}, "runs on CPUs"),
    ({"chunked_prefill_size": 3}, "3 tokens"),
    ({"speculative": {"num_draft_tokens": 9}}, "9 draft tokens for a chain of 3 steps"),
    ({"speculative": {"eagle_topk": 4, "num_steps": 3, "num_draft_tokens": 99}}, "cannot give 99 tokens"),
    ({"speculative": {"preset": "fast", "use_rejection_sampling": True}}, "thresholds below one"),
    ({"speculative": {"eagle_topk": 2, "num_draft_tokens": 5, "use_rejection_sampling": True}}, "for chains"),
    ({"speculative": {"draft_model": "d"}}, "own head"),
    ({"speculative": {"algorithm": "EAGLE3"}}, "needs a draft model"),
)


@pytest.mark.parametrize(("fields", "says"), [case for case in BAD if case[1]], ids=lambda value: str(value)[:40])
def test_what_sglang_lets_pass_is_found(fields: dict[str, Any], says: str) -> None:
    found = findings(profile(**fields))
    assert any(says in message for _, message, _ in found), found
    with pytest.raises(ProfileError, match="problem"):
        parse_profile(yaml.safe_dump({"name": "p", **fields}), "p.yaml")


@pytest.mark.parametrize(
    "fields",
    [
        {"mem_fraction_static": 1.7},
        {"tp_size": 0},
        {"speculative": {"preset": "custom", "accept_threshold_acc": 1.5}},
        {"speculative": {"preset": "exact", "accept_threshold_single": 0.5}},
        {"unknown": 1},
        {"name": "Not A Label"},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ProfileError):
        parse_profile(yaml.safe_dump({"name": "p", **fields}), "p.yaml")


def test_all_problems_come_at_once() -> None:
    text = yaml.safe_dump({"name": "p", "cuda": 12, "tool_call_parser": "x", "flags": {"mem-fraction": 1, "zzz": 2}})
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "p.yaml")
    assert [field for field, _, _ in caught.value.problems] == [
        "cuda",
        "tool_call_parser",
        "flags.mem-fraction",
        "flags.zzz",
    ]
    for text in ("[", "- 1", "name: p\nname2: q: r"):
        with pytest.raises(ProfileError):
            parse_profile(text, "p.yaml")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(Path("missing.yaml"))


def test_the_dev_engine_refuses_what_it_has_not() -> None:
    with pytest.raises(SettingsError, match="tp_size"):
        dev_arguments(profile(engine="dev", device="cpu", cuda=None, tp_size=2), model_path="m")
    with pytest.raises(SettingsError, match="for the dev engine"):
        sglang_flags(profile(engine="dev", device="cpu", cuda=None))


def test_labels_may_not_hide_sglangs_own() -> None:
    assert label_findings({"variant": "canary", "hat_arm": "b"}) == []
    assert len(label_findings({"tp_rank": "0", "a b": "c"})) == 2


@pytest.mark.parametrize("name", ["h20-fast", "h20-cuda12", "cpu-dev-fast"])
def test_each_setting_names_the_argument_that_the_engine_gets(name: str) -> None:
    profile = read_profile(next(path for path in PROFILES if path.stem == name))
    render = sglang_flags if profile.engine == "sglang" else dev_arguments
    line = render(profile, model_path="m")
    told = [(argument, value) for _, argument, value in settings(profile) if argument]
    assert all(line[line.index(argument) + 1] == value for argument, value in told)
    stated = {word for word in line if word.startswith("--")} - {"--model-path", "--host", "--port"}
    assert stated - {argument for argument, _ in told} <= {
        "--enable-metrics",
        "--enable-cache-report",
        "--device",
        "--tp-size",
    }


def test_the_table_of_flags_is_the_documents() -> None:
    """docs/serving-profiles.md says which of our flags exist in which version."""
    document = (Path(__file__).resolve().parents[2] / "docs" / "serving-profiles.md").read_text()
    for name, where in presence(sorted(OWN)):
        marks = ["yes" if version in where else "no" for version in versions()]
        assert f"| `--{name}` | {' | '.join(marks)} |" in document


@pytest.mark.sglang
def test_the_snapshot_is_the_real_parsers() -> None:
    script = Path(snapshot.__file__).read_text()
    made = run_script(script)
    text = made[made.index('{"sglang"') :]
    version = json.loads(text)["sglang"]
    assert text == (Path(snapshot.__file__).parent / f"flags-{version}.json").read_text()


_CONFIG = """
import sys
from transformers import Qwen3_5MoeConfig
config = Qwen3_5MoeConfig()
config.architectures = ["Qwen3_5MoeForConditionalGeneration"]
config.save_pretrained(sys.stdin.read().strip())
"""


@pytest.mark.sglang
def test_every_profile_passes_the_real_checks_and_ours_find_what_they_miss(tmp_path: Path) -> None:
    """SGLang reads a model's config, resolves combinations and checks ranges, all without a GPU."""
    run_script(_CONFIG, str(tmp_path))
    read = [read_profile(path) for path in PROFILES]
    shipped = [one for one in read if one.engine == "sglang" and one.sglang == "0.5.23"]
    # Where there is no GPU, SGLang has no snapshots of linear-attention states, which it would choose on an H20.
    without_gpu = ["--mamba-radix-cache-strategy", "no_buffer", "--disable-overlap-schedule"]
    lines = [[*sglang_flags(one, model_path=str(tmp_path), labels=LABELS), *without_gpu] for one in shipped]
    base = [*sglang_flags(profile(), model_path=str(tmp_path)), *without_gpu]
    passing = [
        [*base, "--mem-fraction", "0.5"],
        [*base, "--mem-fraction-static", "1.7"],
        [*base, "--tp-size", "0"],
        [*base, "--speculative-accept-threshold-acc", "1.5"],
    ]
    refused = [[*base, "--no-such-flag", "1"], [*base, "--tool-call-parser", "nope"], [*base, "--context-length", "x"]]
    found = resolve([*lines, *passing, *refused], environment(), variables())
    for one, verdict in zip(shipped, found, strict=False):
        assert verdict.ok, (one.name, verdict)
        assert verdict.resolved["context_length"] == one.context_length
        if one.speculative is not None:
            assert verdict.resolved["speculative_algorithm"] == "EAGLE", "NEXTN is SGLang's alias"
            assert verdict.resolved["speculative_num_draft_tokens"] == one.speculative.num_draft_tokens
    rest = found[len(lines) :]
    assert [verdict.ok for verdict in rest[: len(passing)]] == [True] * len(passing), "what SGLang lets pass"
    assert [verdict.stage for verdict in rest[len(passing) :]] == ["parse"] * len(refused)
