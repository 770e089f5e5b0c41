"""Config of the register step."""

from __future__ import annotations

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """Where the model goes, under which name, and what decides between arms."""

    name: str = Field(default="live-commerce", pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    """Name of the registered model; MLflow shows it as `WORKSPACE.NAME`."""
    workspace: str = Field(default="default", pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    """Workspace that owns experiment and model."""
    experiment: str = "hatstack"
    """MLflow experiment; MLflow shows it as `WORKSPACE.EXPERIMENT`."""
    uri: str = ""
    """Tracking URI; "" for MLFLOW_TRACKING_URI, and where that is unset an SQLite file in the step's own folder."""
    artifact_root: str = ""
    """Where artifacts of a new experiment go; "" for a folder beside the SQLite file, or what the server decides."""
    alias: str = "candidate"
    """Alias that moves to the registered version."""
    select: dict[str, float] = Field(default={"t1": 0.5, "t2": 0.5}, min_length=1)
    """Suite → weight of its headline score when arms are compared."""
    timeout_s: int = Field(default=20, ge=1, le=600)
    """Limit of one request to an MLflow server."""
    retries: int = Field(default=2, ge=0, le=10)
    """Further tries of a failed request."""
    code: str = ""
    """Digest or commit of the code that ran, for the tag `hatstack.code`."""
    profile: str = ""
    """Digest of the profile that ran, for the tag `hatstack.profile`."""
    run: str = ""
    """Id of the pipeline's run, for the tag `hatstack.run`, by which an exit handler finds what was left open."""
