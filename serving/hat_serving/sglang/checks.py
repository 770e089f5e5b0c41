"""What is wrong with a profile: all that SGLang would refuse at start, and what it lets pass and then does badly.

SGLang takes abbreviated flags, memory fractions above one, no GPUs, thresholds above one and draft trees that its steps
cannot fill; a pod would start with them and misbehave. Always holds: an empty list means that SGLang's parser takes the
flags (a test asks it). Not here: checks that need the model's config (resolve).
"""

from __future__ import annotations

import json
import re

from hat_serving.errors import SettingsError
from hat_serving.sglang.catalog import LAST_CUDA_12, Catalog, Flag, catalog, release
from hat_serving.sglang.flags import OWN
from hat_serving.sglang.profile import FlagValue, ServingProfile, Speculative

Finding = tuple[str, str, str]
"""(field, what is wrong, cure)."""

_LABEL = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]*$")
_RESERVED_LABELS = {
    *("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank", "dp_rank", "le", "is_streaming"),
    *("cache_source", "stage", "mode", "endpoint", "method", "status_code", "pid"),
}
_NUMBERS = {"int": int, "human_readable_int": int, "float": float}


def findings(profile: ServingProfile) -> list[Finding]:
    """Every problem, in the order of the fields."""
    try:
        known = catalog(profile.sglang)
    except SettingsError as error:
        return [("sglang", error.message, error.cure)]
    found: list[Finding] = []
    if profile.cuda == 12 and release(profile.sglang) > release(LAST_CUDA_12):
        cure = f"pin sglang: {LAST_CUDA_12}, or update the drivers"
        found.append(("cuda", f"SGLang {profile.sglang} needs CUDA 13; CUDA 12 ends at {LAST_CUDA_12}", cure))
    if profile.device == "cpu" and profile.cuda is not None:
        found.append(("cuda", "a profile for CPUs names no CUDA", "leave cuda empty"))
    if profile.device == "cuda" and profile.engine == "dev":
        found.append(("device", "the dev engine runs on CPUs", "say device: cpu"))
    if (
        profile.chunked_prefill_size is not None
        and profile.chunked_prefill_size != -1
        and profile.chunked_prefill_size < 16
    ):
        found.append(("chunked_prefill_size", f"{profile.chunked_prefill_size} tokens", "-1, or 16 and more"))
    for name in ("kv_cache_dtype", "tool_call_parser", "reasoning_parser"):
        value, flag = getattr(profile, name), known.find(name.replace("_", "-"))
        if value and flag is not None and flag.choices and value not in flag.choices:
            found.append((name, f"{value!r} is none of SGLang {profile.sglang}'s", ", ".join(flag.choices)))
    if profile.speculative is not None:
        found += _speculative(profile.speculative)
    found += [
        ("custom_labels", f"{label!r} is no free label name", "letters, digits, _; not one of SGLang's own")
        for label in profile.custom_labels
        if not _LABEL.match(label) or label in _RESERVED_LABELS
    ]
    for name, given in profile.flags.items():
        found += _flag(name, given, known)
    return found


def label_findings(labels: dict[str, str]) -> list[Finding]:
    """Problems of the labels that a deployment adds to all metrics."""
    return [
        ("labels", f"{name!r} is no free label name", "letters, digits, _; not one of SGLang's own")
        for name in labels
        if not _LABEL.match(name) or name in _RESERVED_LABELS
    ]


def _speculative(spec: Speculative) -> list[Finding]:
    found: list[Finding] = []
    chain = spec.eagle_topk == 1
    if chain and spec.num_draft_tokens != spec.num_steps + 1:
        message = f"{spec.num_draft_tokens} draft tokens for a chain of {spec.num_steps} steps"
        found.append(
            ("speculative.num_draft_tokens", message, f"{spec.num_steps + 1}: the steps and the model's own token")
        )
    if not chain:
        widest = 1 + spec.eagle_topk + (spec.num_steps - 1) * spec.eagle_topk**2
        if not spec.num_steps < spec.num_draft_tokens <= widest:
            message = (
                f"a tree of {spec.num_steps} steps by {spec.eagle_topk} cannot give {spec.num_draft_tokens} tokens"
            )
            found.append(("speculative.num_draft_tokens", message, f"between {spec.num_steps + 1} and {widest}"))
    if spec.use_rejection_sampling and not chain:
        found.append(("speculative.use_rejection_sampling", "it is for chains", "eagle_topk: 1"))
    if spec.use_rejection_sampling and spec.lossy:
        message = "rejection sampling is exact, thresholds below one are not"
        found.append(("speculative.use_rejection_sampling", message, "preset: exact, or leave it out"))
    if spec.algorithm == "NEXTN" and spec.draft_model:
        found.append(("speculative.draft_model", "NEXTN drafts with the model's own head", "algorithm: EAGLE"))
    if spec.algorithm == "EAGLE3" and not spec.draft_model:
        found.append(("speculative.draft_model", "EAGLE3 needs a draft model", "give its path"))
    return found


def _flag(name: str, given: FlagValue, known: Catalog) -> list[Finding]:
    place = f"flags.{name}"
    flag = known.find(name)
    if name.startswith("-"):
        return [(place, "names stand without dashes", name.lstrip("-"))]
    if flag is None:
        longer = known.longer(name)
        if longer:
            return [(place, "it is abbreviated; argparse would guess", " or ".join(longer[:3]))]
        return [(place, f"SGLang {known.version} has no such flag", "see docs/serving-profiles.md")]
    if flag.name in OWN or name in OWN:
        return [(place, "a field of the profile or the deployment decides this", "use the field")]
    return [(place, *problem) for problem in _value(flag, given)]


def _value(flag: Flag, given: FlagValue) -> list[tuple[str, str]]:
    if flag.kind in {"switch", "boolean"}:
        return [] if isinstance(given, bool) else [("it is a switch", "true")]
    if isinstance(given, bool):
        return [("it takes a value", flag.type)]
    if isinstance(given, list) != flag.many and isinstance(given, list):
        return [("it takes one value", flag.type)]
    found: list[tuple[str, str]] = []
    for one in given if isinstance(given, list) else [given]:
        if flag.choices and str(one) not in flag.choices:
            found.append((f"{one!r} is no choice", ", ".join(flag.choices)))
        if flag.type in {"int", "float"}:
            try:
                _NUMBERS[flag.type](str(one))
            except ValueError:
                found.append((f"{one!r} is no {flag.type}", ""))
        if flag.type in {"loads", "json_list_type"}:
            try:
                json.loads(str(one))
            except ValueError:
                found.append((f"{one!r} is no JSON", ""))
    return found
