"""The dev engine's flags of the laptop stack: a serving profile, and settings over it. Starts nothing.

Always holds: what comes out is a command line that the engine takes; every option of the engine can be set but for the model
and the address, which the stack gives. Not here: the engine's options themselves (hat_serving.engine.options).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from hat_serving.engine.__main__ import parser
from hat_serving.engine.options import EngineOptions
from hat_serving.sglang.flags import dev_arguments
from hat_serving.sglang.profile import read_profile
from hatstack import paths
from hatstack.cli.failure import UsageError

GIVEN = ("model_path", "host", "port")
"""What the stack gives itself."""


def settable() -> list[str]:
    """Names that `--engine-set` takes, as flags are written."""
    return [name.replace("_", "-") for name in EngineOptions.model_fields if name not in GIVEN]


def engine_flags(serving: str, settings: Sequence[str], model: Path) -> tuple[str, ...]:
    """Flags of the engine but for its port. `serving` is a profile by name or path, `settings` are `NAME=VALUE`."""
    line = dev_arguments(read_profile(paths.serving_profile(serving)), model_path=str(model))
    for one in settings:
        name, found, value = one.partition("=")
        flag = name.strip().removeprefix("--").replace("_", "-")
        if not found or flag not in settable():
            raise UsageError(
                f"cannot read {one!r}", place="--engine-set", cure=f"NAME=VALUE with one of {', '.join(settable())}"
            )
        if EngineOptions.model_fields[flag.replace("-", "_")].annotation is not bool:
            line += [f"--{flag}", value]
        elif value in ("true", "false"):
            line = [word for word in line if word != f"--{flag}"] + ([f"--{flag}"] if value == "true" else [])
        else:
            raise UsageError(f"{flag} is true or false", place="--engine-set")
    _check(line)
    port = line.index("--port")
    return tuple(line[:port] + line[port + 2 :])


def _check(line: list[str]) -> None:
    """UsageError for what the engine would refuse."""
    try:
        EngineOptions.model_validate(vars(parser().parse_args(line)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]).replace("_", "-")
        raise UsageError(f"{where}: {first['msg']}" if where else first["msg"], place="--engine-set") from None
