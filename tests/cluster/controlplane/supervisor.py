"""Inside the namespaces: brings the control plane up, keeps it up, takes it down. Process 1 of its process namespace.

Everything that it starts dies with it, because the kernel ends a process namespace with its first process. It ends
when told to (SIGTERM), when a program dies, or when the other end of its standard input closes; that is how a killed
test run leaves nothing behind. Progress goes to standard output as JSON lines; the last is {"phase": "ready"} or
{"error": …}.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import yaml

from tests.cluster.controlplane import certs, install, manifests, processes, snapshot, workflows
from tests.cluster.controlplane.api import Api
from tests.cluster.controlplane.errors import ControlPlaneError
from tests.cluster.controlplane.podrunner import KUBELET_PORT, PodRunner
from tests.cluster.controlplane.pods.logs import LogServer
from tests.cluster.controlplane.pods.network import Network
from tests.cluster.controlplane.processes import Processes
from tests.cluster.controlplane.services import ServiceProxy, forward


class Supervisor:
    """One cluster."""

    def __init__(self, run: Path, build: Path, *, llm: bool, backoff: float, argo: Path | None = None) -> None:
        self.run_folder, self.build, self.llm, self.backoff, self.argo = run, build, llm, backoff, argo
        self.pki, self.kubeconfig = run / "pki", run / "admin.kubeconfig"
        self.token = secrets.token_hex(16)
        self.processes = Processes(run / "logs")
        self._begun = time.monotonic()

    async def up(self) -> None:
        """etcd to KServe; installs, and takes the snapshot, when there is none."""
        target = snapshot.path(self.build, llm=self.llm)
        if not await asyncio.to_thread(snapshot.restore, target, self.run_folder):
            certs.write_all(self.pki)
            await self._core()
            await self._install()
            self.say("installed")
            await self.processes.stop()
            await asyncio.to_thread(snapshot.save, self.run_folder, target)
            self.say("snapshot")
        await self._core()
        self.say("api")
        await self._controllers()
        self.say("controllers")

    async def _core(self) -> None:
        (self.run_folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        self.kubeconfig.write_text(kubeconfig(processes.API, self.pki / "ca.crt", self.token))
        binaries = self.build / "bin"
        await self.processes.start(processes.etcd(binaries, self.run_folder / "etcd"))
        tokens, audit = self.run_folder / "tokens.csv", self.run_folder / "audit"
        audit.mkdir(exist_ok=True)
        (audit / "policy.yaml").write_text(processes.AUDIT)
        await self.processes.start(processes.api_server(binaries, self.pki, tokens, self.token, audit))

    async def restarts(self) -> None:
        """Kills and starts again what the file `restart` names, as PROGRAM SECONDS; the file goes once it is up."""
        wish = self.run_folder / "restart"
        while True:
            if wish.exists() and (words := wish.read_text().split()):
                await self.processes.restart(words[0], float(words[1]))
                wish.unlink()
            await asyncio.sleep(0.1)

    async def _install(self) -> None:
        folder = manifests.place(self.build)
        async with self.api() as api:
            await install.crds(api, folder, llm=self.llm)
            await install.settings(api, folder)
            await self._kserve()
            await install.webhooks(api, folder, "webhooks", processes.KSERVE_WEBHOOK_PORT)
            if self.llm:
                await install.webhooks(api, folder, "llm-webhooks", processes.LLM_WEBHOOK_PORT)
                await install.llm_settings(api, folder)

    async def _kserve(self) -> None:
        temporary = self.run_folder / "tmp"
        install.webhook_certificate(self.pki, temporary)
        await self.processes.start(processes.kserve(self.build / "bin", self.kubeconfig, temporary))
        if self.llm:
            await self.processes.start(processes.llm_manager(self.build / "bin", self.kubeconfig, temporary))

    async def _controllers(self) -> None:
        binaries = self.build / "bin"
        await self.processes.start(processes.controller_manager(binaries, self.pki, self.kubeconfig))
        await self.processes.start(processes.scheduler(binaries, self.kubeconfig))
        await self._kserve()
        await self.processes.start(processes.traefik(self.pki, self.token))
        if self.argo is not None:
            async with self.api() as api:
                await workflows.install(api, self.argo)
            await self.processes.start(workflows.s3(self.run_folder / "s3"))
            await self.processes.start(workflows.controller(self.argo / "bin", self.kubeconfig))

    def api(self) -> Api:
        """A client with all rights."""
        return Api(processes.API, self.pki / "ca.crt", self.token)

    def say(self, phase: str, **more: object) -> None:
        """One line for whoever waits outside."""
        print(json.dumps({"phase": phase, "seconds": round(time.monotonic() - self._begun, 2), **more}), flush=True)


async def serve(supervisor: Supervisor, listeners: dict[int, socket.socket], stop: asyncio.Event) -> None:
    """Starts everything, says "ready", and waits for the end."""
    network = Network()
    await network.up()
    await supervisor.up()
    servers = [await asyncio.start_server(_to(port), sock=listener) for port, listener in listeners.items()]
    logs = LogServer(supervisor.run_folder / "logs" / "pods", supervisor.pki, KUBELET_PORT)
    await logs.start()
    async with supervisor.api() as api:
        runner = PodRunner(api, network, supervisor.run_folder, backoff=supervisor.backoff)
        tasks = [
            asyncio.create_task(runner.run()),
            asyncio.create_task(ServiceProxy(api, 6443).run()),
            asyncio.create_task(_reap()),
            asyncio.create_task(supervisor.restarts()),
        ]
        death = asyncio.create_task(supervisor.processes.first_death())
        supervisor.say("ready", token=supervisor.token)
        ending = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({*tasks, death, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {ending}:
            print(task.result() if task is death else task.exception(), file=sys.stderr, flush=True)
        for task in (*tasks, death, ending):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await runner.stop()
    await logs.stop()
    for server in servers:
        server.close()


def _to(port: int) -> asyncio.streams._ClientConnectedCallback:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forward(reader, writer, "127.0.0.1", port)

    return connected


async def _reap() -> None:
    """Process 1 inherits the orphans of pods; one that is a zombie at the second look is nobody's: collected."""
    seen = 0
    while True:
        await asyncio.sleep(0.5)
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and ended.si_pid == seen:
                os.waitpid(seen, os.WNOHANG)
            seen = ended.si_pid if ended is not None else 0


def kubeconfig(server: str, ca: Path, token: str) -> str:
    """A kubeconfig with the authority's certificate inside."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "hatstack",
            "clusters": [{"name": "hatstack", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "hatstack", "context": {"cluster": "hatstack", "user": "admin"}}],
        }
    )


async def main(arguments: argparse.Namespace) -> int:
    """0: told to stop. 1: could not start."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if not arguments.detached:
        loop.add_reader(0, stop.set)
    supervisor = Supervisor(
        arguments.run, arguments.build, llm=arguments.llm, backoff=arguments.backoff, argo=arguments.argo
    )
    listeners = {}
    for pair in arguments.listen:
        port, _, number = pair.partition("=")
        listeners[int(port)] = socket.socket(fileno=int(number))
    try:
        await serve(supervisor, listeners, stop)
    except (ControlPlaneError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    finally:
        await supervisor.processes.stop()
        if stop.is_set() and not os.environ.get("HATSTACK_KEEP_CLUSTER"):
            shutil.rmtree(arguments.run, ignore_errors=True)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--listen", action="append", default=[], metavar="PORT=FD")
    parser.add_argument("--llm", action="store_true")
    parser.add_argument("--argo", type=Path, default=None)
    parser.add_argument("--backoff", type=float, default=1.0)
    parser.add_argument("--detached", action="store_true")
    code = asyncio.run(main(parser.parse_args()))
    sys.stdout.flush()
    os._exit(code)
