"""Text as tools leave it behind: any size, any encoding slip, colour codes, carriage returns, prefixes.

`Source` gives lines at constant memory. What the lines mean is the readers' business.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from plumbline.errors import OutputError

CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 64 << 20
"""A line longer than this is handed out in pieces: no tool writes one, and memory stays bounded."""
WHOLE_TEXT_BYTES = 512 << 20
"""Formats that are one document (XML, JSON) are refused above this size."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def strip_ansi(text: str) -> str:
    """Remove terminal colour and cursor sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


class Source:
    """One raw output: a name for messages and a binary stream that is read once, front to back."""

    def __init__(self, stream: BinaryIO, name: str = "<input>") -> None:
        """Take over reading of `stream`; closing it stays with the caller."""
        self.name = name
        self._stream = stream

    @classmethod
    def of_text(cls, text: str, name: str = "<text>") -> Source:
        """Wrap a string."""
        return cls(io.BytesIO(text.encode("utf-8", "surrogateescape")), name)

    @classmethod
    def of_bytes(cls, data: bytes, name: str = "<bytes>") -> Source:
        """Wrap bytes."""
        return cls(io.BytesIO(data), name)

    @classmethod
    def of_path(cls, path: Path) -> Source:
        """Open a file; the stream is closed when the Source is collected."""
        return cls(path.open("rb"), path.name)

    def byte_lines(self) -> Iterator[bytes]:
        r"""Give raw lines without their ends: `\n`, `\r\n` and a lone `\r` (progress output) all end one.

        The last line is given even without an end: use `ends_whole` to know whether it had one.
        """
        for block in self.blocks():
            yield from block.split(b"\n")

    def blocks(self) -> Iterator[bytes]:
        r"""Give the raw lines of about 1 MiB at a time, `\n` between them and none behind the last.

        Every line had its end, but for a last block while `ends_whole` is False: that is one line without.
        """
        self.ends_whole = True
        rest: list[bytes] = []
        held = 0
        read = self._reader()
        while chunk := read(CHUNK_BYTES):
            if b"\r" in chunk:
                while chunk.endswith(b"\r") and (more := read(1)):
                    chunk += more
                self.crlf_ends += chunk.count(b"\r\n")
                self.carriage_returns += chunk.count(b"\r")
                chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            end = chunk.rfind(b"\n")
            if end < 0:
                rest.append(chunk)
                held += len(chunk)
                if held > LONGEST_LINE_BYTES:
                    yield b"".join(rest)
                    rest, held = [], 0
                continue
            yield b"".join([*rest, chunk[:end]]) if rest else chunk[:end]
            rest = [chunk[end + 1 :]] if end + 1 < len(chunk) else []
            held = len(chunk) - end - 1
        if held:
            self.ends_whole = False
            yield b"".join(rest)

    def _reader(self) -> Callable[[int], bytes]:
        """Give what reads the stream as UTF-8 without a byte order mark: shells of Windows redirect to UTF-16."""
        start = self._stream.read(3)
        if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = codecs.getincrementaldecoder("utf-16")("replace")
            ahead = text.decode(start).encode()

            def decoded(size: int) -> bytes:
                nonlocal ahead
                while len(ahead) < size and (part := self._stream.read(size)):
                    ahead += text.decode(part).encode("utf-8", "replace")
                given, ahead = ahead[:size], ahead[size:]
                return given

            return decoded
        ahead_once = b"" if start == codecs.BOM_UTF8 else start

        def plain(size: int) -> bytes:
            nonlocal ahead_once
            if not ahead_once:
                return self._stream.read(size)
            given, ahead_once = ahead_once, b""
            return given + self._stream.read(max(0, size - len(given)))

        return plain

    ends_whole: bool = True
    """Whether every line given so far had its line end; False from the moment a last line without one is given."""

    crlf_ends: int = 0
    r"""How many lines ended with `\r\n` so far."""

    carriage_returns: int = 0
    """How many carriage returns were read so far, those of `crlf_ends` too: progress output overwrites lines."""

    def lines(self) -> Iterator[str]:
        """Give decoded lines without colour codes. Bytes that are not UTF-8 become U+FFFD."""
        for lines in self.line_blocks():
            yield from lines

    def line_blocks(self) -> Iterator[list[str]]:
        """Give what `lines` gives, some thousands at a time. A last line without its end comes alone, see `blocks`."""
        for block in self.blocks():
            lines = block.decode("utf-8", "replace").split("\n")  # no line end is part of a character
            if b"\x1b" in block:
                lines = [_ANSI.sub("", line) if "\x1b" in line else line for line in lines]
            yield lines

    def text(self, limit_bytes: int = WHOLE_TEXT_BYTES) -> str:
        """Give everything as one string, colour codes removed, line ends kept as they are.

        Raises OutputError above `limit_bytes`.
        """
        parts: list[bytes] = []
        left = limit_bytes + 1
        while left > 0 and (part := self._stream.read(left)):
            parts.append(part)
            left -= len(part)
        data = b"".join(parts)
        if len(data) > limit_bytes:
            raise OutputError(f"larger than {limit_bytes >> 20} MiB, too large for one document", source=self.name)
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return strip_ansi(data.decode("utf-16", "replace"))
        return strip_ansi(data.decode("utf-8-sig", "replace"))
