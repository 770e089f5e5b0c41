"""Step `rl`: group-relative policy optimisation of a model in real sessions, under sampled harness states."""
