"""JSON, YAML and descriptions in one capture: all of it is read, or what can't be is told."""

from __future__ import annotations

import contextlib
import json

import pytest
from tests.readers.infra_outputs import outcome
from tests.readers.kube_outputs import EVICTED, LIST, PODS, SUCCEEDED, as_yaml, behind

from plumbline.errors import OutputError
from plumbline.readers import kubernetes as reader
from plumbline.readers.reading import Status


def test_yaml_is_the_same_pod():
    yaml = pytest.importorskip("yaml")
    text = yaml.safe_dump(json.loads(SUCCEEDED), sort_keys=True)
    assert outcome(reader, text).facts == outcome(reader, SUCCEEDED).facts
    metadata = "metadata:\n  annotations:\n    kubectl.kubernetes.io/last-applied-configuration: |\n"
    applied = '      {"apiVersion":"v1","kind":"Pod","metadata":{"name":"bench-0"},"spec":{"containers":[]}}\n'
    assert text.count("\nmetadata:\n") == 1
    annotated = text.replace("\nmetadata:\n", f"\n{metadata}{applied}")
    assert outcome(reader, annotated).facts == outcome(reader, SUCCEEDED).facts
    bomb = "apiVersion: v1\nkind: Pod\na: &a [x,x]\nb: &b [*a,*a]\nmetadata: {name: x}\n"
    with pytest.raises(OutputError):
        outcome(reader, bomb)


@pytest.mark.parametrize("between", ["\n", "\n---\n", "\n$ kubectl get pod -o yaml\n"])
def test_json_and_yaml_in_one_capture_are_both_read(between):
    good, bad = as_yaml(SUCCEEDED), as_yaml(LIST)
    alone = outcome(reader, LIST)
    assert alone.status is not Status.COMPLETE
    for one, other in ((good, LIST), (LIST, good), (SUCCEEDED, bad), (bad, SUCCEEDED), (good, bad), (bad, good)):
        read = outcome(reader, one + between + other)
        assert read.status is alone.status
        assert {len(read.facts["pods"]), read.end.found["pods"]} == {alone.end.found["pods"] + 1}
        assert read.facts["events"] == alone.facts["events"]


@pytest.mark.parametrize(
    "style", [" |\n      {}\n", " >\n      {}\n\n", " '{}'\n", " '{}\n\n      '\n"], ids=["|", ">", "'", "'…"]
)
def test_what_was_applied_last_is_no_pod(style):
    applied = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}})
    key = "kubectl.kubernetes.io/last-applied-configuration:"
    text = as_yaml(SUCCEEDED)
    annotated = text.replace("\nmetadata:\n", f"\nmetadata:\n  annotations:\n    {key}{style.format(applied)}")
    assert outcome(reader, annotated).end.found["pods"] == 1
    assert outcome(reader, annotated).facts == outcome(reader, SUCCEEDED).facts
    broken = annotated.replace("\nspec:", "\nspec: : [")
    assert outcome(reader, f"{SUCCEEDED}\n---\n{broken}").end.found["pods"] == 1
    assert outcome(reader, f"{annotated}\n---\n{LIST}").end.found["pods"] == 1 + outcome(reader, LIST).end.found["pods"]


@pytest.mark.parametrize(
    "other",
    [
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: b}\n  status: {phase: Succeeded}\n",
        "apiVersion: v1\nitems:\n",
        "apiVersion: v1\n",
        "apiVersion: v1\nkind: Pod\n",
        "apiVersion: v1\nkind: Pod\nmetadata:\n",
        "apiVersion: v1\nkind: Po",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  : : [\n",
        "apiVersion: v1\nkind: List\nitems: {a: b}\nmetadata: {}\n",
        "apiVersion: v1\nkind: List\nitems: [a]\nmetadata: {}\n",
        "apiVersion: v1\nkind: Event\nmetadata: {name: x}\n",
        "apiVersion: v1\nkind: Pod\nx: &a [1]\nmetadata: {name: x}\n",
        "kind: Pod\nmetadata: {name: b}\nstatus: {phase: Succeeded}\n",
        "  apiVersion: v1\n  kind: Pod\n  metadata: {name: b}\n",
        "apiVersion: v1\nkind: Po\nmetadata: {name: b}\nspec: {containers: []}\nstatus: {phase: Failed}\n",
        "apiVersion: v1\nkind: Po,d\nmetadata: {name: b}\nstatus: {phase: Failed}\n",
        '[\n"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Failed"}}\n',
        "node2| apiVersion: v1\nnode2| kind: Pod\n",
        '{"apiVersion": "v1", "kind": "Pod", "meta\nKilled\n',
        '{"apiVersion": "v1", "items": [\nKilled\n',
        '{"node": "b", "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}}\n',
    ],
)
def test_an_object_that_cannot_be_read_beside_a_whole_one(other):
    for whole in (as_yaml(SUCCEEDED), SUCCEEDED):
        for text in (f"{whole}\n---\n{other}", f"{other}\n---\n{whole}"):
            assert outcome(reader, text).status is Status.INCOMPLETE, text


def test_what_is_left_of_a_description_whose_head_is_lost():
    succeeded = EVICTED.replace("Failed\n", "Succeeded\n", 1)
    tail = EVICTED[EVICTED.index("\nStatus:") + 1 :]
    for text in (f"{SUCCEEDED}\n{tail}", f"{succeeded}\n{tail}", f"{tail}\n{SUCCEEDED}"):
        assert outcome(reader, text).status is not Status.COMPLETE


def test_yaml_without_marks_between_its_documents():
    good = as_yaml(SUCCEEDED)
    bad = good.replace("phase: Succeeded", "phase: Failed")
    assert bad != good
    for text in (good + bad, bad + good):
        read = outcome(reader, text)
        assert read.end.found["pods"] == 2
        assert read.status is Status.FAILED
    assert outcome(reader, good + good).status is Status.COMPLETE
    job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\n---\n"
    assert outcome(reader, job + good).facts["kind"] == "Job"


def test_a_cut_list_of_yaml_is_never_called_complete():
    pods = {"apiVersion": "v1", "items": [json.loads(SUCCEEDED), json.loads(SUCCEEDED)], "kind": "List", "metadata": {}}
    text = pytest.importorskip("yaml").safe_dump(pods, sort_keys=True)
    assert outcome(reader, text).status is Status.COMPLETE
    for lines in range(len(text.splitlines()) - 2):
        cut = "".join(text.splitlines(keepends=True)[:lines])
        with contextlib.suppress(OutputError):
            assert outcome(reader, cut).status is not Status.COMPLETE, cut[-200:]
        assert outcome(reader, cut + "---\n" + as_yaml(SUCCEEDED)).status is not Status.COMPLETE or not cut


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-01-31T04:00:00.000000000Z "])
def test_what_has_prefixes_beside_what_has_none_is_never_lost(prefix):
    succeeded = EVICTED.replace("Failed\n", "Succeeded\n", 1)
    for whole in (SUCCEEDED, as_yaml(SUCCEEDED)):
        for other in (SUCCEEDED, as_yaml(SUCCEEDED), LIST, as_yaml(LIST)):
            read = outcome(reader, f"{whole}\n---\n{behind(prefix, other)}")
            assert read.end.found["pods"] > 1 or read.status is Status.INCOMPLETE
    for other in (EVICTED, succeeded, PODS):
        assert outcome(reader, SUCCEEDED + "\n" + other + behind(prefix, other)).status is not Status.COMPLETE
