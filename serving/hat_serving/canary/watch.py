"""Looks at the rollouts of a folder, as the controller does on Kubernetes: one process at a time, by a lock.

Always holds: everything that a look knows lies in the folder, so the process may be killed at any moment; a rollout
that is deleted is aborted first. Not here: decisions (machine), what a look does (controller, driver).
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import time
from pathlib import Path

import kopf

from hat_serving.canary.controller import Controller
from hat_serving.canary.folder import Folder
from hat_serving.canary.kube import Manifest
from hat_serving.canary.spec import API_VERSION, KIND
from hat_serving.canary.state import TERMINAL

log = logging.getLogger("hatstack.canary")


async def watch(controller: Controller, folder: Folder, root: Path, stop: asyncio.Event, interval: float) -> None:
    """Looks until it is told to stop; waits while another process has the folder."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".controller").open("w") as lock:
        while not _taken(lock.fileno()):
            if await _stopped(stop, interval):
                return
        while True:
            begun = time.monotonic()
            await asyncio.to_thread(once, controller, folder)
            if await _stopped(stop, max(interval - (time.monotonic() - begun), 0.05)):
                return


def once(controller: Controller, folder: Folder) -> None:
    """One look at every rollout that is not finished."""
    for found in folder.list(API_VERSION, KIND):
        try:
            _one(controller, folder, found)
        except kopf.TemporaryError as error:
            log.warning("%s: %s", found["metadata"]["name"], error)
        except Exception:  # one rollout's fault must not stop the others
            log.exception("%s", found["metadata"]["name"])


def _one(controller: Controller, folder: Folder, found: Manifest) -> None:
    metadata = found["metadata"]
    leaving = bool(metadata.get("deletionTimestamp"))
    phase = (found.get("status") or {}).get("phase", "Pending")
    if phase not in TERMINAL:
        controller.look(found, deleting=leaving)
    elif leaving:
        folder.delete(API_VERSION, KIND, metadata["name"], metadata["namespace"])


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _stopped(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True
