"""Where benchmarks run: inventories and their settings, as data."""
