"""Serving profiles: everything that decides how a model is served, versioned and digested (`hatstack.serving-profile/1`).

Always holds: the digest covers what changes answers or speed, and nothing else (not the name, not the description, not
the labels of one deployment); a profile that `read_profile` returns has passed `checks`. The two presets of speculative
decoding are `exact`, which changes no token's distribution, and `fast`, which does (the published report's 0.5 and
0.7) and therefore needs evidence of quality before a release. Not here: flags (flags), the dev engine's own options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hat_harness.digest import decimals, digest_json
from hat_serving.sglang.errors import ProfileError

FORMAT = "hatstack.serving-profile/1"

PRESETS: dict[str, tuple[float, float]] = {"exact": (1.0, 1.0), "fast": (0.5, 0.7)}
"""(accept-threshold-single, accept-threshold-acc)."""

FlagValue = str | int | float | bool | list[str | int | float]


class Strict(BaseModel):
    """Base: immutable, unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Speculative(Strict):
    """Speculative decoding with the model's own NextN head, or with a draft model beside it."""

    preset: Literal["exact", "fast", "custom"] = "exact"
    """Names the thresholds; `custom` gives its own."""
    algorithm: Literal["NEXTN", "EAGLE", "EAGLE3"] = "NEXTN"
    """NEXTN is SGLang's alias of EAGLE with the target's own head."""
    num_steps: int = Field(default=3, ge=1, le=32)
    """Draft steps of one verification."""
    eagle_topk: int = Field(default=1, ge=1, le=64)
    """Branches of each step; 1 is a chain."""
    num_draft_tokens: int = Field(default=4, ge=2, le=1024)
    """Tokens of one verification: steps + 1 for a chain."""
    accept_threshold_single: float = Field(default=1.0, gt=0, le=1)
    """A draft is kept if its probability is at least this."""
    accept_threshold_acc: float = Field(default=1.0, gt=0, le=1)
    """Probabilities are divided by this before the coin is thrown."""
    use_rejection_sampling: bool = False
    """Accept against the draft's own distribution; for chains, and only with thresholds of one."""
    draft_model: str = ""
    """Path of an external draft model (EAGLE, EAGLE3); the model's own head where empty."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        preset = given.get("preset", "exact")
        if preset in PRESETS:
            names = ("accept_threshold_single", "accept_threshold_acc")
            wanted = dict(zip(names, PRESETS[preset], strict=True))
            differing = [name for name in names if name in given and given[name] != wanted[name]]
            if differing:
                raise ValueError(f"preset {preset} has its own {differing[0]}; say preset: custom")
            return {**given, **wanted}
        return given

    @property
    def lossy(self) -> bool:
        """Whether sampled tokens are distributed otherwise than without speculation."""
        return self.accept_threshold_single < 1 or self.accept_threshold_acc < 1


class ServingProfile(Strict):
    """How to serve a model: SGLang's flags by meaning, with the version that they are for."""

    format: Literal["hatstack.serving-profile/1"] = "hatstack.serving-profile/1"
    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    description: str = ""
    engine: Literal["sglang", "dev"] = "sglang"
    """`dev` is the CPU engine of this platform; it takes the fields that it knows and refuses the others."""
    sglang: str = Field(default="0.5.23", pattern=r"^\d+\.\d+\.\d+$")
    """Version whose flags these are."""
    cuda: Literal[12, 13] | None = 13
    """Major CUDA version of the nodes' drivers; None on CPUs."""
    device: Literal["cuda", "cpu"] = "cuda"
    gpu: str = ""
    """Value of the node label `nvidia.com/gpu.product`; any where empty."""
    tp_size: int = Field(default=1, ge=1)
    """GPUs of one replica."""
    context_length: int | None = Field(default=None, ge=1)
    """Tokens of prompt and answer together; the model's own where None."""
    mem_fraction_static: float | None = Field(default=None, gt=0, lt=1)
    """Share of a GPU's memory for weights and cache; SGLang's own choice where None."""
    max_running_requests: int | None = Field(default=None, ge=1)
    max_queued_requests: int | None = Field(default=None, ge=1)
    """Requests that may wait; more are answered 503."""
    chunked_prefill_size: int | None = None
    """Prompt tokens of one prefill chunk; -1 switches chunking off."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    kv_cache_dtype: str = "auto"
    tool_call_parser: str = ""
    reasoning_parser: str = ""
    speculative: Speculative | None = None
    """None: off."""
    cache_report: bool = True
    """Whether `usage` says how many prompt tokens were cached."""
    custom_labels: tuple[str, ...] = ()
    """Label names that requests may set by the `x-custom-labels` header."""
    flags: dict[str, FlagValue] = Field(default_factory=dict)
    """Further SGLang flags by their full names without dashes; a switch is `true`."""

    @property
    def needs_quality_evidence(self) -> bool:
        """Whether a release with this profile must show quality at the same checkpoint, not latency alone."""
        return bool(self.speculative and self.speculative.lossy)

    @property
    def digest(self) -> str:
        """`sha256:…` over everything but name, description and the name of the thresholds."""
        content = self.model_dump(mode="json", exclude={"name": True, "description": True, "speculative": {"preset"}})
        return digest_json(decimals(content))


def parse_profile(text: str, place: str) -> ServingProfile:
    """A checked profile from YAML. ProfileError with every finding."""
    from hat_serving.sglang.checks import findings

    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProfileError(place, [("", f"it is no YAML: {error}", "")]) from None
    if not isinstance(given, dict):
        raise ProfileError(place, [("", "it is no mapping", f"begin with format: {FORMAT}")])
    try:
        profile = ServingProfile.model_validate(given)
    except ValidationError as error:
        problems = [(".".join(map(str, one["loc"])), one["msg"], "") for one in error.errors(include_url=False)]
        raise ProfileError(place, problems) from None
    found = findings(profile)
    if found:
        raise ProfileError(place, found)
    return profile


def read_profile(path: Path) -> ServingProfile:
    """A checked profile from a file. ProfileError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(str(path), [("", f"it cannot be read: {error.strerror}", "")]) from None
    return parse_profile(text, str(path))
