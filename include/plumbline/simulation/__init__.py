"""A cluster that prints what the real tools print, with planted faults."""
