"""How faithful and how costly Plumbline itself is: `python -m benchmarks --help`. Needs the development environment."""
