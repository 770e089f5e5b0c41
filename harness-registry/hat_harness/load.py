"""Harness folders: reads, checks and writes them.

Always holds: a harness that was loaded is valid; a folder that is not loads nothing and `LoadError` lists every
problem with file and line. Reading is bounded (`MAX_FILES`, `MAX_TOTAL`, 1 MiB a text file), never follows a link and
never leaves the folder; two paths that some file system takes for one are refused. `load_harness(save_harness(h)) ==
h`, with the same digest. Beside the parts a folder may have the files of `BESIDE` and `bindings.yaml` (URLs, secret
references, time-outs of HTTP tools and MCP servers), which are outside the digest. Names that start with a dot are
not read. Not here: formats of the files (parts, save), what makes a harness consistent (validate).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from hat_harness.errors import LoadError, Problem
from hat_harness.names import fold
from hat_harness.parts import Reader, suggest
from hat_harness.reading import Document, ReadError, decode_text, read_yaml
from hat_harness.save import LISTS, harness_files
from hat_harness.spec import Harness, Hook, Part
from hat_harness.validate import findings

MAX_FILES = 2_000
MAX_TOTAL = 32 << 20
BESIDE = frozenset({"bindings.yaml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md"})
P = TypeVar("P", bound=Part)

# ---- reading a folder -----------------------------------------------------------------------------------------


def read_folder(path: Path) -> dict[str, bytes]:
    """Path relative to the folder → bytes of every regular file. LoadError for links, special files and bombs."""
    problems: list[Problem] = []
    found: dict[str, bytes] = {}
    total = 0
    folders = [(path, "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise LoadError(str(path), [Problem(prefix or ".", 0, f"cannot be read: {error.strerror}")]) from None
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_symlink():
                problems.append(Problem(name, 0, "a symbolic link", "put the file itself here"))
            elif entry.is_dir(follow_symlinks=False):
                if name.count("/") < 8:
                    folders.append((Path(entry.path), name + "/"))
                else:
                    problems.append(Problem(name, 0, "nested too deep"))
            elif not entry.is_file(follow_symlinks=False):
                problems.append(Problem(name, 0, "not a regular file"))
            else:
                total += entry.stat(follow_symlinks=False).st_size
                if len(found) >= MAX_FILES or total > MAX_TOTAL:
                    limit = f"more than {MAX_FILES} files or {MAX_TOTAL >> 20} MiB"
                    raise LoadError(str(path), [Problem(name, 0, limit)])
                found[name] = _read(Path(entry.path))
    if problems:
        raise LoadError(str(path), problems)
    return found


def _read(path: Path) -> bytes:
    """The bytes of a regular file, never through a link that took its place meanwhile."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        return stream.read(MAX_TOTAL + 1)


def check_paths(files: Iterable[str]) -> list[Problem]:
    """Paths that leave the folder, and paths that are one on some file systems."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for name in sorted(files):
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name or not name.isprintable() or str(pure) != name:
            problems.append(Problem(name[:200], 0, "the path leaves the folder or is not plain"))
            continue
        for index in range(1, len(pure.parts) + 1):
            part = "/".join(pure.parts[:index])
            other = seen.setdefault(fold(part), part)
            if other != part:
                problems.append(Problem(name, 0, f"differs from {other} by case or Unicode form only", "rename one"))
                break
    return problems


# ---- from files to a harness ----------------------------------------------------------------------------------


def _kind(path: str) -> str:
    """Which kind of part a path holds; "" for none."""
    pieces = path.split("/")
    if path == "harness.yaml" or path in BESIDE:
        return "head"
    if pieces[0] == "skills" and len(pieces) >= 3:
        return "skills" if pieces[2] == "SKILL.md" and len(pieces) == 3 else "files"
    kinds = {"prompts": ".md", "tools": ".json", "hooks": ".yaml", "few_shots": ".jsonl"}
    if len(pieces) == 2 and pieces[1].endswith(kinds.get(pieces[0], "/")):
        return pieces[0]
    return ""


def _ordered(reader: Reader, name: str, parts: list[P], order: list[str] | None, head: Document) -> tuple[P, ...]:
    """Parts by id, those that `order` names first and in its order."""
    by_id = sorted(parts, key=lambda part: str(getattr(part, "id", "")))
    if not order:
        # Hooks of one file keep their order; everything else is by id.
        return tuple(parts if parts and isinstance(parts[0], Hook) else by_id)
    known = {str(getattr(part, "id", "")): part for part in by_id}
    for index, identifier in enumerate(order):
        line = head.line(("order", name, index))
        if identifier not in known:
            reader.problem("harness.yaml", line, f"order.{name}: no {identifier}", suggest(identifier, known))
        elif order.index(identifier) != index:
            reader.problem("harness.yaml", line, f"order.{name}: {identifier} stands twice")
    first = [known[identifier] for identifier in dict.fromkeys(order) if identifier in known]
    return (*first, *(part for part in by_id if not any(part is other for other in first)))


def parse_files(files: Mapping[str, bytes], *, strict: bool = True, place: str = "harness") -> Harness:
    """The harness that files (POSIX path → bytes) make. LoadError lists every problem.

    Not `strict`: unknown keys, unknown files and names in backticks that mean nothing are passed over.
    """
    problems = check_paths(files)
    if problems:
        raise LoadError(place, problems)
    reader = Reader(files, strict)
    fields, order, head = reader.head()
    aliases = fields.get("aliases") if isinstance(fields.get("aliases"), dict) else {}
    found: dict[str, list[Any]] = {name: [] for name in (*LISTS, "files")}
    for path in sorted(files, key=lambda path: path.rsplit(".", 1)[0]):
        match _kind(path):
            case "prompts":
                found["prompts"].append(reader.prompt(path))
            case "skills":
                found["skills"].append(reader.skill(path, aliases or {}))
            case "tools":
                found["tools"].append(reader.tool(path))
            case "hooks":
                found["hooks"] += reader.hooks(path)
            case "few_shots":
                found["few_shots"].append(reader.few_shot(path))
            case "files":
                found["files"].append(reader.file(path))
            case "":
                if strict:
                    reader.problem(path, 0, "nothing reads this file", "see the harness format, or start it with a dot")
    parts: dict[str, Any] = {
        name: _ordered(reader, name, [part for part in found[name] if part is not None], order.get(name), head)
        for name in LISTS
    }
    parts["files"] = tuple(sorted((file for file in found["files"]), key=lambda file: file.path))
    harness = reader.build(Harness, "harness.yaml", head, {**fields, **parts}) if head.value is not None else None
    if harness is not None and not reader.problems:
        reader.problems += _located(harness, files, strict)
    if reader.problems or harness is None:
        raise LoadError(place, sorted(reader.problems, key=lambda problem: (problem.path, problem.line)))
    return harness


def _located(harness: Harness, files: Mapping[str, bytes], strict: bool) -> list[Problem]:
    """The findings of `validate`, each at the first line of its file that has its needle."""
    problems = []
    for finding in findings(harness):
        if finding.soft and not strict:
            continue
        path = finding.path
        if path not in files:
            # A hook need not lie in a file of its own name.
            path = next((name for name in files if finding.needle and finding.needle.encode() in files[name]), path)
        line = 0
        if finding.needle and path in files:
            lines = files[path].decode(errors="replace").split("\n")
            line = next((number for number, text in enumerate(lines, 1) if finding.needle in text), 0)
        problems.append(Problem(path, line, finding.message, finding.cure))
    return problems


def load_harness(path: Path, *, strict: bool = True) -> Harness:
    """The harness in a folder. LoadError lists every problem with file and line; see `parse_files` for `strict`."""
    path = Path(path)
    if not path.is_dir():
        raise LoadError(str(path), [Problem(".", 0, "no such folder" if not path.exists() else "not a folder")])
    return parse_files(read_folder(path), strict=strict, place=str(path))


def load_bindings(path: Path) -> dict[str, Any]:
    """The mapping in the folder's `bindings.yaml`, {} when there is none."""
    file = Path(path) / "bindings.yaml"
    if not file.is_file() or file.is_symlink():
        return {}
    try:
        document = read_yaml(decode_text(_read(file)))
    except ReadError as error:
        raise LoadError(str(path), [Problem("bindings.yaml", error.line, error.message, error.cure)]) from None
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise LoadError(str(path), [Problem("bindings.yaml", 1, "not a mapping", "write `key: value` lines")])
    return document.value


# ---- writing --------------------------------------------------------------------------------------------------


def save_harness(harness: Harness, path: Path) -> None:
    """Writes a valid harness as a folder, whole or not at all; an older harness there is replaced, `BESIDE` files stay.

    LoadError when the harness is not valid, or when something that is no harness stands at `path`.
    """
    path = Path(path)
    wrong = [Problem(item.path, 0, item.message, item.cure) for item in findings(harness) if not item.soft]
    if not wrong and path.exists() and any(path.iterdir()) and not (path / "harness.yaml").is_file():
        wrong = [Problem(".", 0, "a folder that is no harness stands here", "choose another path")]
    if wrong:
        raise LoadError(str(path), wrong)
    write_folder(harness_files(harness), path)


def write_folder(files: Mapping[str, bytes], path: Path) -> None:
    """Writes files (path in the folder → bytes) as a folder, whole or not at all; `BESIDE` files that stand there stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        for name, data in files.items():
            target = fresh / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        for name in BESIDE:
            if (path / name).is_file():
                shutil.copy2(path / name, fresh / name)
        fresh.chmod(0o755)
        _swap(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _swap(fresh: Path, path: Path) -> None:
    """Puts `fresh` at `path`; what stood there is gone only when it does."""
    if not path.exists():
        fresh.replace(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    path.replace(old / "old")
    try:
        fresh.replace(path)
    except OSError:
        (old / "old").replace(path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
