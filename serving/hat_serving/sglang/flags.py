"""Profile → command line.

Always holds: every flag is written with its full name and in one order, so that equal profiles give equal command lines;
what a profile leaves to SGLang is not written, but `--device` always is (without it SGLang refuses where it finds no
accelerator). Not here: whether the flags are good (checks, resolve).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hat_serving.errors import SettingsError
from hat_serving.sglang.profile import FlagValue, ServingProfile

MODEL_PATH = "/mnt/models"
"""Where KServe puts the model."""

OWN = (
    *("model-path", "served-model-name", "host", "port", "device", "tp-size", "context-length", "mem-fraction-static"),
    *("max-running-requests", "max-queued-requests", "chunked-prefill-size", "dtype", "kv-cache-dtype"),
    *("tool-call-parser", "reasoning-parser", "enable-metrics", "enable-cache-report", "extra-metric-labels"),
    *("tokenizer-metrics-allowed-custom-labels", "speculative-algorithm", "speculative-num-steps"),
    *("speculative-eagle-topk", "speculative-num-draft-tokens", "speculative-accept-threshold-single"),
    *("speculative-accept-threshold-acc", "speculative-use-rejection-sampling", "speculative-draft-model-path"),
)
"""Flags that a profile's fields or its deployment decide; they may not be given under `flags`."""


def sglang_flags(
    profile: ServingProfile,
    *,
    model_path: str = MODEL_PATH,
    served_model_name: str = "",
    host: str = "0.0.0.0",  # noqa: S104  # inside a pod the kubelet and the mesh come from outside
    port: int = 8080,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """The arguments of `python -m sglang.launch_server`. `labels` go on all metrics (arm, release, variant)."""
    if profile.engine != "sglang":
        raise SettingsError(f"profile {profile.name} is for the {profile.engine} engine", place="engine")
    where: dict[str, Any] = {
        "model-path": model_path,
        "served-model-name": served_model_name,
        "host": host,
        "port": port,
    }
    values: dict[str, Any] = {
        **where,
        "device": profile.device,
        "tp-size": profile.tp_size,
        **_shared(profile),
        "kv-cache-dtype": profile.kv_cache_dtype,
    }
    values |= {
        "enable-metrics": True,
        "extra-metric-labels": _json(labels),
        "enable-cache-report": profile.cache_report,
    }
    values["tokenizer-metrics-allowed-custom-labels"] = list(profile.custom_labels)
    values |= {name: profile.flags[name] for name in sorted(profile.flags)}
    return _written(values)


def dev_arguments(
    profile: ServingProfile,
    *,
    model_path: str,
    served_model_name: str = "",
    host: str = "127.0.0.1",
    port: int = 8720,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """The arguments of `python -m hat_serving.engine`. SettingsError for what it does not have."""
    for name, absent in (
        ("flags", bool(profile.flags)),
        ("tp_size", profile.tp_size != 1),
        ("kv_cache_dtype", profile.kv_cache_dtype != "auto"),
        ("custom_labels", bool(profile.custom_labels)),
        ("dtype", profile.dtype == "float16"),
        ("mem_fraction_static", profile.mem_fraction_static is not None),
    ):
        if absent:
            raise SettingsError(f"the dev engine does not have {name}", place=profile.name, cure="leave it out")
    values: dict[str, Any] = {
        "model-path": model_path,
        "served-model-name": served_model_name,
        "host": host,
        "port": port,
    }
    values |= _shared(profile)
    values |= {
        "enable-metrics": True,
        "extra-metric-labels": _json(labels),
        "enable-cache-report": profile.cache_report,
    }
    return _written(values)


def settings(profile: ServingProfile) -> list[tuple[str, str, str]]:
    """(setting, argument, value) of all that a profile sets, presets written out; "" is a setting that is no argument."""
    own = {"cache_report": "enable-cache-report", "custom_labels": "tokenizer-metrics-allowed-custom-labels"}
    own["speculative.draft_model"] = "speculative-draft-model-path"
    line = set((sglang_flags if profile.engine == "sglang" else dev_arguments)(profile, model_path=MODEL_PATH))
    found = []
    content = profile.model_dump(mode="json", exclude_unset=True)
    if profile.speculative is not None:
        whole = profile.speculative.model_dump(mode="json")
        content["speculative"] = {name: value for name, value in whole.items() if value not in ("", False)}
    for name, value in _flat(content):
        plain = name.removeprefix("flags.")
        flag = own.get(name, plain if plain != name else name.replace(".", "-").replace("_", "-"))
        found.append((name, f"--{flag}" if f"--{flag}" in line else "", value))
    return found


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [row for key, inner in value.items() for row in _flat(inner, f"{name}.{key}" if name else str(key))]
    return [(name, " ".join(map(str, value)) if isinstance(value, list) else str(value))]


def _shared(profile: ServingProfile) -> dict[str, Any]:
    values: dict[str, Any] = {
        "context-length": profile.context_length,
        "mem-fraction-static": profile.mem_fraction_static,
        "max-running-requests": profile.max_running_requests,
        "max-queued-requests": profile.max_queued_requests,
        "chunked-prefill-size": profile.chunked_prefill_size,
        "dtype": profile.dtype,
        "tool-call-parser": profile.tool_call_parser,
        "reasoning-parser": profile.reasoning_parser,
    }
    spec = profile.speculative
    if spec is not None:
        values |= {
            "speculative-algorithm": spec.algorithm,
            "speculative-num-steps": spec.num_steps,
            "speculative-eagle-topk": spec.eagle_topk,
            "speculative-num-draft-tokens": spec.num_draft_tokens,
            "speculative-accept-threshold-single": spec.accept_threshold_single,
            "speculative-accept-threshold-acc": spec.accept_threshold_acc,
            "speculative-use-rejection-sampling": spec.use_rejection_sampling,
            "speculative-draft-model-path": spec.draft_model,
        }
    return values


def _json(labels: Mapping[str, str] | None) -> str:
    return json.dumps(dict(sorted(labels.items())), separators=(",", ":")) if labels else ""


def _written(values: Mapping[str, FlagValue | None]) -> list[str]:
    line: list[str] = []
    for name, value in values.items():
        if value is None or value is False or value in ("", "auto") or value == []:
            continue
        line.append(f"--{name}")
        if isinstance(value, list):
            line += [str(one) for one in value]
        elif value is not True:
            line.append(str(value))
    return line
