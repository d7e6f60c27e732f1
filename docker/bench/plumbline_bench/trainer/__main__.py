"""Command line of the trainer: see `--help`."""

from __future__ import annotations

import sys

from plumbline_bench.trainer.config import parse
from plumbline_bench.trainer.data import check_target, make_corpus
from plumbline_bench.trainer.group import run
from plumbline_bench.trainer.loop import train


def main() -> int:
    """Train as the command line says. Status 2: the target can't be reached by any model."""
    config = parse()
    if config.mode == "to_target":
        problem = check_target(config, make_corpus(config.benchmark, config.vocab, config.seed))
        if problem:
            sys.stderr.write(f"trainer: {problem}\n")
            return 2
    return run(config, train)


if __name__ == "__main__":
    sys.exit(main())
