"""`hat doctor`: what this machine has, or a cluster, and what is missing for which part."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hatstack import paths
from hatstack.cli.canary import Context, Kubeconfig, Namespace, connect, read_manifest
from hatstack.cli.failure import CheckError, UsageError
from hatstack.cli.output import Output, RunsDir, emit, table

PARTS: dict[str, tuple[str, ...]] = {
    "training": ("torch", "transformers", "tokenizers", "safetensors", "mlflow", "trl"),
    "pipelines": ("kfp", "hera"),
    "registry": ("fastapi", "sqlalchemy", "uvicorn"),
    "serving": ("aiohttp", "kserve", "kopf", "locust"),
}
PORTS = {"console": 8700, "gateway": 8710, "engine": 8720, "mlflow": 8730, "tools": 8740}
LEAST_DISK_GIB, LEAST_MEMORY_GIB = 2.0, 2.0


@dataclass(frozen=True)
class Finding:
    """One line of the answer."""

    check: str
    state: Literal["ok", "note", "bad"]
    found: str
    cure: str = ""


def add(app: typer.Typer) -> None:
    """Give the application its command."""
    app.command("doctor")(doctor)


def doctor(
    target: Annotated[str | None, typer.Argument(help="`cluster` to check a cluster.", show_default=False)] = None,
    rollout: Annotated[
        Path | None, typer.Option("--rollout", help="Manifest of a rollout that the cluster shall carry.")
    ] = None,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Check this machine: Python, packages, disk, memory, ports, accelerator. `hat doctor cluster` checks a cluster."""
    if target == "cluster":
        _report(_cluster(connect(kubeconfig, context), namespace, rollout))
        return
    if target is not None:
        raise UsageError(
            f"nothing to check called {target!r}", place="hat doctor", cure="hat doctor, or hat doctor cluster"
        )
    _report([_python(), *_packages(), *_room(paths.runs_dir(runs_dir)), *_ports(), _accelerator()])


def _report(findings: list[Finding]) -> None:
    bad = [finding for finding in findings if finding.state == "bad"]
    emit(
        {"ok": not bad, "findings": [vars(finding) for finding in findings]},
        lambda: table(("check", "", "found", "cure"), [(f.check, f.state, f.found, f.cure) for f in findings]),
    )
    if bad:
        raise CheckError(f"{len(bad)} checks failed: {', '.join(f.check for f in bad)}", place="hat doctor")


def _cluster(kube: Any, namespace: str, rollout: Path | None) -> list[Finding]:
    """The cluster as it is, and what would make a rollout fail on it."""
    from hat_serving.canary.inspect import inspect
    from hat_serving.canary.metrics import Prometheus
    from hat_serving.canary.preflight import preflight
    from hat_serving.canary.spec import read_spec

    lines = [Finding(one.check, one.state, one.found, one.cure) for one in inspect(kube, namespace)]
    if rollout is None:
        return lines
    manifest = read_manifest(rollout)
    spec, metadata = read_spec(manifest["spec"]), manifest["metadata"]
    source = Prometheus(spec.prometheus.url, spec.prometheus.timeout) if spec.prometheus else None
    problems = preflight(spec, kube, metadata.get("namespace") or namespace, metadata["name"], source)
    lines += [Finding(one.code, "bad" if one.level == "error" else "note", one.message, one.cure) for one in problems]
    return lines if problems else [*lines, Finding(metadata["name"], "ok", "nothing stands in its way")]


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    good = sys.version_info >= (3, 11)
    return Finding("python", "ok" if good else "bad", version, "" if good else "install Python 3.11 or newer")


def _packages() -> list[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    findings = []
    for part, names in PARTS.items():
        found, missing = [], []
        for name in names:
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                missing.append(name)
        cure = f"install hatstack[{part}]: without {', '.join(missing)}" if missing else ""
        findings.append(Finding(part, "note" if missing else "ok", ", ".join(found) or "not installed", cure))
    return findings


def _room(runs: Path) -> list[Finding]:
    import os
    import shutil

    place = runs.resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    findings = [
        Finding(
            "disk",
            "ok" if free >= LEAST_DISK_GIB else "bad",
            f"{free:.1f} GiB free at {place}",
            "" if free >= LEAST_DISK_GIB else "free some space, or give --runs-dir",
        ),
        Finding(
            "cores",
            "ok" if cores >= 2 else "note",
            str(cores),
            "" if cores >= 2 else "runs take longer than the profiles say",
        ),
    ]
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError):
        return findings
    cure = "" if memory >= LEAST_MEMORY_GIB else "the micro profile needs about 2 GiB"
    return [*findings, Finding("memory", "ok" if memory >= LEAST_MEMORY_GIB else "bad", f"{memory:.1f} GiB", cure)]


def _ports() -> list[Finding]:
    import socket

    findings = []
    for name, port in PORTS.items():
        with socket.socket() as probe:
            probe.settimeout(0.2)
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        findings.append(
            Finding(
                f"port {port}",
                "note" if taken else "ok",
                f"{name}: {'taken' if taken else 'free'}",
                "the next free one is used" if taken else "",
            )
        )
    return findings


def _accelerator() -> Finding:
    import shutil

    if shutil.which("nvidia-smi") is None:
        return Finding("accelerator", "note", "none", "smoke and micro run on the CPU; h20 needs a GPU")
    import subprocess

    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("accelerator", "note", "nvidia-smi fails", str(error).splitlines()[0])
    return Finding("accelerator", "ok", ", ".join(done.stdout.split("\n")).strip(", "))
