"""Asks a real SGLang about a command line: its parser, then its combination and range checks against a model's config.

It runs in SGLang's own environment or image (`python`), needs no GPU and starts no server. Always holds: nothing of ours
is imported there. Not here: our own checks, which need no SGLang (checks).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hat_serving.errors import UpstreamError

_SCRIPT = """
import json, sys
from sglang.srt.server_args import prepare_server_args
try:
    from sglang.srt.arg_groups.model_override_base import resolving_view
except ImportError:  # older versions resolve in place
    resolving_view = lambda args: args
def verdict(line):
    stage = "parse"
    try:
        args = prepare_server_args(line)
        stage = "resolve"
        args.resolve_once()
        stage = "check"
        args.check_server_args()
    except SystemExit:
        return {"stage": stage, "message": "rejected by the parser"}
    except Exception as error:
        return {"stage": stage, "message": f"{type(error).__name__}: {error}"[:600]}
    names = ("speculative_algorithm", "speculative_num_draft_tokens", "context_length", "attention_backend", "tp_size")
    return {"stage": "", "message": "", "resolved": {name: getattr(resolving_view(args), name, None) for name in names}}
print("RESULT" + json.dumps([verdict(line) for line in json.load(sys.stdin)], default=str))
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`stage` is where SGLang refused ("" where it did not); `resolved` what it made of the flags."""

    stage: Literal["", "parse", "resolve", "check"]
    message: str
    resolved: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether SGLang takes the command line."""
        return not self.stage


def resolve(
    lines: Sequence[Sequence[str]], python: Path, environment: Mapping[str, str], timeout_s: float = 300
) -> list[Verdict]:
    """SGLang's verdict on each command line; the model paths must be folders with a config.json.

    UpstreamError where SGLang cannot be run.
    """
    try:
        made = subprocess.run(
            [str(python), "-c", _SCRIPT],
            input=json.dumps([list(line) for line in lines]),
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UpstreamError(f"SGLang cannot be asked: {error}", place=str(python)) from None
    _, marker, result = made.stdout.rpartition("RESULT")
    if made.returncode or not marker:
        raise UpstreamError(
            f"SGLang ended with {made.returncode}: {made.stderr.strip()[-400:]}",
            place=str(python),
            cure="install sglang in an environment of its own",
        )
    return [Verdict(one["stage"], one["message"], one.get("resolved", {})) for one in json.loads(result)]
