"""Config of the close step."""

from __future__ import annotations

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """Whose MLflow runs are closed."""

    run: str = ""
    """Id of the pipeline's run, by which its MLflow runs are tagged; "" closes nothing."""
    uri: str = ""
    """Tracking URI; "" for MLFLOW_TRACKING_URI, and where that is unset there is nothing to close."""
    timeout_s: int = Field(default=20, ge=1, le=600)
    """Limit of one request to an MLflow server."""
