"""Runs one step in this process: reads its config, calls its `run`, says how it ended. The same everywhere.

The local runner calls it in a process of its own; KFP and Argo pods call it through `pod`.
Always holds: an expected error comes back as a `Fault`, never as a traceback; the traceback of an unexpected one goes
to the log. Not here: where results lie and who starts processes (worker, to_kfp, to_hera).
"""

from __future__ import annotations

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
            kind: Kind = "exhausted" if error.errno in (28, 122) else "internal"
            return Fault(kind=kind, message=error.strerror or str(error), place=str(error.filename or ""))
        except Exception as error:  # whatever a step raises becomes a record; the log has the traceback
            traceback.print_exc()
            first_line = (str(error).splitlines() or [""])[0][:300]
            return Fault(
                kind="internal", message=f"unexpected {type(error).__name__}: {first_line}", cure="read the log"
            )


def _told(error: PlatformError) -> str:
    """The message with its list of problems, if it has one."""
    problems = [str(problem) for problem in getattr(error, "problems", ())]
    return "\n  ".join([error.message, *problems[:20]])
