"""The handle on a cluster from outside: starts the supervisor, waits until it is ready, always stops it.

Two listening sockets are opened here, on free loopback ports, and given to the supervisor: one leads to the API
server, one to the gateway. They are the only doors; everything else of the cluster has a loopback of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import argo_build, build, processes
from tests.cluster.controlplane.errors import ControlPlaneError, StartError
from tests.cluster.controlplane.supervisor import kubeconfig
from tests.cluster.controlplane.workflows import S3_PORT

REPOSITORY = Path(__file__).resolve().parents[3]
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
USER = ("--user", "--map-root-user")
STOP_SECONDS = 20.0
RESTART_S = 180.0


@dataclass(slots=True)
class Cluster:
    """A running cluster. `gateway` is the base URL of Traefik: choose a route by the Host header."""

    process: subprocess.Popen[str]
    folder: Path
    kubeconfig: Path
    gateway: str
    token: str
    seconds: float
    """How long the start took."""
    s3: str = ""
    """The artifact repository from outside, with Argo; from pods it is `workflows.S3`."""

    @classmethod
    def start(
        cls,
        *,
        llm: bool = False,
        argo: bool = False,
        backoff: float = 1.0,
        detached: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> Cluster:
        """Starts a cluster and returns when it is ready: 16 s the first time, 4 to 8 s from a snapshot.

        `llm`: with LLMInferenceServices. `argo`: with Argo's workflow-controller and an S3.
        `backoff`: seconds before the second restart of a crashing container.
        `detached`: it outlives this process. Raises NotBuiltError, StartError.
        """
        programs = build.folder()
        folder = Path(tempfile.mkdtemp(prefix="hatstack-cluster-"))
        folder.chmod(0o700)
        (folder / "logs").mkdir()
        doors = (6443, processes.GATEWAY_PORT, *((S3_PORT,) if argo else ()))
        listeners = {port: _listen() for port in doors}
        options = [f"--run={folder}", f"--build={programs}", f"--backoff={backoff}"]
        options += [f"--listen={port}={listener.fileno()}" for port, listener in listeners.items()]
        options += ["--llm"] * llm + ["--detached"] * detached
        options += [f"--argo={argo_build.folder()}"] * argo
        with (folder / "logs" / "supervisor.log").open("wb") as log:
            process = subprocess.Popen(
                ["unshare", *namespaces(), sys.executable, "-m", "tests.cluster.controlplane.supervisor", *options],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[listener.fileno() for listener in listeners.values()],
                start_new_session=True,
            )
        api, gateway, *rest = (f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners.values())
        for listener in listeners.values():
            listener.close()
        cluster = cls(process, folder, folder / "kubeconfig", f"http://{gateway}", "", 0.0)
        cluster.s3 = f"http://{rest[0]}" if rest else ""
        try:
            ready = cluster._until_ready(say)
            cluster.token, cluster.seconds = ready["token"], ready["seconds"]
            cluster.kubeconfig.touch(mode=0o600)
            cluster.kubeconfig.write_text(kubeconfig(f"https://{api}", folder / "pki" / "ca.crt", cluster.token))
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def stop(self) -> None:
        """Ends every process of the cluster and removes its folder (`HATSTACK_KEEP_CLUSTER=1` keeps the folder)."""
        if self.process.poll() is None:
            stop(self.process.pid, self.process.wait)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if not os.environ.get("HATSTACK_KEEP_CLUSTER"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, program: str, seconds: float = 0.0) -> None:
        """Kills a program, e.g. `kube-apiserver` or `kserve`, and starts it again after `seconds`; waits until it is up."""
        wish = self.folder / "restart"
        temporary = wish.with_suffix(".new")
        temporary.write_text(f"{program} {seconds}")
        temporary.replace(wish)
        until = time.monotonic() + seconds + RESTART_S
        while wish.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                why = "the cluster ended" if self.process.poll() is not None else f"{RESTART_S:.0f} s went by"
                raise StartError(f"{why} while {program} was started again", place=str(self.folder / "logs"))
            time.sleep(0.1)

    def audit(self) -> list[dict[str, Any]]:
        """What the service accounts of namespace hatstack-system have asked the API server for, the oldest first."""
        path = self.folder / "audit" / "audit.log"
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []

    def log(self, name: str) -> str:
        """The whole log of a program, e.g. `kserve`, `traefik`, `supervisor`."""
        return (self.folder / "logs" / f"{name}.log").read_text(errors="replace")

    def pod_log(self, namespace: str, pod: str, container: str) -> str:
        """What the container's runs have written, the oldest first. `pod` may be the start of a name."""
        runs = (self.folder / "logs" / "pods").glob(f"{namespace}_{pod}*/{container}/[0-9]*.log")
        return "".join(path.read_text(errors="replace") for path in sorted(runs, key=lambda path: path.stat().st_mtime))

    def volume(self, uid: str, name: str) -> Path:
        """Where a pod's volume lies on this machine, so that a test can look into it or change it."""
        return self.folder / "pods" / uid / "volumes" / name

    def _until_ready(self, say: Callable[[str], None]) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            report: dict[str, Any] = json.loads(line)
            if "error" in report:
                raise StartError(str(report["error"]), place=str(self.folder / "logs"))
            say(f"{report['phase']} after {report['seconds']} s")
            if report["phase"] == "ready":
                return report
        raise StartError(f"the supervisor ended: {self.log('supervisor')[-2000:]}")


def stop(pid: int, wait: Callable[[float], object]) -> None:
    """Asks the supervisor of process group `pid` to stop, then kills it; the kernel ends the rest."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            wait(STOP_SECONDS)
            return


def _listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.set_inheritable(True)
    return listener


def namespaces() -> tuple[str, ...]:
    """Flags of `unshare`; root can do without a user namespace where the machine forbids them."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        raise ControlPlaneError("`unshare` or `ip` is missing", cure="install util-linux and iproute2")
    for flags in ((*USER, *NAMESPACES), NAMESPACES):
        if subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False).returncode == 0:
            return flags
    raise ControlPlaneError(
        "this machine lets you make no namespaces",
        cure="allow user namespaces (sysctl kernel.unprivileged_userns_clone=1; seccomp profile) or be root",
    )
