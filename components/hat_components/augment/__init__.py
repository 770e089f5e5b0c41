"""Step `augment`: training conversations of two arms, under the original harness and under sampled harness states."""
