"""Step `close`: ends what a run left open in MLflow."""
