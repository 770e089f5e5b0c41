"""The message catalogue: one YAML file per language, the same keys in each (a test holds them to it)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

LANGUAGES = ("en", "zh")


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Key → text with `str.format` fields."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files(__package__).joinpath(f"{language}.yaml").read_text(encoding="utf-8")
    found: dict[str, str] = yaml.load(text, Loader=loader)  # noqa: S506  # a safe loader, several times faster in C
    return found


def translator(language: str) -> Callable[..., str]:
    """A function that gives the text of a key. An unknown key raises KeyError: it is a fault of the template."""
    texts = catalogue(language if language in LANGUAGES else "en")

    def t(key: str, **fields: Any) -> str:
        text = texts[key]
        return text.format(**fields) if fields else text

    return t


def preferred(cookie: str | None, accept: str) -> str:
    """The language of a request: the cookie's, else the first that the browser prefers, else English."""
    if cookie in LANGUAGES:
        return str(cookie)
    for part in accept.split(","):
        tag = part.split(";")[0].strip().lower()[:2]
        if tag in LANGUAGES:
            return tag
    return "en"
