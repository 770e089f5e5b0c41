"""docs/hooks.md says of every context field and every action what the code says."""

from __future__ import annotations

from pathlib import Path

from hat_harness.hooks import ACTIONS, CONTEXT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hooks.md"


def test_every_field_and_every_action_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, field in CONTEXT.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert f"`{field.type}`" in row
        assert field.doc in row
    for event, actions in ACTIONS.items():
        section = page.split(f"### `{event}`\n")[1].split("\n### ")[0]
        rows = [f"| `{action}` | {doc} |" for action, doc in actions.items()]
        assert [line for line in section.splitlines() if line.startswith("| `")] == rows
