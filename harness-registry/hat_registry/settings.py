"""Settings of a server from the environment: every option has a variable, and secrets have nothing but a variable or a file.

    HATSTACK_DATABASE_URL        the database, with its password; or HATSTACK_DATABASE_URL_FILE, a file that holds it
    HATSTACK_MLFLOW_DATABASE_URL the database behind MLflow, for backups; or …_FILE
    HATSTACK_CONSOLE_<OPTION>    any option of `python -m hat_console`: HATSTACK_CONSOLE_PORT=8700, …_READ_ONLY=true

Always holds: a password on the command line is refused, since every user of a machine sees it there; what is refused
never repeats it. Not here: what the settings mean.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from hat_registry.errors import InvalidError

DATABASE = "HATSTACK_DATABASE_URL"
MLFLOW_DATABASE = "HATSTACK_MLFLOW_DATABASE_URL"
TRUE, FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


def database_url(given: str, data: Path, environment: Mapping[str, str] | None = None) -> str:
    """The database's URL: as given without a password, else from the environment or its file, else a file in `data`."""
    return secret_url(given, DATABASE, environment) or f"sqlite:///{data / 'registry.db'}"


def secret_url(given: str, name: str, environment: Mapping[str, str] | None = None) -> str:
    """A database's URL as given without a password, else from variable `name` or its file; "" where neither is set."""
    url = given or secret(name, environment)
    if not url:
        return ""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidError(
            "a database's URL cannot be read", place=name, cure="sqlite:///FILE or postgresql+psycopg://…"
        ) from None
    if given and parsed.password is not None:
        raise InvalidError("a password on the command line can be seen by everybody", cure=f"put the URL into {name}")
    if parsed.drivername in {"postgres", "postgresql"}:
        return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    return url


def secret(name: str, environment: Mapping[str, str] | None = None) -> str:
    """A secret from variable `name`, or from the file that `<name>_FILE` names; "" where neither is set."""
    env = os.environ if environment is None else environment
    if env.get(name):
        return env[name]
    file = env.get(f"{name}_FILE", "")
    if not file:
        return ""
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InvalidError(f"the file of {name} cannot be read", place=file, cure="check path and rights") from None


def take_defaults(
    parser: argparse.ArgumentParser, prefix: str, environment: Mapping[str, str] | None = None
) -> argparse.ArgumentParser:
    """Let every option of `parser` default to `<prefix><OPTION>`; an option on the command line still wins."""
    env = os.environ if environment is None else environment
    for action in parser._actions:
        name = prefix + action.dest.upper()
        if name not in env or not action.option_strings:
            continue
        value = env[name]
        if action.nargs == 0:
            if value.lower() not in TRUE | FALSE:
                raise InvalidError(f"{name} is neither true nor false", cure="true or false")
            action.default = value.lower() in TRUE
        elif isinstance(action.default, list):
            action.default = value.split(",") if value else []
        else:
            action.default = value  # argparse converts a default that is text as it does an argument
        action.required = False
    return parser
