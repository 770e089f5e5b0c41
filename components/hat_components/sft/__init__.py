"""Step `sft`: supervised training on trajectories of one arm, with the general data that must not be forgotten."""
