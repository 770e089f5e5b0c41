"""Pushes and moves for ever, telling each acknowledged digest: what a test kills. Runs in a process of its own."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from hat_registry import accounts, pointers
from hat_registry.registry import Registry

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.registry.pusher"])


def files(number: int) -> dict[str, bytes]:
    """A small harness that no other number makes."""
    head = "format: hatstack.harness/1\nname: shop\nsections: [rules]\nactivation: {required: false}\n"
    rules = f"---\nsection: rules\n---\nrule number {number}\n"
    return {"harness.yaml": head.encode(), "prompts/rules.md": rules.encode()}


def life(url: str, blobs: str, start: int, acknowledged: Connection) -> None:
    """Until somebody ends it."""
    registry = Registry.open(url, Path(blobs))
    number = start
    while True:
        version, _ = registry.push(accounts.SYSTEM, files(number), message=f"number {number}")
        with registry.database.write() as tx:
            pointers.move_free(tx, accounts.SYSTEM, "harness", "shop", "staging", version.digest)
        acknowledged.send_bytes(version.digest.encode())
        number += 1
