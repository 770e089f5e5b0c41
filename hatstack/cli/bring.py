"""What `hat harness init` starts from when one brings one's own: folders of Agent Skills and tools of MCP servers.

Always holds: nothing that is brought is run. Not here: the command (harness).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatstack.cli.failure import ConflictError

if TYPE_CHECKING:
    from hat_harness.spec import Harness


@dataclass
class Brought:
    """A harness to be saved, with what belongs beside it and what should be told."""

    harness: Harness
    bindings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def blank() -> Harness:
    """A harness without parts, laid out for models that take function definitions."""
    from hat_harness.spec import Activation, Harness, Layout

    layout = Layout(tools="schema", skill="- {name}: {description}")
    return Harness(name="blank", layout=layout, activation=Activation(description="Load a skill before you use it."))


def add_tools(brought: Brought, addresses: list[str]) -> None:
    """The tools of MCP servers, and bindings that reach them."""
    from hat_registry.mcp_tools import discover

    for number, address in enumerate(addresses, start=1):
        found = discover(address)
        brought.notes += [f"{address}: {problem}" for problem in found.problems]
        have = {name for tool in brought.harness.tools for name in (tool.id, tool.name)}
        taken = next((tool.id for tool in found.tools if {tool.id, tool.name} & have), "")
        if taken:
            raise ConflictError(f"the tool {taken} is there already", place=address, cure="give one server of the two")
        server = f"mcp-{number}"
        bindings = brought.bindings
        bindings.setdefault("servers", {})[server] = {"mcp": address, "drift": "warn"}
        bindings.setdefault("tools", {}).update({tool.id: server for tool in found.tools})
        if found.names:
            bindings.setdefault("names", {}).update(found.names)
        brought.harness = brought.harness.model_copy(update={"tools": (*brought.harness.tools, *found.tools)})


def add_folders(brought: Brought, folders: list[Path]) -> None:
    """Skills from folders: each a skill, or a folder of them; read leniently, with a note for all that was passed over."""
    from hat_harness.skills_folder import add_skills, import_skill, import_skills

    tools = [tool.id for tool in brought.harness.tools]
    for folder in folders:
        one = any((folder / name).is_file() for name in ("SKILL.md", "skill.md"))
        found = (
            [import_skill(folder, lenient=True, tools=tools)]
            if one
            else import_skills(folder, lenient=True, tools=tools)
        )
        brought.notes += [f"{item.folder}: {note}" for item in found for note in item.notes]
        brought.harness = add_skills(brought.harness, found)


def write_bindings(brought: Brought, target: Path) -> None:
    """`bindings.yaml` beside the parts, where there is any."""
    from hat_harness.save import write_yaml

    if brought.bindings:
        (target / "bindings.yaml").write_text(write_yaml(brought.bindings), encoding="utf-8")
