"""Lines come out whole, whatever ends them and wherever a chunk is cut."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plumbline.readers.source as source_module
from plumbline.errors import OutputError
from plumbline.readers.source import Source, strip_ansi


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b"\xc3\xa9"]), max_size=40), st.integers(1, 7))
def test_lines_do_not_depend_on_chunk_size(parts: list[bytes], chunk: int) -> None:
    data = b"".join(parts)
    whole = re.split(rb"\r\n|\r|\n", data)
    expected = whole[:-1] if whole[-1] == b"" else whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "CHUNK_BYTES", chunk)
        source = Source(io.BytesIO(data))
        assert list(source.byte_lines()) == expected
        assert source.ends_whole == (not data or data[-1:] in (b"\n", b"\r"))


def test_colours_go_and_text_stays() -> None:
    assert strip_ansi("\x1b[0;31mGFLOPS\x1b[0m 1.5\x1b]0;title\x07!") == "GFLOPS 1.5!"
    assert list(Source.of_text("\x1b[1mx\x1b[0m\r\ny").lines()) == ["x", "y"]


def test_bytes_that_are_not_utf8_do_not_stop_reading() -> None:
    assert list(Source.of_bytes(b"a\xff\nb").lines()) == ["a\ufffd", "b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 20])
def test_files_of_windows_shells_are_the_same_text(monkeypatch: pytest.MonkeyPatch, encoding: str, chunk: int) -> None:
    monkeypatch.setattr(source_module, "CHUNK_BYTES", chunk)
    text = "\u2026 one\r\ntwo \U0001f600\r\nthree"
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    source = Source.of_bytes((mark + text).encode(encoding))
    assert list(source.lines()) == text.split("\r\n")
    assert (source.crlf_ends, source.ends_whole) == (2, False)
    assert list(Source.of_bytes(b"\xff\xfe").lines()) == []


def test_an_endless_line_is_handed_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "CHUNK_BYTES", 10)
    monkeypatch.setattr(source_module, "LONGEST_LINE_BYTES", 25)
    pieces = list(Source.of_bytes(b"x" * 100).byte_lines())
    assert b"".join(pieces) == b"x" * 100
    assert max(map(len, pieces)) <= 40


def test_one_document_has_a_limit() -> None:
    with pytest.raises(OutputError, match="too large"):
        Source.of_bytes(b"x" * 100).text(limit_bytes=99)
    assert Source.of_text("\ufeffabc").text() == "abc"
