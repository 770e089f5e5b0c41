"""Prints SGLang's flags as JSON, from its own parser. Run it with SGLang's python; it imports nothing of ours.

    SGLANG_USE_CPU_ENGINE=1 sglang-environment/bin/python - < snapshot.py > flags-VERSION.json

Always holds: one flag a line, in the parser's order, so that two versions can be compared with diff.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def describe(action: argparse.Action) -> dict[str, Any]:
    """One flag: spellings, kind, type of its value, choices, and how many values it takes."""
    kinds = {"_StoreAction": "value", "_StoreTrueAction": "switch", "BooleanOptionalAction": "boolean"}
    made: dict[str, Any] = {
        "flags": list(action.option_strings),
        "kind": kinds.get(type(action).__name__, "other"),
    }
    if action.type is not None:
        made["type"] = getattr(action.type, "__name__", str(action.type))
    if action.choices is not None:
        made["choices"] = sorted(str(choice) for choice in action.choices)  # some are sets
    if action.nargs not in (None, 0):
        made["nargs"] = action.nargs
    return made


def main() -> int:
    """Print the snapshot."""
    import importlib.metadata

    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]  # SGLang's environment has it

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    version = importlib.metadata.version("sglang")
    lines = [json.dumps(describe(action)) for action in parser._actions if action.option_strings]
    sys.stdout.write(f'{{"sglang": "{version}", "flags": [\n' + ",\n".join(lines) + "\n]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
