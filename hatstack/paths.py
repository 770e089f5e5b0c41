"""Where things lie: shipped harnesses and profiles, the runs directory, the cache, the log.

A checkout keeps the shipped data in `harness-registry/harnesses` and `pipelines/profiles`; an installed package has
them in `hatstack/_data`. Not here: what the files say.
"""

from __future__ import annotations

import datetime
import difflib
import os
from pathlib import Path

from hat_harness.errors import Kind, PlatformError

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = {
    "harnesses": "harness-registry/harnesses",
    "profiles": "pipelines/profiles",
    "serving-profiles": "serving/profiles",
}


class NotShippedError(PlatformError):
    """A name stands neither for a path nor for something that ships."""

    kind: Kind = "invalid_input"


def shipped(what: str) -> Path:
    """Folder of the shipped `harnesses`, `profiles` or `serving-profiles`."""
    checkout = PACKAGE.parent / CHECKOUT[what]
    return checkout if checkout.is_dir() else PACKAGE / "_data" / what


def harness(name: str) -> Path:
    """A harness by path or by the name of a shipped one."""
    return _find(
        "harness", name, {path.parent.name: path.parent for path in shipped("harnesses").glob("*/harness.yaml")}
    )


def profile(name: str) -> Path:
    """A profile by path or by the name of a shipped one."""
    return _find("profile", name, {path.stem: path for path in shipped("profiles").glob("*.yaml")})


def serving_profile(name: str) -> Path:
    """A serving profile by path or by the name of a shipped one."""
    return _find("serving profile", name, {path.stem: path for path in shipped("serving-profiles").glob("*.yaml")})


def runs_dir(given: Path | None = None) -> Path:
    """The runs directory: the option, else HATSTACK_RUNS_DIR, else `runs` here."""
    return given or Path(os.environ.get("HATSTACK_RUNS_DIR") or "runs")


def cache_dir(runs: Path) -> Path:
    """Where results of finished steps are kept: HATSTACK_CACHE_DIR, else `.cache` in the runs directory."""
    return Path(os.environ.get("HATSTACK_CACHE_DIR") or runs / ".cache")


def mlflow_uri(runs: Path, configured: str = "") -> str:
    """MLflow's tracking URI: what the profile says, else MLFLOW_TRACKING_URI, else an SQLite file beside the runs."""
    return configured or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs.resolve() / 'mlflow.db'}"


def fresh(runs: Path, stem: str) -> Path:
    """A folder in the runs directory that does not exist: `stem` and the time, with a number where that is taken."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    names = (f"{stem}-{stamp}" + (f"-{number}" if number else "") for number in range(1000))
    return next(path for name in names if not (path := runs / name).exists())


def _find(what: str, name: str, known: dict[str, Path]) -> Path:
    path = Path(name)
    if path.exists():
        return path
    if name in known:
        return known[name]
    if path.suffix or len(path.parts) > 1:
        raise NotShippedError(f"no such {what}", place=name, cure="check the path")
    near = difflib.get_close_matches(name, known, n=1)
    cure = f"did you mean {near[0]!r}?" if near else f"a path, or one of: {', '.join(sorted(known)) or 'none'}"
    raise NotShippedError(f"no {what} called {name!r}", place=name, cure=cure)
