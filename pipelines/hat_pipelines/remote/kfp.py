"""Runs of Kubeflow Pipelines by its v2beta1 API, with the generated client `kfp-server-api`.

Always holds: a run is found by its display name, which is the run's name here, so nothing is submitted twice; PENDING,
PAUSED and CANCELING are not over. Proven against a strict server made from the API's own models, not on a live
installation. Results stay in the cluster: the API tells ids of artifacts, not where they lie. Not here: the IR.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hat_harness.errors import Kind
from hat_pipelines.compiler import kfp_manifest
from hat_pipelines.errors import RemoteError
from hat_pipelines.plan import Job
from hat_pipelines.remote.engine import State, Status, StepState, StepStatus
from hat_pipelines.remote.settings import Remote
from hat_pipelines.remote.store import Store

TIMEOUT_S = (5.0, 30.0)
"""To connect, to read."""
STATES: Mapping[str, State] = {
    "RUNTIME_STATE_UNSPECIFIED": "pending",
    "PENDING": "pending",
    "RUNNING": "running",
    "PAUSED": "running",
    "CANCELING": "running",
    "SUCCEEDED": "done",
    "SKIPPED": "done",
    "FAILED": "failed",
    "CANCELED": "cancelled",
}
STEP_STATES: Mapping[str, StepState] = {
    "RUNNING": "running",
    "PAUSED": "running",
    "CANCELING": "running",
    "SUCCEEDED": "done",
    "SKIPPED": "skipped",
    "FAILED": "failed",
    "CANCELED": "interrupted",
}


class Kfp:
    """The runs of one namespace, or of a single-user installation."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @classmethod
    def connect(cls, remote: Remote) -> Kfp:
        """By the settings' URL; the token is read at each request, since tokens in pods rotate."""
        if not remote.kfp.startswith(("http://", "https://")):
            raise RemoteError("the address of Kubeflow Pipelines is no URL", kind="invalid_input", place=remote.kfp)
        return cls(remote)

    def start_job(self, job: Job, name: str, store: Store, *, cron: str = "") -> None:
        """Bring the inputs to the repository and create the run, or a recurring run that never overlaps."""
        spec, *platform = kfp_manifest(job)
        document = {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else spec
        values = {one: store.bring_tree(brought.path, brought.digest) for one, brought in job.inputs.items()}
        if cron:
            self.schedule(document, name, cron, values)
        else:
            self.submit(document, name, values)

    def submit(self, spec: Mapping[str, Any], name: str, parameters: Mapping[str, Any]) -> str:
        """Create a run; returns its id. RemoteError of kind `conflict` when a run of that name stands."""
        if self._find(name) is not None:
            raise RemoteError(f"a run called {name!r} stands already", kind="conflict", place=name, cure="another name")
        with self._api("RunServiceApi") as call:
            made = call("run_service_create_run", self._body("V2beta1Run", spec, name, parameters))
        return str(made.run_id)

    def schedule(self, spec: Mapping[str, Any], name: str, cron: str, parameters: Mapping[str, Any]) -> str:
        """Create a recurring run with one run at a time and no catching up; returns its id. KFP's cron has seconds."""
        import kfp_server_api as api

        body = self._body("V2beta1RecurringRun", spec, name, parameters)
        body.trigger = api.V2beta1Trigger(cron_schedule=api.V2beta1CronSchedule(cron=f"0 {cron}"))
        body.max_concurrency, body.no_catchup, body.mode = "1", True, api.RecurringRunMode.ENABLE
        if self._remote.kfp_namespace:
            body.namespace = self._remote.kfp_namespace
        with self._api("RecurringRunServiceApi") as call:
            return str(call("recurring_run_service_create_recurring_run", body).recurring_run_id)

    def status(self, name: str) -> Status:
        """How far a run is, by its tasks."""
        run = self._run(name)
        state = STATES.get(str(run.state or ""), "pending")
        tasks = (run.run_details.task_details if run.run_details else None) or ()
        steps = {str(task.display_name): _step(task) for task in tasks if task.display_name}
        message = str(run.error.message) if run.error and run.error.message else ""
        return Status(name, state, message, steps, str(run.run_id))

    def logs(self, name: str, step: str) -> str:
        """Nothing: the API has no logs; the run's page has them."""
        return ""

    def cancel(self, name: str) -> bool:
        """Terminate it; False when it was over."""
        run = self._run(name)
        if STATES.get(str(run.state or ""), "pending") in ("done", "failed", "cancelled"):
            return False
        with self._api("RunServiceApi") as call:
            call("run_service_terminate_run", run.run_id)
        return True

    def retry(self, name: str) -> None:
        """Run what failed again; finished tasks are kept."""
        run = self._run(name)
        if STATES.get(str(run.state or ""), "pending") not in ("failed", "cancelled"):
            raise RemoteError(f"run {name} has not failed", kind="conflict", place=name)
        with self._api("RunServiceApi") as call:
            call("run_service_retry_run", run.run_id)

    def _body(self, model: str, spec: Mapping[str, Any], name: str, parameters: Mapping[str, Any]) -> Any:
        import kfp_server_api as api

        config = api.V2beta1RuntimeConfig(parameters=dict(parameters))
        return getattr(api, model)(display_name=name, pipeline_spec=dict(spec), runtime_config=config)

    def _find(self, name: str) -> Any:
        """The newest run of that name, or None."""
        wanted = {"predicates": [{"operation": "EQUALS", "key": "name", "string_value": name}]}
        more = {"namespace": self._remote.kfp_namespace} if self._remote.kfp_namespace else {}
        with self._api("RunServiceApi") as call:
            found = call(
                "run_service_list_runs", filter=json.dumps(wanted), page_size=1, sort_by="created_at desc", **more
            )
        return found.runs[0] if found.runs else None

    def _run(self, name: str) -> Any:
        found = self._find(name)
        if found is None:
            raise RemoteError(f"no run {name!r}", kind="invalid_input", place=self._remote.kfp)
        with self._api("RunServiceApi") as call:
            return call("run_service_get_run", found.run_id)

    def _api(self, service: str) -> _Calls:
        return _Calls(self._remote, service)


class _Calls:
    """One connection to one service of the API; its errors become RemoteErrors."""

    def __init__(self, remote: Remote, service: str) -> None:
        import kfp_server_api as api

        configuration = api.Configuration(host=remote.kfp.rstrip("/"))
        token = remote.token()
        if token:
            configuration.api_key["authorization"] = token
            configuration.api_key_prefix["authorization"] = "Bearer"
        self._client = api.ApiClient(configuration)
        self._service = getattr(api, service)(self._client)
        self._place = remote.kfp

    def __enter__(self) -> _Calls:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        import urllib3
        from kfp_server_api.rest import ApiException

        try:
            return getattr(self._service, method)(*arguments, **options, _request_timeout=TIMEOUT_S)
        except ApiException as error:
            raise _refused(error, self._place) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            told = " ".join(str(error).split())[:200]
            raise RemoteError(f"Kubeflow Pipelines does not answer: {told}", place=self._place) from None


def _step(task: Any) -> StepStatus:
    state = STEP_STATES.get(str(task.state or ""), "waiting")
    message = str(task.error.message) if task.error and task.error.message else ""
    begun, ended = (moment.isoformat() if moment else "" for moment in (task.start_time, task.end_time))
    return StepStatus(state, 1, message, begun, "" if ended.startswith("1970") else ended)


def _refused(error: Any, place: str) -> RemoteError:
    kinds: dict[int, Kind] = {401: "forbidden", 403: "forbidden", 409: "conflict"}
    status = int(error.status or 0)
    kind: Kind = kinds.get(status, "invalid_input" if 400 <= status < 500 else "unavailable")
    try:
        told = str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        told = str(error.reason)
    cure = "check the token and its audience" if status in (401, 403) else ""
    return RemoteError(f"{status} {told[:300]}", kind=kind, place=place, cure=cure)
