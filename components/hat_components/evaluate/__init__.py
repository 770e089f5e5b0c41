"""Step `evaluate`: suites of real multi-turn rollouts and checkable instructions, scored item by item."""
