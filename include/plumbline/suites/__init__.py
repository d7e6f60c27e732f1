"""What is run together, at which scales, and what closes the gate, as data."""
