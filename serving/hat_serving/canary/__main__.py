"""`python -m hat_serving.canary`: the controller of CanaryRollouts, in a pod, by a kubeconfig, or over a folder.

Exit codes: 0 told to stop, 5 the Lease was lost or the cluster is out of reach.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from hat_serving.canary.kube import Kube


async def run(arguments: argparse.Namespace) -> int:
    """Until SIGTERM, or until the Lease is lost."""
    from prometheus_client import start_http_server

    from hat_serving.canary.controller import Controller, Settings

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if arguments.folder is not None:
        return await _without_cluster(arguments, stop)
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and arguments.kubeconfig is None
    if arguments.kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(arguments.kubeconfig)
    kube = Kube.in_cluster() if inside else Kube.from_kubeconfig(arguments.kubeconfig)
    settings = Settings(
        namespaces=tuple(arguments.namespace),
        lease_namespace=arguments.lease_namespace,
        identity=arguments.identity,
        interval=arguments.interval,
        lease_seconds=arguments.lease_seconds,
        health_port=arguments.health_port,
        metrics_port=arguments.metrics_port,
        registry=arguments.registry,
        registry_token=os.environ.get("HATSTACK_TOKEN", ""),
    )
    controller = Controller(kube, settings)
    if settings.metrics_port:
        start_http_server(settings.metrics_port, registry=controller.collector)
    return 0 if await controller.run(stop) else 5


async def _without_cluster(arguments: argparse.Namespace, stop: asyncio.Event) -> int:
    from hat_serving.canary.controller import Controller, Settings
    from hat_serving.canary.folder import Folder
    from hat_serving.canary.watch import watch

    folder = Folder(arguments.folder)
    settings = Settings(registry=arguments.registry, registry_token=os.environ.get("HATSTACK_TOKEN", ""))
    controller = Controller(folder, settings)
    await watch(controller, folder, arguments.folder, stop, arguments.interval)
    await asyncio.to_thread(controller.close)
    return 0


def main() -> int:
    """Reads the flags and runs."""
    parser = argparse.ArgumentParser(prog="python -m hat_serving.canary", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--folder", type=Path, help="rollouts without a cluster: the folder that holds them")
    parser.add_argument("--registry", default="", help="registry whose ledger is told; its token in HATSTACK_TOKEN")
    parser.add_argument("--namespace", action="append", default=[], help="watched namespace; repeat; default: all")
    parser.add_argument("--lease-namespace", default=os.environ.get("POD_NAMESPACE", "default"))
    parser.add_argument("--identity", default=os.environ.get("POD_NAME", ""))
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two looks")
    parser.add_argument("--lease-seconds", type=float, default=15.0)
    parser.add_argument("--health-port", type=int, default=8081)
    parser.add_argument("--metrics-port", type=int, default=9108)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
