"""Toy step."""
