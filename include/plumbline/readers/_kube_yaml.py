"""API objects that kubectl printed as YAML, among other text: each is found, and what can't be read is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.readers.framing import strip_document

HEAD = re.compile(r"""^(?:- )?apiVersion: ["']?[\w.-]{1,253}(?:/\w{1,63})?["']?\s*$""", re.MULTILINE)
_KEY = re.compile(r"([a-z][A-Za-z]{0,60}):(?:\s|$)")
_STRAY = re.compile(r"^.{1,80}?\bapiVersion: [\w./-]{1,253}\s*$", re.MULTILINE)
_BEGINS = frozenset(("apiVersion", "kind", "metadata", "items", "spec", "status"))
"""Keys with which an object, or what is left of one, begins."""
_INSIDE = re.compile(r"[ \t]|- |-$|#|$")
_MARKER = re.compile(r"---(?:\s|$)|\.\.\.\s*$")
_APPLIED = re.compile(r"([ \t]*)(?:Annotations:[ \t]+)?kubectl\.kubernetes\.io/last-applied-configuration:")
_ANCHOR = re.compile(r"[:-] [&*]\w")
_LIMIT_BYTES = 2 << 20
_SLOW_LIMIT_BYTES = 128 << 10
_DAMAGED = "a YAML document is damaged, cut or too large"


class YamlObjects:
    """The objects of a text, in order; `rest` is the text without them, `damage` says what could not be read.

    In an object's annotations stands what was applied last, as JSON: a manifest, no object of its own. It is never in
    the rest. Lines with prefixes of collectors are read too, where other lines have none.
    """

    def __init__(self, text: str) -> None:
        """Read the objects of a text."""
        self.objects: list[Mapping[str, Any]] = []
        self.damage: str | None = None
        self._left, self.rest = _LIMIT_BYTES, text
        # A look for each word costs a tenth of one pattern's search for a line that begins with any of them.
        if "apiVersion: " in text or any(text.startswith(f"{key}:") or f"\n{key}:" in text for key in _BEGINS):
            self._read(text)

    def _read(self, text: str) -> None:
        self.rest = "\n".join(without_applied(self._take(text.splitlines())))
        if HEAD.search(bare := strip_document(self.rest)):
            self.rest = "\n".join(without_applied(self._take(bare.splitlines())))
        if _STRAY.search(self.rest):
            self.damage = self.damage or "a YAML document is indented, or its lines have prefixes that are not known"

    def _take(self, lines: list[str]) -> Iterator[str]:
        """Take the objects out of lines, and give the other lines."""
        block: list[str] = []
        keys: set[str] = set()
        for line in lines:
            match = _KEY.match(line)
            key = match[1] if match else "apiVersion" if HEAD.match(line) and not block else ""
            if block and (key in keys or not (key or _INSIDE.match(line))):
                yield from self._end(block, keys)
                block, keys = [], set()
            if block or key in _BEGINS:
                block.append(line)
                keys |= {key} if key else set()
            elif not _MARKER.match(line):
                yield line
        yield from self._end(block, keys)

    def _end(self, block: list[str], keys: set[str]) -> Iterator[str]:
        """Read a block that may be an object; give its lines back where it is none."""
        if "apiVersion" not in keys and len(keys & _BEGINS) < 2:
            yield from block
            return
        value = self._load("\n".join(block) + "\n")
        if isinstance(value, dict) and "apiVersion" in value:
            self.objects.append(value)
            return
        self.damage = self.damage or _DAMAGED
        if isinstance(value, (dict, list)):  # the head is missing, of an object or of a list of them
            self.objects += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
        else:
            yield from block

    def _load(self, text: str) -> Any:
        """Read one document. None where it is damaged, too large, or uses anchors."""
        self._left -= len(text)
        if self._left < 0 or _ANCHOR.search(text):
            return None
        try:
            import yaml  # noqa: PLC0415 - only here, and absent in the images that run benchmarks
        except ImportError:
            return None
        loader = getattr(yaml, "CSafeLoader", None)
        if loader is None and _LIMIT_BYTES - self._left > _SLOW_LIMIT_BYTES:
            return None
        try:
            return yaml.load(text, Loader=loader or yaml.SafeLoader)  # noqa: S506 - both are the safe one
        except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError):
            return None


def without_applied(lines: Iterator[str]) -> Iterator[str]:
    """Give lines without the annotation that holds what was applied last: its own, and those indented below it."""
    indent: int | None = None
    for line in lines:
        if indent is not None and (not line.strip() or len(line) - len(line.lstrip()) > indent):
            continue
        match = _APPLIED.match(line)
        indent = len(match[1]) if match else None
        if match is None:
            yield line
