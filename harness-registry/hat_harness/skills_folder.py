"""Agent Skills folders (SKILL.md and what lies beside it) in and out, on their own and as parts of a harness.

`import_skill` reads one folder of the open format, `import_skills` a folder of them, `add_skills` puts them into a
harness, `skill_files` and `export_skill` write a skill as a folder again. Always holds: scripts and other files are
listed, never run; reading is as bounded as that of a harness (load); an imported skill that nobody edited is exported
byte for byte, also out of a harness that was saved and loaded since: what front matter our own writing would lose is
kept in `metadata` under `SOURCE`. Ids that the format forbids (`item_qa` in the folder `item-qa`) stand in `aliases`.
Strict takes what the format's specification allows; lenient takes what is found in the wild and says in `notes` what
it passed over. Not here: harness folders (load).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hat_harness.digest import file_bytes
from hat_harness.errors import LoadError, Problem
from hat_harness.load import check_paths, read_folder, write_folder
from hat_harness.names import skill_folders
from hat_harness.parts import OWN_METADATA, read_file
from hat_harness.reading import ReadError, decode_text
from hat_harness.save import write_yaml
from hat_harness.skill_text import Front, front_matter, naming, texts_only
from hat_harness.spec import File, Harness, Skill

SOURCE = "hatstack.dev/source"
"""Key of a skill's metadata that keeps the SKILL.md it came from, as far as our own writing would differ."""
SKILL_FILE = "SKILL.md"


@dataclass(frozen=True, slots=True)
class ImportedSkill:
    """One skill with everything of its folder."""

    skill: Skill
    folder: str
    """Name of its folder, valid in the open format."""
    files: tuple[File, ...] = ()
    """Further files, at `skills/<folder>/<path>`."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """{folder: id} where they differ."""
    notes: tuple[str, ...] = ()
    """What a lenient reading passed over or changed."""


def import_skill(path: Path, *, lenient: bool = False, tools: Iterable[str] | None = None) -> ImportedSkill:
    """The skill in a folder. `tools`: ids that `allowed-tools` may name; None: any. LoadError lists what is wrong."""
    path = Path(path)
    if not path.is_dir():
        raise LoadError(str(path), [Problem(".", 0, "no such folder" if not path.exists() else "not a folder")])
    return parse_skill(read_folder(path), path.resolve().name, lenient=lenient, tools=tools, place=str(path))


def import_skills(root: Path, *, lenient: bool = False, tools: Iterable[str] | None = None) -> list[ImportedSkill]:
    """Every skill in the folders of `root`, by folder name; LoadError for the first that is wrong, or for none."""
    folders = sorted(item for item in Path(root).glob("*") if (item / SKILL_FILE).is_file() or _small(item))
    if not folders:
        raise LoadError(str(root), [Problem(".", 0, "no folder with a SKILL.md", "give the folder of skill folders")])
    known = None if tools is None else list(tools)
    return [import_skill(folder, lenient=lenient, tools=known) for folder in folders]


def _small(folder: Path) -> bool:
    return (folder / SKILL_FILE.lower()).is_file()


def parse_skill(
    files: Mapping[str, bytes],
    folder: str,
    *,
    lenient: bool = False,
    tools: Iterable[str] | None = None,
    place: str = "skill",
) -> ImportedSkill:
    """The skill that files (path in the folder → bytes) make; see `import_skill`."""
    problems = check_paths(files)
    name = next((one for one in (SKILL_FILE, SKILL_FILE.lower()) if one in files), "")
    if not name or (name != SKILL_FILE and not lenient):
        problems.append(Problem(SKILL_FILE, 0, "missing", "a skill's folder has a SKILL.md with name and description"))
    if problems:
        raise LoadError(place, problems)
    try:
        text = decode_text(files[name])
        front = front_matter(text, lenient)
    except ReadError as error:
        raise LoadError(place, [Problem(name, error.line, error.message, error.cure)]) from None
    target, identifier, seen = naming(front, folder, lenient)
    resources = sorted(path for path in files if path != name)
    fields = _fields(front, lenient, None if tools is None else set(tools))
    fields |= {"id": identifier, "body": front.body, "resources": tuple(resources)}
    fields.setdefault("name", seen)
    skill = _built(fields, front, place, name)
    kept = _kept(skill, target, files[name], name)
    if kept:
        skill = skill.model_copy(update={"metadata": {**skill.metadata, SOURCE: kept}})
    return ImportedSkill(
        skill,
        target,
        tuple(read_file(f"skills/{target}/{path}", files[path]) for path in resources),
        {target: identifier} if identifier != target else {},
        tuple(front.notes),
    )


def _built(fields: dict[str, Any], front: Front, place: str, name: str) -> Skill:
    problems = [Problem(name, line, message, cure) for line, message, cure in front.problems]
    try:
        skill = Skill.model_validate(fields)
    except ValidationError as error:
        for item in error.errors():
            key = str(item["loc"][0]) if item["loc"] else ""
            problems.append(Problem(name, front.line(key), f"{key}: {item['msg']}"))
    if problems:
        raise LoadError(place, problems)
    return skill


def _fields(front: Front, lenient: bool, tools: set[str] | None) -> dict[str, Any]:
    """Front matter as fields of a skill; what cannot be taken is a problem, or a note when lenient."""
    given = front.value
    found: dict[str, Any] = {"description": front.description(lenient)}
    for key in ("license", "compatibility"):
        if key in given:
            found[key] = front.text(key, 500 if key == "compatibility" else 1024, lenient)
    metadata = texts_only(front, lenient)
    own = {key: metadata.pop(key) for key in OWN_METADATA if key in metadata}
    if own.get("kind") in ("reply", "strategy"):
        found["kind"] = own["kind"]
    if "name" in own and front.own(own["name"]):
        found["name"] = own["name"]
    metadata.pop(SOURCE, None)
    found["metadata"] = metadata
    found["tools"] = tuple(front.allowed(tools, lenient))
    return found


# ---- byte for byte --------------------------------------------------------------------------------------------


def _plain(skill: Skill, folder: str) -> bytes:
    """SKILL.md of a skill as the open format has it, without anything of ours but what would be lost."""
    fields: dict[str, Any] = {"name": folder, "description": skill.description}
    for name in ("license", "compatibility"):
        if getattr(skill, name):
            fields[name] = getattr(skill, name)
    if skill.tools:
        fields["allowed-tools"] = " ".join(skill.tools)
    own: dict[str, str] = {"kind": skill.kind} if skill.kind != "reply" else {}
    own |= {"id": skill.id} if skill.id != folder else {}
    own |= {"name": skill.name} if skill.name != skill.id else {}
    metadata = {**own, **{key: value for key, value in skill.metadata.items() if key != SOURCE}}
    if metadata:
        fields["metadata"] = metadata
    gap = "\n" if skill.body.startswith("\n") else ""
    return f"---\n{write_yaml(fields)}---\n{gap}{skill.body}\n".encode()


def _kept(skill: Skill, folder: str, data: bytes, name: str) -> str:
    """What brings `data` back: "" when our own writing does, else its front matter and ending, else all of it."""
    if name == SKILL_FILE and _plain(skill, folder) == data:
        return ""
    text = data.decode()
    at = text.rfind(skill.body) if skill.body else -1
    record: dict[str, Any] = {"whole": text}
    if at >= 0 and text[:at].rstrip("\n").endswith("---"):
        record = {"before": text[:at], "after": text[at + len(skill.body) :]}
    if name != SKILL_FILE:
        record["file"] = name
    # Escaped, so that it is one line without control characters wherever it is written.
    return json.dumps({**record, "of": _stamp(skill)}).replace("\x7f", "\\u007f")


def _stamp(skill: Skill) -> str:
    """What the kept front matter said of the skill; another stamp means that it was edited since."""
    import hashlib

    told = skill.model_dump(mode="json", exclude={"body", "resources"})
    told["metadata"] = {key: value for key, value in told["metadata"].items() if key != SOURCE}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode(errors="surrogatepass")).hexdigest()[:16]


def _restored(skill: Skill) -> tuple[str, bytes] | None:
    """(file name, bytes) of the SKILL.md that an unedited skill came from."""
    try:
        record = json.loads(skill.metadata.get(SOURCE, ""))
        if record["of"] != _stamp(skill):
            return None
        if "whole" in record:
            text = str(record["whole"])
            same = front_matter(decode_text(text.encode()), lenient=True).body == skill.body
            return (str(record.get("file", SKILL_FILE)), text.encode()) if same else None
        return str(record.get("file", SKILL_FILE)), f"{record['before']}{skill.body}{record['after']}".encode()
    except (ValueError, KeyError, TypeError, ReadError):
        return None


def skill_files(harness: Harness, identifier: str) -> dict[str, bytes]:
    """Path in the skill's folder → bytes; byte for byte what was imported where the skill was not edited since."""
    skill = next((item for item in harness.skills if item.id == identifier), None)
    if skill is None:
        known = ", ".join(item.id for item in harness.skills)
        raise LoadError(harness.name, [Problem("skills", 0, f"no skill {identifier}", f"skills: {known}")])
    folder = skill_folders(harness)[skill.id]
    name, data = _restored(skill) or (SKILL_FILE, _plain(skill, folder))
    prefix = f"skills/{folder}/"
    own = {file.path: file for file in harness.files if file.path.startswith(prefix)}
    return {name: data} | {path: file_bytes(own[prefix + path]) for path in skill.resources if prefix + path in own}


def export_skill(harness: Harness, identifier: str, path: Path) -> None:
    """Writes the skill as a folder at `path`, whole or not at all; LoadError when something stands there."""
    path = Path(path)
    if path.exists():
        raise LoadError(str(path), [Problem(".", 0, "it exists already", "choose another path")])
    write_folder(skill_files(harness, identifier), path)


def add_skills(harness: Harness, imported: Sequence[ImportedSkill]) -> Harness:
    """The harness with further skills; LoadError for a skill whose id or name is taken. Save or validate it after."""
    skills, files, aliases = list(harness.skills), list(harness.files), dict(harness.aliases)
    problems = []
    folders = set(skill_folders(harness).values())
    for one in imported:
        taken = next((item for item in skills if one.skill.id == item.id or one.skill.name == item.name), None)
        if taken is not None or one.folder in folders:
            problems.append(
                Problem(f"skills/{one.folder}", 0, f"the skill {one.skill.id} is there already", "rename one")
            )
            continue
        folders.add(one.folder)
        skills.append(one.skill)
        files += one.files
        aliases.update(one.aliases)
    if problems:
        raise LoadError(harness.name, problems)
    files.sort(key=lambda file: file.path)
    update = {"skills": tuple(skills), "files": tuple(files), "aliases": aliases}
    sections = harness.sections
    if skills and "skills" not in sections:
        update["sections"] = ("skills", *sections)
    return harness.model_copy(update=update)
