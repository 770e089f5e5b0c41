"""Names as files: which folder a skill lies in, and which ids can be file names.

Always holds: `skill_folders` gives every skill its own valid Agent Skills folder name, from the harness alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from hat_harness.spec import Harness

FOLDER = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
"""Agent Skills: lower case, digits, single inner hyphens."""
FILE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
"""Ids of parts that become file names."""


def folder_name(identifier: str) -> str:
    """The nearest valid folder name: `item_qa` → `item-qa`."""
    text = re.sub(r"[^a-z0-9]+", "-", identifier.lower()).strip("-")
    return text[:64].strip("-") or "skill"


def skill_folders(harness: Harness) -> dict[str, str]:
    """Skill id → folder name. Aliases first, then the id itself where it is valid, then its nearest valid name."""
    by_alias = {identifier: folder for folder, identifier in harness.aliases.items()}
    taken = set(harness.aliases)
    folders: dict[str, str] = {}
    for skill in harness.skills:
        folder = by_alias.get(skill.id) or folder_name(skill.id)
        stem, number = folder, 2
        while skill.id not in by_alias and folder in taken:
            folder, number = f"{stem}-{number}", number + 1
        taken.add(folder)
        folders[skill.id] = folder
    return folders


def permutation(names: Mapping[str, str]) -> dict[str, str]:
    """An injective renaming as a permutation of all names that it speaks of.

    A name that becomes taken is sent to the name that became free, so that what was unknown before stays unknown
    after, and the inverse is exact on every input.
    """
    inverse = {new: old for old, new in names.items()}
    whole = dict(names)
    for new in inverse:
        if new not in names:
            end = new
            while end in inverse:
                end = inverse[end]
            whole[new] = end
    return whole


def fold(path: str) -> str:
    """What two paths share when a file system may take them for the same: case and Unicode form are ignored."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
