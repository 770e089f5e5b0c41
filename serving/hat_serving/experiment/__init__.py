"""Experiments: which arm a unit is on, and what the arms did. Assignment is pure; analysis uses hat_stats."""
