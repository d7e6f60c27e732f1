"""Verdicts: great-expectations judges rows, the gate judges verdicts."""
