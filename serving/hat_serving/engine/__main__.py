"""`python -m hat_serving.engine --model-path DIR --port 8720`: serve a model folder on CPUs behind SGLang's API.

Flags that SGLang has too bear its names. Exit codes: 0 ended by a signal, 2 usage, 3 bad model, 5 port taken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from pydantic import ValidationError

from hat_serving.engine.options import EngineOptions

_HELP = {
    "model_path": "folder with config.json, safetensors and tokenizer.json (also --model)",
    "port": "0 takes a free one",
    "max_queued_requests": "requests that may wait; more are answered 503",
    "cache_tokens": "tokens kept for prompts to come",
    "cache_gib": "most memory that running rows may take, GiB",
    "threads": "threads inside one operation",
    "extra_metric_labels": 'JSON object, as \'{"variant":"canary"}\'',
    "speculative_algorithm": "NEXTN: draft with the model's MTP head",
}


def parser() -> argparse.ArgumentParser:
    """The flags, made from the options' fields."""
    made = argparse.ArgumentParser(prog="python -m hat_serving.engine", description=__doc__, allow_abbrev=False)
    for name, field in EngineOptions.model_fields.items():
        flags = [f"--{name.replace('_', '-')}"]
        if name == "model_path":
            flags.append("--model")
        options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": _HELP.get(name, "")}
        if field.annotation is bool:
            made.add_argument(*flags, action="store_true", **options)
        elif name == "extra_metric_labels":
            made.add_argument(*flags, type=json.loads, **options)
        else:
            made.add_argument(*flags, required=field.is_required(), **options)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Parse, serve, and say in one line what went wrong."""
    given = parser().parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", str(getattr(given, "threads", "1") or "1"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        options = EngineOptions.model_validate(vars(given))
    except ValidationError as error:
        for one in error.errors(include_url=False):
            print(f"--{'.'.join(map(str, one['loc'])).replace('_', '-')}: {one['msg']}", file=sys.stderr)  # noqa: T201
        return 2
    from hat_serving.engine.errors import EngineError, ModelError
    from hat_serving.engine.server import serve

    try:
        serve(options)
    except ModelError as error:
        print(error, file=sys.stderr)  # noqa: T201  # a command line's last word
        return 3
    except EngineError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
