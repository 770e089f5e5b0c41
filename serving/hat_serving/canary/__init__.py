"""Canary rollouts."""
