"""Further files of a skill as the model reads them: the last step from catalogue to body to file.

The model passes `skill/path` to the activation tool after it has loaded the skill. Always holds: only a file that the
skill lists is read, from the harness and not from a disk; nothing is run; a text is at most `room_for` characters with
a mark where it was cut, and a file that is no text is told by its size. Not here: bodies and catalogue lines (render).
"""

from __future__ import annotations

import difflib

from hat_harness.digest import file_bytes
from hat_harness.names import skill_folders
from hat_harness.spec import Harness, Skill
from hat_harness.texts import quoted, say

MOST = 16_384
"""Characters of one file that a context ever takes."""
_TOLD = 20


def room_for(harness: Harness) -> int:
    """Characters of one file that fit: about a quarter of the segment's token budget, never more than `MOST`."""
    return min(MOST, harness.limits.segment_tokens)


def read_resource(harness: Harness, skill: Skill, path: str) -> tuple[str, bool]:
    """(what the model reads, whether there is such a file)."""
    language = harness.language
    if path not in skill.resources:
        close = difflib.get_close_matches(path[:200], skill.resources, _TOLD, 0.4) or list(skill.resources[:_TOLD])
        return say(language, "no_file", name=path[:200], skill=skill.name, known=quoted(close)), False
    stands = f"skills/{skill_folders(harness)[skill.id]}/{path}"
    file = next((item for item in harness.files if item.path == stands), None)
    if file is None:
        return say(language, "no_file", name=path, skill=skill.name, known=quoted([])), False
    if file.encoding == "base64":
        return say(language, "no_text", name=path, size=str(len(file_bytes(file)))), True
    most = room_for(harness)
    if len(file.content) <= most:
        return file.content, True
    return file.content[:most] + say(language, "cut", size=str(len(file.content))), True
