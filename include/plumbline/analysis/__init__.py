"""Comparisons over runs and neighbours: pure functions on arrays."""
