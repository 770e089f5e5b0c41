"""Step `base`: pre-trains the small model on general data, so that it can read any harness before it learns one."""
