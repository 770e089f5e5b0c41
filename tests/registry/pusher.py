"""Pushes and moves for ever, telling each acknowledged digest on a line of its own: `python pusher.py FOLDER START`."""

from __future__ import annotations

import sys
from pathlib import Path

from hat_registry import accounts, pointers
from hat_registry.registry import Registry


def files(number: int) -> dict[str, bytes]:
    """A small harness that no other number makes."""
    head = "format: hatstack.harness/1\nname: shop\nsections: [rules]\nactivation: {required: false}\n"
    rules = f"---\nsection: rules\n---\nrule number {number}\n"
    return {"harness.yaml": head.encode(), "prompts/rules.md": rules.encode()}


def main() -> None:
    """Until somebody ends it."""
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
    while True:
        version, _ = registry.push(accounts.SYSTEM, files(number), message=f"number {number}")
        with registry.database.write() as tx:
            pointers.move_free(tx, accounts.SYSTEM, "harness", "shop", "staging", version.digest)
        sys.stdout.write(version.digest + "\n")
        sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    main()
