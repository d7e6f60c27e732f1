"""Figures for people: a table on the terminal, and docs/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD = """\
# Benchmarks of Plumbline itself

Written by `make bench ARGS="all --write"`; don't edit. Every figure was measured by the command, on the machine and
at the commit that stand above it. A figure without a limit is there to be known.
"""
_MARK = {True: "yes", False: "**no**", None: ""}


def shown(value: Any) -> str:
    """Give a figure with four significant digits."""
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(data: Mapping[str, Any]) -> str:
    """Give one section for the terminal."""
    lines = [f"\n{data['title']}"]
    width = max(len(row["name"]) for row in data["rows"])
    for row in data["rows"]:
        mark = {True: "ok ", False: "NO ", None: "   "}[row["held"]]
        limit = f"   [{row['limit']}]" if row["limit"] else ""
        figure = f"{shown(row['value'])} {row['unit']}"
        lines.append(f"  {mark} {row['name']:{width}}  {figure:>16}   {row['spread']}{limit}".rstrip())
    return "\n".join(lines)


def page(sections: Iterable[Mapping[str, Any]]) -> str:
    """Give the whole page in Markdown."""
    return "\n".join([_HEAD, *(_section(data) for data in sections)])


def write_page(path: Path, files: Sequence[Path]) -> None:
    """Write the page from the newest figures of each part; a part without figures is left out."""
    path.write_text(page(json.loads(file.read_text()) for file in files if file.is_file()))


def _section(data: Mapping[str, Any]) -> str:
    about = data["circumstances"]
    quick = "\n**Quick run on few pairs and small sizes: it shows that this works, not how good it is.**\n"
    lines = [
        f"## {data['title']}",
        "",
        data["method"],
        "",
        f"`{about['command']}`, {about['date']}, commit {about['commit']}; {about['cpu']}, {about['cores']} cores, "
        f"{about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}; load average before: "
        f"{about['load_before']}.",
        *([quick] if data["quick"] else [""]),
        "| what | figure | unit | spread or detail | limit | held |",
        "|---|---:|---|---|---|---|",
    ]
    for row in data["rows"]:
        cells = [row["name"], shown(row["value"]), row["unit"], row["spread"], row["limit"], _MARK[row["held"]]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join([*lines, ""])
