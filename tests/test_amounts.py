"""How many of something there are is told in the singular where it is one, and cut lists say how much is missing."""

from __future__ import annotations

import re
from pathlib import Path

from plumbline.amounts import node_list, plural

ROOT = Path(__file__).resolve().parents[1]
RAW_COUNT = re.compile(
    r"\b(?:at|on|of|planned at) \{[^{}]*(?:count|nodes|len\([^{}]*\))[^{}]*\} (?:nodes|launches|runs)\b"
)
"""A count in an f-string with its noun in the plural, whatever the count is."""


def test_one_is_singular_and_thousands_are_grouped() -> None:
    assert [plural(n, "node") for n in (0, 1, 2, 1024)] == ["0 nodes", "1 node", "2 nodes", "1,024 nodes"]
    assert [plural(n, "launch", "launches") for n in (1, 2)] == ["1 launch", "2 launches"]


def test_a_list_that_is_cut_says_how_many_more_and_a_whole_one_does_not() -> None:
    assert node_list(f"n{i}" for i in range(5)) == "n0, n1, n2, n3, n4"
    assert node_list(["a", "b", "c"], 3) == "a, b, c"
    assert node_list(["a", "b", "c", "d"], 3) == "a, b, c and 1 more"


def test_no_sentence_has_a_count_with_its_noun_in_the_plural_alone() -> None:
    assert RAW_COUNT.search('f"launches at {spec.node_count} nodes, and"')
    sources = [path for folder in ("include", "plugins", "dags") for path in (ROOT / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources
        for match in RAW_COUNT.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
