"""One container from its first start to its last end: restarts with back-off, probes, graceful stop, the state shown.

States and reasons are Kubernetes' own: waiting (PodInitializing, ContainerCreating, CreateContainerConfigError,
CrashLoopBackOff), running, terminated (Completed, Error). The first restart is immediate, the next wait `backoff`,
twice that, and so on up to five minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Literal

from tests.cluster.controlplane.api import Manifest
from tests.cluster.controlplane.pods import probes
from tests.cluster.controlplane.pods.images import ImageUnknownError
from tests.cluster.controlplane.pods.sandbox import Sandbox, exit_code, signal_of
from tests.cluster.controlplane.pods.volumes import MissingReferenceError

LONGEST_BACKOFF = 300.0
RETRY = 0.3
Policy = Literal["Always", "OnFailure", "Never"]


def now() -> str:
    """The time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Container:
    """A container of a pod. `run` returns the last exit code once it will not be started again."""

    def __init__(self, sandbox: Sandbox, spec: Manifest, policy: Policy) -> None:
        self.spec = spec
        self.policy = policy
        self.state: Manifest = {"waiting": {"reason": "PodInitializing"}}
        self.last_state: Manifest = {}
        self.restarts = 0
        self.started = False
        self.ready = False
        self.up = asyncio.Event()
        """Set once the start-up probe has passed (or there is none)."""
        self._sandbox = sandbox
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._grace = float(sandbox.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def run(self) -> int:
        """Starts the program, again and again as the policy says."""
        while True:
            code = await self._once()
            again = self.policy == "Always" or (self.policy == "OnFailure" and code != 0)
            if self._stopping or not again:
                return code
            wait = min(self._sandbox.backoff * 2 ** (self.restarts - 1), LONGEST_BACKOFF) if self.restarts else 0.0
            self.last_state = self.state
            if wait:
                message = f"back-off {wait:.0f}s restarting failed container={self.spec['name']}"
                self._set({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
                await asyncio.sleep(wait)
            self.restarts += 1

    async def stop(self, grace: float | None = None) -> None:
        """preStop hook, SIGTERM, and SIGKILL when the grace period is over."""
        self._stopping = True
        process, limit = self._process, self._grace if grace is None else grace
        if process is None or process.returncode is not None:
            return
        deadline = time.monotonic() + limit
        if hook := (self.spec.get("lifecycle") or {}).get("preStop"):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pre_stop(hook, limit), limit)
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), max(deadline - time.monotonic(), 0.05))
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await process.wait()

    def log(self) -> Path:
        """Where the present run writes; one file per run."""
        name: str = self.spec["name"]
        return self._sandbox.logs / name / f"{self.restarts}.log"

    async def _once(self) -> int:
        """One run of the program: its exit code as the runtime reports it."""
        self._process = await self._start()
        begun = now()
        self._set({"running": {"startedAt": begun}})
        watcher = asyncio.create_task(self._watch(self._process))
        try:
            code = exit_code(await self._process.wait())
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        self._signal(signal.SIGKILL)
        self.started = self.ready = False
        self._set({"terminated": self._terminated(code, begun)})
        return code

    async def _start(self) -> asyncio.subprocess.Process:
        while True:
            try:
                return await self._sandbox.spawn(self.spec, self.log())
            except MissingReferenceError as missing:
                self._set({"waiting": {"reason": "CreateContainerConfigError", "message": missing.message}})
            except ImageUnknownError as unknown:
                self._set({"waiting": {"reason": "CreateContainerError", "message": str(unknown)}})
            await asyncio.sleep(RETRY)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Start-up probe first; then readiness and liveness side by side until the program ends."""
        startup = self.spec.get("startupProbe")
        if startup and not await self._until_up(startup):
            await self._restart(process)
            return
        self.started = True
        self.up.set()
        readiness, liveness = self.spec.get("readinessProbe"), self.spec.get("livenessProbe")
        self.ready = readiness is None
        self._sandbox.changed.set()
        tasks = [self._ready_loop(readiness)] if readiness else []
        tasks += [self._live_loop(liveness, process)] if liveness else []
        await asyncio.gather(*tasks)

    async def _until_up(self, probe: Manifest) -> bool:
        await asyncio.sleep(probes.delay(probe))
        loop = asyncio.get_running_loop()
        patience = float(probe.get("periodSeconds") or 10) * int(probe.get("failureThreshold") or 3)
        deadline = loop.time() + patience
        while not await self._ask(probe):
            if loop.time() > deadline:
                return False
            await asyncio.sleep(probes.EAGER_PERIOD)
        return True

    async def _ready_loop(self, probe: Manifest) -> None:
        await asyncio.sleep(probes.delay(probe))
        good = bad = 0
        while True:
            if await self._ask(probe):
                good, bad = good + 1, 0
            else:
                good, bad = 0, bad + 1
            before = self.ready
            if good >= int(probe.get("successThreshold") or 1):
                self.ready = True
            elif bad >= int(probe.get("failureThreshold") or 3):
                self.ready = False
            if self.ready != before:
                self._sandbox.changed.set()
            await asyncio.sleep(probes.period(probe) if self.ready else probes.EAGER_PERIOD)

    async def _live_loop(self, probe: Manifest, process: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(probes.delay(probe))
        bad = 0
        while bad < int(probe.get("failureThreshold") or 3):
            bad = 0 if await self._ask(probe) else bad + 1
            await asyncio.sleep(probes.period(probe))
        await self._restart(process)

    async def _restart(self, process: asyncio.subprocess.Process) -> None:
        """A failed liveness or start-up probe: the program is ended, the restart policy decides what follows."""
        self._signal(signal.SIGTERM)
        await asyncio.sleep(min(self._grace, 2.0))
        if process.returncode is None:
            self._signal(signal.SIGKILL)

    async def _ask(self, probe: Manifest) -> bool:
        return await probes.ask(probe, self.spec, self._sandbox.attachment.address, self._execute)

    async def _execute(self, command: list[str], limit: float) -> int:
        log = self._sandbox.logs / self.spec["name"] / "exec.log"
        process = await self._sandbox.spawn(self.spec, log, command)
        try:
            return exit_code(await asyncio.wait_for(process.wait(), limit))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return 124

    async def _pre_stop(self, hook: Manifest, limit: float) -> None:
        if "sleep" in hook:
            await asyncio.sleep(float(hook["sleep"]["seconds"]))
        else:
            await probes.ask(
                {**hook, "timeoutSeconds": limit}, self.spec, self._sandbox.attachment.address, self._execute
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _set(self, state: Manifest) -> None:
        self.state = state
        self._sandbox.changed.set()

    def _terminated(self, code: int, begun: str) -> Manifest:
        ended: Manifest = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": begun,
            "finishedAt": now(),
        }
        if number := signal_of(code):
            ended["signal"] = number
        if code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError" and self.log().exists():
            ended["message"] = self.log().read_text(errors="replace")[-2048:]
        return ended
