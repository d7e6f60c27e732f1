"""How many of something there are, and which, within a sentence. Standard library only: pods tell it as well."""

from __future__ import annotations

from collections.abc import Iterable


def plural(count: int, word: str, many: str | None = None) -> str:
    """Write '1 node', '2 nodes'."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def node_list(names: Iterable[str], limit: int = 12, *, between: str = ", ") -> str:
    """Write names of nodes, or of anything: the first few of many, and how many more there are."""
    known = list(names)
    shown = between.join(known[:limit])
    return shown + (f" and {len(known) - limit} more" if len(known) > limit else "")
