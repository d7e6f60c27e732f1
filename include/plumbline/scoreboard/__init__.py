"""How well the detectors find planted faults in simulated clusters: it tells about detectors, never about clusters."""
