"""`python -m tests.cluster.controlplane build|up|down|status|can`: the control plane by hand."""

from __future__ import annotations

import argparse
import sys

from tests.cluster.controlplane import able, argo_build, build, by_hand, trainer_build
from tests.cluster.controlplane.errors import ControlPlaneError, NotBuiltError


def main() -> int:
    """Exit codes: 0 ok, 4 one runs already, 5 not built or not startable."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.controlplane", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("build", help="compile the programs once (12 minutes on two cores)")
    make.add_argument("--jobs", type=int, help="packages compiled at once")
    make.add_argument("--trainer", action="store_true", help="with Kubeflow Trainer's controllers (3 minutes more)")
    start = verbs.add_parser("up", help="start a cluster that stays until `down`")
    start.add_argument("--llm", action="store_true", help="with LLMInferenceServices")
    verbs.add_parser("down", help="stop it")
    verbs.add_parser("status", help="say where it is")
    verbs.add_parser("can", help="say whether cluster tests can run here: built already, or to be built")
    arguments = parser.parse_args()
    try:
        return _run(arguments)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 5 if isinstance(error, NotBuiltError) else 4 if "runs already" in error.message else 5


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "build":
        build.build(arguments.jobs)
        argo_build.make(arguments.jobs)
        if arguments.trainer:
            trainer_build.make(arguments.jobs)
    elif arguments.verb == "can":
        lacking = able.lacking()
        print(f"The cluster tests cannot run here: {lacking}" if lacking else "The cluster tests can run here")
        return 5 if lacking else 0
    elif arguments.verb == "down":
        print("stopped" if by_hand.down() else "no cluster runs")
    else:
        note = by_hand.up(llm=arguments.llm) if arguments.verb == "up" else by_hand.running()
        if note is None:
            print("no cluster runs")
            return 0
        print(f"gateway  {note['gateway']}   (choose a route by the Host header)")
        print(f"export KUBECONFIG={note['kubeconfig']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
