"""What `hat evaluate --endpoint` overrides in a profile: any OpenAI-compatible server in place of a model folder."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hatstack.cli.failure import UsageError

PIPELINE = "hat_pipelines.dags.endpoint"
IFEVAL_TOKENS = 1280
"""Length that IFEval's prompts need; generated instructions need far less."""


def overrides(url: str, model: str, suites: Sequence[str], key: str, parallel: int, timeout_s: float) -> list[str]:
    """Overrides of a profile, the user's own to be put behind them. UsageError when the endpoint is not whole."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is no URL", place="--endpoint", cure="http(s)://HOST:PORT/v1")
    if not model:
        raise UsageError("an endpoint needs a model name", place="hat evaluate", cure="add --endpoint-model NAME")
    fields = {
        "policy": "endpoint",
        "arm": "endpoint",
        "endpoint": url,
        "endpoint_model": model,
        "endpoint_key": key,
        "endpoint_parallel": parallel,
        "endpoint_timeout_s": timeout_s,
        **({"answer_tokens": IFEVAL_TOKENS} if "t4" in suites else {}),
    }
    return [f"pipeline={PIPELINE}", *(f"steps.evaluate.{name}={json.dumps(value)}" for name, value in fields.items())]


def suite_override(suites: Sequence[str]) -> list[str]:
    """The suites that were named in place of the profile's."""
    if not suites:
        return []
    from hat_components.suites import choose

    return [f"steps.evaluate.suites={json.dumps([suite.id for suite in choose(suites)])}"]
