"""Evaluations below the runs directory, and what else runs left there, as far as a workspace may see them.

Always holds: an evaluation is named by the digest of its file; a run that another workspace ordered is not there.
Not here: what an evaluation says (hat_components.evaluate.result), pages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import Request

from hat_components.data import digest_file
from hat_console.pages.desk import DEFAULT
from hat_pipelines.desk.desk import Desk
from hat_registry.accounts import Actor
from hat_registry.errors import NotFoundError

HEAD_BYTES = 4096
_FIELD = re.compile(r'"(arm|policy|model|harness|dataset|seeds)":\s*"([^"]*)"')


class Shelf:
    """Evaluations below a runs directory; files are only read again when they change. `shown` says which runs are."""

    def __init__(self, root: Path | None, shown: Callable[[str], bool] = lambda run: True) -> None:
        self._root = root
        self._shown = shown

    def listing(self) -> list[dict[str, Any]]:
        """Every evaluation, the newest first."""
        if self._root is None or not self._root.is_dir():
            return []
        files = [
            path
            for pattern in ("*/steps/*/artifacts/evaluation.json", "*/evaluation.json")
            for path in self._root.glob(pattern)
        ]
        return [_head(path, stat.st_mtime_ns, stat.st_size) | self.place(path) for path, stat in self._newest(files)]

    def artifacts(self, name: str) -> list[Path]:
        """Files called `name` among the artifacts of runs, the newest first."""
        if self._root is None or not self._root.is_dir():
            return []
        return [path for path, _ in self._newest(self._root.glob(f"*/steps/*/artifacts/{name}"))]

    def _newest(self, files: Iterable[Path]) -> list[tuple[Path, os.stat_result]]:
        assert self._root is not None
        own = [path for path in files if self._shown(path.relative_to(self._root).parts[0])]
        known = [(path, path.stat()) for path in own if not path.is_symlink()]
        return sorted(known, key=lambda pair: (-pair[1].st_mtime, str(pair[0])))

    def place(self, path: Path) -> dict[str, str]:
        """Run, step and file of something on the shelf."""
        assert self._root is not None
        parts = path.relative_to(self._root).parts
        return {"run": parts[0], "step": parts[2] if len(parts) > 2 else "", "file": str(path)}

    def find(self, ident: str) -> dict[str, Any]:
        """The evaluation whose digest begins with `ident`; NotFoundError."""
        wanted = ident.removeprefix("sha256:")
        for one in self.listing():
            if len(wanted) >= 8 and one["digest"].removeprefix("sha256:").startswith(wanted):
                return one
        raise NotFoundError(f"no evaluation {ident[:40]}", place="runs", cure="hat evaluate, or see /evaluations")


@lru_cache(maxsize=4096)
def _known(path: Path, changed: int, size: int) -> tuple[tuple[str, str], ...]:
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES).decode(errors="replace").split('"suites"')[0]
    return (("digest", digest_file(path)), *_FIELD.findall(head))


def _head(path: Path, changed: int, size: int) -> dict[str, Any]:
    """The fields at the head of an evaluation, without reading its items."""
    return {
        **dict.fromkeys(("arm", "policy", "model", "harness", "dataset", "seeds"), ""),
        **dict(_known(path, changed, size)),
    }


def shelf_of(request: Request, actor: Actor) -> Shelf:
    """The shelf of the actor's workspace: of runs that were ordered in it; what nobody ordered is the default's."""
    desk: Desk | None = getattr(request.app.state, "desk", None)
    owners = desk.store.workspaces() if desk else {}
    return Shelf(getattr(request.app.state, "runs", None), lambda run: owners.get(run, DEFAULT) == actor.workspace)


def public(one: dict[str, Any]) -> dict[str, Any]:
    """A shelf entry without the path of this machine."""
    return {key: value for key, value in one.items() if key != "file"}
