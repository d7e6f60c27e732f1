"""What the real tools print, from numbers: one module a tool, in its own layout, stamped SIMULATED."""

STAMP = "# SIMULATED by Plumbline: no hardware was measured"
"""A comment that every text output of the simulator begins with."""
