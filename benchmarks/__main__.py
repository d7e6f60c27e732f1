"""`python -m benchmarks`: measure Plumbline itself, print the figures, keep them in build/benchmarks."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.circumstances import circumstances
from benchmarks.page import table, write_page
from benchmarks.section import BUILD, ROOT, Options

PARTS = ("fidelity", "overhead", "scale", "kubernetes", "readers", "scoreboard")
SECTIONS = ("fidelity", "overhead", "scale", "kubernetes", "readers", "readers_huge", "scoreboard")
"""What the page holds: each part's section, and that of `readers --huge`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; exit 1 when a figure is outside its limit."""
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="How faithful and how costly Plumbline itself is.",
        epilog="A quiet machine gives figures; --quick only shows that everything runs.",
    )  # fmt: skip
    parser.add_argument("part", nargs="?", default="all", choices=(*PARTS, "all"))
    parser.add_argument("--pairs", type=int, help="interleaved pairs (default: 30 for fidelity, 10 for overhead)")
    parser.add_argument("--quick", action="store_true", help="a few pairs and small sizes")
    parser.add_argument("--huge", action="store_true", help="readers: streams of 2 GiB, as a section of their own")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md from the newest figures")
    chosen = parser.parse_args(arguments)
    if chosen.pairs is not None and chosen.pairs < 2:
        parser.error("--pairs: two at least, or there is no interval")
    options = Options(pairs=chosen.pairs, quick=chosen.quick, huge=chosen.huge)
    BUILD.mkdir(parents=True, exist_ok=True)
    held = True
    for part in PARTS if chosen.part == "all" else (chosen.part,):
        print(f"{part} …", file=sys.stderr, flush=True)
        words = list(sys.argv[1:] if arguments is None else arguments)
        about = circumstances(" ".join(["python -m benchmarks", *words]))
        section = importlib.import_module(f"benchmarks.{part}").measure(options)
        data = {"circumstances": about, "quick": options.quick, **asdict(section)}
        (BUILD / f"{section.name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        print(table(data))
        held = held and all(row["held"] is not False for row in data["rows"])
    if chosen.write:
        write_page(ROOT / "docs" / "benchmarks.md", [BUILD / f"{name}.json" for name in SECTIONS])
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
