"""Pods and events as kubectl prints them: nothing is called well that nobody has seen."""

from __future__ import annotations

import contextlib
import json
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import check_cuts, outcome
from tests.readers.kube_outputs import EVENTS, EVICTED, JOB, LIST, PODS, SUCCEEDED, WIDE

from plumbline.errors import OutputError
from plumbline.readers import kubernetes as reader
from plumbline.readers.reading import Status


def test_a_pod_that_succeeded_is_complete():
    read = outcome(reader, SUCCEEDED)
    assert read.status is Status.COMPLETE
    assert read.facts["phase"] == "Succeeded"
    assert read.facts["terminal"] is True
    assert read.facts["gpus_requested"] == 8
    assert read.value("restarts", pod="bench-0", namespace="bench") == 0
    assert "secret" not in json.dumps(read.facts)
    assert outcome(reader, SUCCEEDED, {"pods": 2}).status is Status.INCOMPLETE


def test_of_several_pods_the_worst_speaks():
    read = outcome(reader, LIST)
    assert read.status is Status.NOT_STARTED
    assert read.facts["category"] == "missing_gpu"
    assert read.facts["name"] == "bench-0"
    assert read.facts["phases"] == {"Failed": 1, "Running": 1}
    assert len(read.facts["pods"]) == 2


def test_a_description():
    read = outcome(reader, EVICTED)
    assert read.status is Status.ABORTED
    assert read.facts["reason"] == "Evicted"
    assert read.facts["category"] == "evicted"
    assert read.facts["message"].endswith("Container bench was using 90Gi, request is 0.")
    assert read.facts["exit_code"] == 137
    assert read.facts["gpus_requested"] == 8
    assert read.facts["node"] == "node-a"
    assert (read.facts["events"], read.facts["normal"], read.facts["warnings"]) == (5, 4, 1)
    assert "secret" not in json.dumps(read.facts)


def test_a_job_without_pods():
    read = outcome(reader, JOB)
    assert read.facts["category"] == "quota"
    assert read.facts["kind"] == "Job"
    assert read.status is Status.UNKNOWN


def test_tables_of_events():
    read = outcome(reader, EVENTS)
    assert read.facts["reason"] == "FailedMount"
    assert read.facts["category"] == "storage_unavailable"
    assert read.facts["first_error"] == "FailedScheduling"
    assert read.facts["name"] == "bench-0"
    wide = outcome(reader, WIDE)
    assert wide.facts["reason"] == "FailedCreatePodSandBox"
    assert wide.facts["message"] == "Failed to create pod sandbox: rpc error: no IP"
    assert wide.status is Status.UNKNOWN


def test_the_table_of_pods():
    read = outcome(reader, PODS)
    assert read.facts["phases"] == {"Succeeded": 1, "Failed": 1, "Pending": 1, "Running": 1}
    assert [one.get("category") for one in read.facts["pods"]] == ["ok", "missing_gpu", "image_pull", None]
    assert read.value("restarts", pod="bench-3") == 3
    done = "\n".join(line for line in PODS.splitlines() if "bench-0" in line or "NAME" in line) + "\n"
    assert outcome(reader, done).status is Status.UNKNOWN
    assert outcome(reader, done, {"pods": 1}).status is Status.COMPLETE


def test_the_pods_among_everything():
    rows = "pod/bench-0   0/1     CrashLoopBackOff   4 (21s ago)   3m\n\n"
    text = f"NAME          READY   STATUS             RESTARTS      AGE\n{rows}"
    text += "NAME                 TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   AGE\n"
    text += "service/kubernetes   ClusterIP   10.96.0.1    <none>        443/TCP   9d\n\n"
    text += "NAME                    READY   UP-TO-DATE   AVAILABLE   AGE\n"
    text += "deployment.apps/bench   0/1     1            0           3m\n"
    read = outcome(reader, text)
    assert read.facts["name"] == "bench-0"
    assert read.facts["reason"] == "CrashLoopBackOff"
    assert read.value("restarts", pod="bench-0") == 4
    assert read.status is Status.FAILED


@pytest.mark.parametrize(
    ("text", "reason", "category", "status"),
    [
        ("No events found in bench namespace.\n", None, None, Status.UNKNOWN),
        ("No resources found in bench namespace.\n", None, None, Status.UNKNOWN),
        ('Error from server (NotFound): pods "bench-0" not found\n', "NotFound", None, Status.UNKNOWN),
        (
            'Error from server (Forbidden): error when creating "p.yaml": pods "b" is forbidden: exceeded quota: g\n',
            "Forbidden", "quota", Status.NOT_STARTED,
        ),
        ('{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \\"b\\" is forbidden: exceeded quota",'
         '"reason":"Forbidden","code":403}', "Forbidden", "quota", Status.NOT_STARTED),
        ('{"apiVersion":"v1","kind":"List","items":[]}', None, None, Status.UNKNOWN),
        ('{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"b"},"status":{"conditions":[{"type":"Failed",'
         '"status":"True","reason":"DeadlineExceeded","message":"Job was active longer"}]}}',
         "DeadlineExceeded", "timeout", Status.NOT_STARTED),
    ],
)  # fmt: skip
def test_refusals_and_silence_are_not_health(text, reason, category, status):
    read = outcome(reader, text)
    assert read.facts.get("reason") == reason
    assert read.facts.get("category") == category
    assert read.status is status


def test_a_description_that_was_indented_as_a_block_is_the_same():
    for indent in ("    ", "\t"):
        block = textwrap.indent(EVICTED, indent)
        assert outcome(reader, block).facts == outcome(reader, EVICTED).facts


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: '{"tool_name": "kubectl", "return_code": 0}\nstdout:\n' + text + "\nstderr:\n",
        lambda text: "".join(f"2026-01-31T04:00:00.000000000Z stdout F {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()),
    ],
)
@pytest.mark.parametrize("text", [EVICTED, EVENTS, SUCCEEDED, LIST], ids=["describe", "events", "pod", "list"])
def test_wrapping_changes_nothing(change, text):
    read, plain = outcome(reader, change(text)), outcome(reader, text)
    assert read.facts == plain.facts
    assert read.status is plain.status


@pytest.mark.parametrize("text", ["", "hello\n", "{}", '{"kind": "Config"}', "Name:\n", "NAME READY\n", "\x00" * 99])
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        outcome(reader, text)


@pytest.mark.parametrize(
    "text",
    [SUCCEEDED, LIST, EVICTED, EVICTED.replace("Failed\n", "Succeeded\n", 1), JOB, EVENTS, WIDE, PODS],
    ids=["succeeded", "list", "evicted", "described as succeeded", "job", "events", "wide", "pods"],
)
def test_a_cut_output_is_never_called_complete(text):
    check_cuts(reader, text.encode())


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data):
    text = data.draw(st.sampled_from([LIST, EVICTED, EVENTS, WIDE, PODS]))
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    junk = data.draw(st.text(alphabet='{}[]":, \n\tNameEvents-', max_size=30))
    with contextlib.suppress(OutputError):
        outcome(reader, text[:at] + junk + text[end:])


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["status", "spec", "metadata", "name", "phase", "reason", "message", "containers", "containerStatuses",
         "state", "waiting", "terminated", "exitCode", "lastState", "conditions", "type", "resources", "limits",
         "nvidia.com/gpu", "items", "kind", "restartCount"]), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(VALUE, VALUE, VALUE, st.sampled_from(["Pod", "PodList", "Event", "List", "Status", "Job"]))
def test_any_object_is_explained_or_refused(status, spec, items, kind):
    document = {"kind": kind, "apiVersion": "v1", "metadata": {"name": "x"}, "status": status, "spec": spec}
    document |= {"items": items, "reason": "r"}
    with contextlib.suppress(OutputError):
        outcome(reader, json.dumps(document))


def test_sniff():
    for text in (EVICTED, JOB, EVENTS, WIDE, PODS, SUCCEEDED, LIST):
        assert reader.sniff(text) >= 0.9
    assert reader.sniff("hello\n") == 0


def test_the_older_table_of_a_description():
    text = (
        "Name:\t\tbench-0\nNamespace:\tbench\nNode:\t\t<none>\nStatus:\t\tPending\nContainers:\n  bench:\n"
        "    Image:\tregistry.example/bench:1\nEvents:\n"
        "  FirstSeen\tLastSeen\tCount\tFrom\t\t\tSubObjectPath\tType\t\tReason\t\t\tMessage\n"
        "  ---------\t--------\t-----\t----\t\t\t-------------\t--------\t------\t\t\t-------\n"
        "  5m\t\t14s\t\t22\tdefault-scheduler\t\t\tWarning\t\tFailedScheduling\t"
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.\n"
    )
    read = outcome(reader, text)
    assert read.facts["category"] == "missing_gpu"
    assert (read.facts["events"], read.facts["warnings"]) == (1, 1)
    assert read.facts["phase"] == "Pending"
