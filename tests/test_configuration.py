"""What a person is told of a broken document: file, key, what is wanted, what is there, the nearest choice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from plumbline.clusters.profile import PROFILES, load_profile
from plumbline.configuration import Document, load_yaml
from plumbline.configuration_errors import _FORMS
from plumbline.errors import ConfigError
from plumbline.references.reference import FOLDER, read_folder
from plumbline.simulation.faults import load_scenario
from plumbline.suites.suite import SUITES, load_suite, parse_settings
from plumbline.validation.waivers import Waiver

FOREIGN = re.compile(
    r"Input should|Value error|should have|should match|\[type=|valid |constrained|<unicode|Errno|None"
)
"""Words of pydantic, of the YAML parser and of Python that nobody who edits a profile has to know."""


def told(load: object, *arguments: object) -> str:
    with pytest.raises(ConfigError) as refused:
        load(*arguments)  # type: ignore[operator]
    return str(refused.value)


def broken(folder: Path, shipped: Path, old: str, new: str) -> Path:
    text = shipped.read_text(encoding="utf-8")
    assert text.count(old) >= 1, f"{shipped.name} has no {old!r} any more"
    path = folder / shipped.name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("per_node: 8", "per_node: eight", "accelerator.per_node: must be a whole number, not 'eight'"),
        ("per_node: 8", "per_node: 8.5", "accelerator.per_node: must be a whole number, not 8.5"),
        ("per_node: 8", "per_node: 8.0", "accelerator.per_node: must be a whole number, not 8.0"),
        ("per_node: 8", "per_node: true", "accelerator.per_node: must be a whole number, not true"),
        ("per_node: 8", "per_node: '8'",
         "accelerator.per_node: must be a whole number, not '8' (without quotes it is a number)"),
        ("minutes: 600", "minutes: yes", "limits.minutes: must be a number, not true"),
        ("per_node: 8", "per_node: 0", "accelerator.per_node: must be at least 1, not 0"),
        ("per_node: 8", "per_node: 99", "accelerator.per_node: must be at most 64, not 99"),
        ("per_node: 8", "per_node: null", "accelerator.per_node: must be a whole number, not empty"),
        ("minutes: 600", "minutes: -3", "limits.minutes: must be more than 0, not -3"),
        ("minutes: 600", "minutes: .inf", "limits.minutes: must be a finite number, not inf"),
        ("minutes: 600", "minutes: long", "limits.minutes: must be a number, not 'long'"),
        ("launcher: simulated", "launcher: simulatd", "launcher: no such value 'simulatd'; did you mean 'simulated'?"),
        ("device: gpu", "device: tpu", "device: no such value 'tpu'; did you mean 'gpu'?"),
        ("device: gpu", "device: abacus", "device: no such value 'abacus'; known: cpu, gpu"),
        ("{simulated: 8,", "[8, ", "not valid YAML"),
        ("{simulated: 8, ", "{", "nodes: exactly one of emulated, simulated, listed, selector, not none"),
        ("nodes_per_leaf", "nodes_per_leafs", "unknown key 'nodes.nodes_per_leafs'; did you mean 'nodes_per_leaf'?"),
        ("{model: H100-SXM5-80GB, ", "{", "key 'accelerator.model' is missing"),
        ("name: simulated-8", "name: Simulated_8", "name: must be a name of a-z, 0-9 and -, not 'Simulated_8'"),
        ("name: simulated-8", "name: 8", "name: must be text, not 8 (in quotes it is text)"),
        ("limits:", "fabric2: x\nlimits:", "unknown key 'fabric2'; did you mean 'fabric'?"),
        ("limits: {minutes: 600}", "limits: 600", "limits: must be a mapping of keys, not 600"),
        ("limits:", "exclusions: n0001\nlimits:", "exclusions: must be a list, not 'n0001'"),
        ("limits:", "exclusions: [{node: n1, reason: r, owner: o, until: soon}]\nlimits:",
         "exclusions[0].until: must be a date such as 2026-11-30, not 'soon'"),
        ("limits:", "exclusions: [{node: n1, reason: r, owner: o, until: 2026-13-01}]\nlimits:",
         "simulated-8.yaml:10: not valid YAML: 2026-13-01 is no date: month must be in 1..12"),
        ("layers: 24", "layers: [24]", "layers: must be text or a whole number or a number or true or false, not [24]"),
        ("limits:", "5: x\nlimits:", "must be a key that is text, not 5"),
        ("limits:", "[a]: x\nlimits:", "simulated-8.yaml:10: not valid YAML: a key must be one word, not ['a']"),
        ("title:", "name: x\ntitle:", "simulated-8.yaml:3: not valid YAML: the key 'name' is given twice"),
        ("title: ", "\ttitle: ", "simulated-8.yaml:3: not valid YAML: "),
    ],
)  # fmt: skip
def test_a_broken_profile_is_told_in_our_words(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = broken(tmp_path, PROFILES / "simulated-8.yaml", old, new)
    message = told(load_profile, str(path))
    assert message.startswith(str(path))
    assert words in message
    assert not FOREIGN.search(message.replace("not valid YAML", ""))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title:", "title: 5 #", "title: must be text, not 5 (in quotes it is text) (line 3)"),
        ("limits:", "fabric2: x\nlimits:", "did you mean 'fabric'? (line 10)"),
        ("{model: H100-SXM5-80GB, ", "{", "key 'accelerator.model' is missing (line 6)"),
        ("limits:", "exclusions:\n  - {node: n1, reason: r, owner: o, until: x}\nlimits:", "not 'x' (line 11)"),
        ("simulated: 8,", "simulated: 8, listed: [a],", "not ['simulated', 'listed'] (line 8)"),
    ],
)
def test_the_line_of_what_is_wrong_is_told(tmp_path: Path, old: str, new: str, words: str) -> None:
    message = told(load_profile, str(broken(tmp_path, PROFILES / "simulated-8.yaml", old, new)))
    assert message.endswith(words)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("exclusions: &a [*a]\nlimits:", "simulated-8.yaml:10: not valid YAML: it contains itself"),
        ("simulation: &a\n  x: *a\nlimits:", "simulated-8.yaml:10: not valid YAML: it contains itself"),
        ("images: {a: &a [b, [c, {d: *a}]]}\nlimits:", "simulated-8.yaml:10: not valid YAML: it contains itself"),
        ("a: &a [" + "[" * 3000 + "]" * 3000 + "]\nlimits:", "not valid YAML: "),
        (
            "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}' if n else 'x'] * 10)}]\n" for n in range(9)) + "limits:",
            "not valid YAML: aliases make it endless",
        ),
    ],
)
def test_yaml_without_an_end_is_refused(tmp_path: Path, new: str, words: str) -> None:
    assert words in told(load_profile, str(broken(tmp_path, PROFILES / "simulated-8.yaml", "limits:", new)))


def test_an_alias_that_ends_is_what_it_stands_for(tmp_path: Path) -> None:
    path = broken(
        tmp_path, PROFILES / "simulated-8.yaml", "simulation: {seed: 1}", "simulation: {a: &a [1], b: *a, c: *a}"
    )
    assert load_profile(str(path)).simulation == {"a": [1], "b": [1], "c": [1]}


def test_two_things_that_are_wrong_have_a_line_each(tmp_path: Path) -> None:
    path = broken(tmp_path, PROFILES / "simulated-8.yaml", "device: gpu", "device: tpu")
    message = told(load_profile, str(broken(tmp_path, path, "minutes: 600", "minutes: 0")))
    assert re.findall(r"(\w+)[:.].*? \(line (\d+)\)", message.partition(".yaml: ")[2]) == [
        ("device", "5"),
        ("limits", "10"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("blocks: [FAIL", "blocks: [FIAL", "gate.blocks[0]: no such value 'FIAL'; did you mean 'FAIL'?"),
        ("blocks: [FAIL, ", "blocks: [", "gate.blocks: must contain FAIL: a suite can only make the gate stricter"),
        ("kind: nightly", "kind: nightli", "kind: no such value 'nightli'; did you mean 'nightly'?"),
        ("node_counts: ladder", "node_counts: lader",
         "node_counts: must be a list or 'ladder', not 'lader'; did you mean 'ladder'?"),
        ("node_counts: ladder", "node_counts: [1, two]", "node_counts[1]: must be a whole number, not 'two'"),
        ("node_counts: ladder", "node_counts: [1, true]", "node_counts[1]: must be a whole number, not true"),
        ("node_counts: ladder", "node_counts: ladder\nrepeats: true", "repeats: must be a whole number, not true"),
        ("node_counts: ladder", "node_counts: []", "node_counts: must be a list of at least 1 or 'ladder', not []"),
        ("benchmark: fio", "benchmrk: fio", "unknown key 'benchmarks[0].benchmrk'; did you mean 'benchmark'?"),
    ],
)  # fmt: skip
def test_a_broken_suite_is_told_in_our_words(tmp_path: Path, old: str, new: str, words: str) -> None:
    message = told(load_suite, str(broken(tmp_path, SUITES / "nightly.yaml", old, new)))
    assert words in message
    assert not FOREIGN.search(message)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("value: 234.9", "value: fast", "references[0].value: must be a number, not 'fast'"),
        ("node_counts: [1]", "node_counts: [0]", "references[0].node_counts[0]: must be at least 1, not 0"),
        (
            "node_counts: [1]",
            "concurrency: ful",
            "references[0].concurrency: no such value 'ful'; did you mean 'full'?",
        ),
        ("date: 2025-06-30", "date: June", "references[0].date: must be a date such as 2026-11-30, not 'June'"),
        ("- nccl_tests/bus_bandwidth_headline", "- nccl_tests", "required[0]: must be benchmark/indicator, not"),
        ("    source: ", "    sourc: ", "unknown key 'references[0].sourc'; did you mean 'source'?"),
    ],
)
def test_broken_references_are_told_in_our_words(tmp_path: Path, old: str, new: str, words: str) -> None:
    broken(tmp_path, FOLDER / "a100-sxm4-80gb.yaml", old, new)
    message = told(list, read_folder(tmp_path))
    assert words in message
    assert not FOREIGN.search(message)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is empty; it must be a mapping of keys: seed, faults"),
        (b"# only a comment\n", "is empty; it must be a mapping of keys: seed, faults"),
        (b"- a\n", "must be a mapping of keys, not a list"),
        (b"plain words\n", "must be a mapping of keys, not a value"),
        (b"faults: [\n", ":2: not valid YAML: "),
        (b"\xff\xfe\x00", "cannot read: not UTF-8 text"),
        (b"faults: [{kind: slow_nik, node: n1, rail: 1}]", "faults[0].kind: no such value 'slow_nik'; did you mean"),
        (b"faults: [{kind: slow_nic, node: n1}]", "faults[0]: slow_nic needs rail"),
        (b"faults: [{kind: hang, node: n1, hours: [1]}]", "hours[1]' is missing"),
        (b"faults: [{kind: hang, node: n1, hours: [1, 2, 3]}]", "hours: must be a list of at most 2, not [1, 2, 3]"),
    ],
)
def test_a_file_that_is_no_document_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "faults.yaml"
    path.write_bytes(text)
    message = told(load_scenario, str(path), 0)
    assert message.startswith(str(path))
    assert words in message
    assert not FOREIGN.search(message.replace("not valid YAML", ""))


def test_a_file_that_is_not_there_or_no_file_is_named(tmp_path: Path) -> None:
    assert told(load_yaml, tmp_path / "x.yaml") == f"{tmp_path / 'x.yaml'}: cannot read: No such file or directory"
    assert told(load_yaml, tmp_path) == f"{tmp_path}: cannot read: Is a directory"


def test_a_setting_that_looks_like_a_wrong_date_is_text() -> None:
    assert parse_settings(["note=2026-13-01"]) == {"note": "2026-13-01"}


def test_every_pattern_of_a_model_is_told_in_words() -> None:
    def patterns(text: str) -> set[str]:
        return set(re.findall(r'pattern=r"([^"]+)"', text))

    package = Path(PROFILES).parents[1]
    used = {found for path in package.rglob("*.py") for found in patterns(path.read_text(encoding="utf-8"))}
    assert used <= set(_FORMS)


def _documents(model: type[Document] = Document) -> Iterator[type[Document]]:
    for below in model.__subclasses__():
        yield below
        yield from _documents(below)


def test_no_number_of_any_document_takes_true_for_one() -> None:
    def kinds(schema: object) -> Iterator[Mapping[str, object]]:
        if isinstance(schema, Mapping):
            if schema.get("type") in ("int", "float"):
                yield schema
            schema = list(schema.values())
        if isinstance(schema, (list, tuple)):
            for inner in schema:
                yield from kinds(inner)

    known = {model.__name__: list(kinds(model.__pydantic_core_schema__)) for model in {Waiver, *_documents()}}
    assert {"ClusterProfile", "Suite", "Waiver", "ReferenceRow", "Fault"} <= {
        name for name, found in known.items() if found
    }
    assert all(kind.get("strict") for found in known.values() for kind in found)


@pytest.mark.parametrize("counts", [True, "true", [1, True], [1.5], 2.0])
def test_a_node_count_of_a_setting_is_a_whole_number(counts: object) -> None:
    assert "node counts are whole numbers such as 1,2,4, or ladder" in told(
        load_suite, "nightly", {"node_counts": counts}
    )
