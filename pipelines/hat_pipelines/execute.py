"""Runs one step in this process: reads its config, calls its `run`, says how it ended. The same everywhere.

The local runner calls it in a process of its own; KFP and Argo pods call it through `pod`.
Always holds: an expected error comes back as a `Fault`, never as a traceback; the traceback of an unexpected one goes
to the log. Not here: where results lie and who starts processes (worker, to_kfp, to_hera).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from hat_components.runner import FileProgress
from hat_components.step import StepResult
from hat_harness.errors import Kind, PlatformError
from hat_pipelines import components
from hat_pipelines.runs import Fault

LOST_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError")
"""torch.distributed's errors of a group that lost a member; by name, since torch is not imported here."""
LOST_SIGNS = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL communicator was aborted")
"""What gloo and NCCL say of it in plain RuntimeErrors."""


def execute(component: str, config: Path, inputs: Mapping[str, Path], out: Path, progress: Path) -> StepResult | Fault:
    """Run a step; KeyboardInterrupt passes through."""
    with FileProgress(progress, component) as reporter:
        try:
            checked = components.config_class(component).model_validate_json(config.read_bytes())
            run = components.run_function(component)
            out.mkdir(parents=True, exist_ok=True)
            return run(checked, inputs, out, reporter)
        except PlatformError as error:
            sys.stderr.write(f"{error}\n")
            return Fault(kind=error.kind, message=_told(error), place=error.place, cure=error.cure)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            return Fault(kind="invalid_input", message=f"{where}: {first['msg']}", place=str(config))
        except MemoryError:
            traceback.print_exc()
            return Fault(
                kind="exhausted", message="out of memory", cure="use smaller sizes, or a machine with more memory"
            )
        except OSError as error:
            traceback.print_exc()
            full = error.errno in (28, 122)
            kind: Kind = "exhausted" if full else "internal"
            cure = "free disk space (hat cache gc), then resume" if full else "read the log"
            return Fault(kind=kind, message=error.strerror or str(error), place=str(error.filename or ""), cure=cure)
        except RuntimeError as error:
            traceback.print_exc()
            return _peer_lost(error) or _unexpected(error)
        except Exception as error:  # whatever a step raises becomes a record; the log has the traceback
            traceback.print_exc()
            return _unexpected(error)


def _unexpected(error: Exception) -> Fault:
    first_line = (str(error).splitlines() or [""])[0][:300]
    return Fault(kind="internal", message=f"unexpected {type(error).__name__}: {first_line}", cure="read the log")


def _peer_lost(error: RuntimeError) -> Fault | None:
    """What to say when this is one of several processes and it is another one that is gone; else None."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if not several or not (type(error).__name__ in LOST_ERRORS or any(sign in str(error) for sign in LOST_SIGNS)):
        return None
    told = (str(error).splitlines() or [""])[0][:200]
    return Fault(
        kind="unavailable",
        message=f"another process of this step was lost: {told}",
        cure="look for a pod that was killed; the step may be tried again",
    )


def _told(error: PlatformError) -> str:
    """The message with its list of problems, if it has one."""
    problems = [str(problem) for problem in getattr(error, "problems", ())]
    return "\n  ".join([error.message, *problems[:20]])
