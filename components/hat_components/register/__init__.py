"""Step `register`: arms, curves and evidence go to MLflow, the better arm becomes a candidate model version."""
