"""JSON objects inside other text: each is found, and what begins as one and is none is told."""

from __future__ import annotations

import json

import pytest

from plumbline.readers._json_documents import Documents

KEY, MARK = '"root"', '"parts"'
WHOLE = json.dumps({"root": {"parts": [{"n": 1}, {"n": 2}]}}, indent=1)
OTHER = json.dumps({"root": {"parts": [{"n": 3}, {"word": "some words"}]}}, indent=1)


def found(text):
    documents = Documents(text, KEY, marks=(MARK,))
    values = list(documents)
    return [value["root"]["parts"][0]["n"] for value in values], documents.cut


def prefixed(prefix, text):
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"a banner\n{WHOLE}\nsome words\n",
        f"braces {{}} and {{root}} and {{'root': 1}} and {{ {WHOLE}",
        f'{WHOLE}\n{{"level": "info", "message": "roots',
        f'{WHOLE}\nset root {{ and "root" }}\n',
        f"{WHOLE}\nroot: the root of {{all}}\n",
        prefixed("2026-01-02T03:04:05Z ", WHOLE),
        prefixed("node2: ", WHOLE),
        "".join(json.dumps({"log": f"{line}\n", "stream": "stdout"}) + "\n" for line in WHOLE.splitlines()),
        json.dumps({"log": f"{json.dumps(json.loads(WHOLE))}\n", "stream": "stdout"}),
    ],
)
def test_text_around_a_whole_one_changes_nothing(text):
    assert found(text) == ([1], False)


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-01-02T03:04:05Z ", "[pod/a/b] ", "node2: "])
def test_lines_with_prefixes_beside_lines_without(prefix):
    assert found(WHOLE + "\n" + prefixed(prefix, OTHER)) == ([1, 3], False)
    assert found(prefixed(prefix, OTHER) + WHOLE + "\n") == ([3, 1], False)
    assert found(WHOLE + "\n" + prefixed(prefix, OTHER) + WHOLE) == ([1, 3, 1], False)
    for end in range(OTHER.index("parts"), len(OTHER)):
        assert found(WHOLE + "\n" + prefixed(prefix, OTHER[:end])) == ([1], True), OTHER[:end]


@pytest.mark.parametrize("after", ["", "\n", "\nKilled\n", "\n{}\n", f"\n{WHOLE}"])
def test_one_that_was_cut_beside_a_whole_one(after):
    values = [1, 1] if WHOLE in after else [1]
    for end in range(OTHER.index("root") + 5, len(OTHER)):
        assert found(f"{WHOLE}\n{OTHER[:end]}{after}") == (values, True), OTHER[:end]


@pytest.mark.parametrize("tail", ["{", "{\n ", '{\n "ro', '{"parts'])
def test_one_that_only_began(tail):
    assert found(f"{WHOLE}\n{tail}") == ([1], True)


def test_one_whose_head_is_missing():
    for begin in (OTHER.index('"root"'), OTHER.index("{", 1), OTHER.index('"parts"')):
        assert found(f"{OTHER[begin:]}\n{WHOLE}") == ([1], True)
        assert found(f"{WHOLE}\n{OTHER[begin:]}") == ([1], True)


@pytest.mark.parametrize("brace", ["", "{[", "{x", "x"])
def test_one_whose_first_brace_is_lost_or_followed_by_another(brace):
    assert found(f"{WHOLE}\n{brace}{OTHER[1:]}") == ([1], True)
    assert found(f"{brace}{OTHER[1:]}\n{WHOLE}") == ([1], True)


def test_a_number_that_is_too_long_is_damage():
    assert found(f'{WHOLE}\n{{"root": {"9" * 5000}}}\n') == ([1], True)


def test_the_search_is_given_up_in_time_and_says_so():
    assert found('{"root":' * 20_000 + WHOLE)[1]
    assert found('{"root": "' * 20_000 + WHOLE)[1]


@pytest.mark.parametrize("size", [*range(4040, 4110), 9000])
def test_long_ones_are_read_and_missed_as_short_ones(size):
    long = json.dumps({"root": {"parts": [{"n": 4, "more": "x" * size}, 12345, True, "\n"]}})
    assert found(f"{WHOLE}\n{long}\n") == ([1, 4], False)
    for cut in (2, 5, 9, 14, 19, 40):
        assert found(f"{WHOLE}\n{long[:-cut]}\nKilled\n") == ([1], True)
