"""From a plan to records: planning, running, launchers, and what the machine says of itself."""
