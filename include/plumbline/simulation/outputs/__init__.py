"""What each benchmark's launches leave behind in a simulated night: one module a benchmark.

Each has `files(night, specs)`: for every launch of a batch, its files by name.
"""
