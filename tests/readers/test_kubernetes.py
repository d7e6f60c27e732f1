"""Pods and events: each way in which a pod does not run is named, and nothing is called well that nobody has seen."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import DATA, check_cuts, outcome

from plumbline.errors import OutputError
from plumbline.model import Code
from plumbline.readers import kubernetes as reader
from plumbline.readers.kubernetes import explain
from plumbline.readers.reading import Status

FOLDER = DATA / "kubernetes"
EVICTED, JOB, EVENTS, WIDE, PODS = (
    (FOLDER / f"{name}.txt").read_text()
    for name in ("describe_evicted", "describe_job_quota", "events", "get_events_wide", "get_pods")
)
SUCCEEDED, LIST = ((FOLDER / f"{name}.json").read_text() for name in ("pod_succeeded", "list_with_events"))


def pod(phase="Pending", spec=None, **status):
    containers = [{"name": "bench", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    return {
        "metadata": {"name": "bench-0"},
        "spec": spec or {"containers": containers},
        "status": {"phase": phase, **status},
    }


def event(reason, message="", kind="Warning", last="2026-01-31T04:05:00Z", **more):
    return {"type": kind, "reason": reason, "message": message, "firstTimestamp": last, "lastTimestamp": last, **more}


def waiting(reason, message="", last=None):
    container = {"name": "bench", "restartCount": 3, "state": {"waiting": {"reason": reason, "message": message}}}
    return {"containerStatuses": [{**container, "lastState": {"terminated": last}} if last else container]}


def ended(code, reason="Error", message=""):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "bench", "restartCount": 0, "state": state}]}


def unscheduled(message):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


def disrupted(reason, message=""):
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]}


NO_GPU = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector."
ALLOCATE = "requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7"
FLAVOR = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100"
TAINT = "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
CLAIM = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
AFFINITY = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


WAYS = [
    # the scheduler
    (pod(**unscheduled(NO_GPU)), [], "Unschedulable", Code.MISSING_GPU),
    (pod(**unscheduled(NO_GPU)), [event("FailedScheduling", NO_GPU)], "FailedScheduling", Code.MISSING_GPU),
    (
        pod(),
        [event("FailedScheduling", "0/2 nodes are available: 2 Insufficient amd.com/gpu.")],
        "FailedScheduling",
        Code.MISSING_GPU,
    ),
    (
        pod(),
        [event("FailedScheduling", "0/2 nodes are available: 2 cannot allocate all claims.")],
        "FailedScheduling",
        Code.MISSING_GPU,
    ),
    (
        pod(),
        [event("FailedScheduling", "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu.")],
        "FailedScheduling",
        Code.UNSCHEDULABLE,
    ),
    (pod(), [event("FailedScheduling", AFFINITY)], "FailedScheduling", Code.UNSCHEDULABLE),
    (pod(), [event("FailedScheduling", CLAIM)], "FailedScheduling", Code.STORAGE_UNAVAILABLE),
    (pod(), [event("FailedScheduling", TAINT)], "FailedScheduling", Code.NODE_NOT_READY),
    (
        pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
        [],
        "SchedulingGated",
        Code.UNSCHEDULABLE,
    ),
    # quota
    (
        {},
        [event("FailedCreate", 'Error creating: pods "b-" is forbidden: exceeded quota: gpus, requested: pods=1')],
        "FailedCreate",
        Code.QUOTA,
    ),
    ({}, [event("Pending", FLAVOR)], "Pending", Code.QUOTA),
    # images
    *[
        (pod(**waiting(reason)), [], reason, Code.IMAGE_PULL)
        for reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
    ],
    ({}, [event("BackOff", 'Back-off pulling image "x:1"', kind="Normal")], "ImagePullBackOff", Code.IMAGE_PULL),
    ({}, [event("Failed", 'Failed to pull image "x:1": not found')], "ErrImagePull", Code.IMAGE_PULL),
    # the kubelet's admission
    (
        pod("Failed", reason="UnexpectedAdmissionError", message=ALLOCATE),
        [],
        "UnexpectedAdmissionError",
        Code.MISSING_GPU,
    ),
    (
        pod("Failed", reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource: nvidia.com/gpu"),
        [],
        "OutOfnvidia.com/gpu",
        Code.MISSING_GPU,
    ),
    (
        pod("Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"),
        [],
        "OutOfcpu",
        Code.UNSCHEDULABLE,
    ),
    (
        pod("Failed", reason="UnexpectedAdmissionError", message="no such plugin"),
        [],
        "UnexpectedAdmissionError",
        Code.INFRASTRUCTURE,
    ),
    # the node, eviction, preemption
    (
        pod("Failed", reason="Evicted", message="The node was low on resource: memory.", **ended(137)),
        [],
        "Evicted",
        Code.EVICTED,
    ),
    (pod("Failed", reason="NodeLost"), [], "NodeLost", Code.NODE_LOST),
    (
        pod("Failed", reason="Preempting", message="Preempted in order to admit critical pod"),
        [],
        "Preempting",
        Code.PREEMPTED,
    ),
    (
        pod(
            "Failed",
            **disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod"),
            containerStatuses=ended(143)["containerStatuses"],
        ),
        [],
        "PreemptionByScheduler",
        Code.PREEMPTED,
    ),
    (
        pod("Failed", **disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")),
        [],
        "TerminationByKubelet",
        Code.NODE_LOST,
    ),
    (
        pod("Failed", **disrupted("TerminationByKubelet", "The node was low on resource: memory")),
        [],
        "TerminationByKubelet",
        Code.EVICTED,
    ),
    (
        pod("Running", **disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")),
        [],
        "DeletionByTaintManager",
        Code.NODE_LOST,
    ),
    (
        pod(
            "Failed", reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline"
        ),
        [],
        "DeadlineExceeded",
        Code.TIMEOUT,
    ),
    (
        pod("Running", containerStatuses=[{"name": "b", "state": {"running": {}}}]),
        [event("NodeNotReady", "Node is not ready")],
        "NodeNotReady",
        Code.NODE_NOT_READY,
    ),
    # containers
    (pod("Failed", **ended(137, "OOMKilled")), [], "OOMKilled", Code.OUT_OF_MEMORY),
    (
        pod("Failed", **ended(137)),
        [event("OOMKilling", "Memory cgroup out of memory: Killed process 1")],
        "OOMKilled",
        Code.OUT_OF_MEMORY,
    ),
    (pod("Failed", **ended(3)), [], "Error", Code.BENCHMARK_FAILED),
    (
        pod("Running", **waiting("CrashLoopBackOff", last={"exitCode": 137, "reason": "OOMKilled"})),
        [],
        "CrashLoopBackOff",
        Code.OUT_OF_MEMORY,
    ),
    (
        pod("Running", **waiting("CrashLoopBackOff", last={"exitCode": 2, "reason": "Error"})),
        [],
        "CrashLoopBackOff",
        Code.BENCHMARK_FAILED,
    ),
    (
        pod("Failed", **ended(128, "StartError", "nvidia-container-cli: device error: 3: unknown device")),
        [],
        "StartError",
        Code.MISSING_GPU,
    ),
    (
        pod("Failed", **ended(127, "ContainerCannotRun", "exec: hpl: not found")),
        [],
        "ContainerCannotRun",
        Code.INFRASTRUCTURE,
    ),
    (
        pod(**waiting("CreateContainerConfigError", 'secret "token" not found')),
        [],
        "CreateContainerConfigError",
        Code.INFRASTRUCTURE,
    ),
    # volumes and sandboxes
    (
        pod(**waiting("ContainerCreating")),
        [event("FailedMount", "MountVolume.SetUp failed")],
        "FailedMount",
        Code.STORAGE_UNAVAILABLE,
    ),
    (
        pod(**waiting("ContainerCreating")),
        [event("FailedCreatePodSandBox", "no IP")],
        "FailedCreatePodSandBox",
        Code.INFRASTRUCTURE,
    ),
    # nothing wrong
    (pod("Succeeded", **ended(0, "Completed")), [event("FailedMount", "before it ran")], None, Code.OK),
    (
        pod("Running", containerStatuses=[{"name": "b", "state": {"running": {}}}]),
        [event("FailedMount"), event("Unhealthy")],
        None,
        None,
    ),
    (pod(**waiting("ContainerCreating")), [event("Pulling", kind="Normal")], None, None),
]


@pytest.mark.parametrize(("data", "events", "reason", "category"), WAYS)
def test_each_way_not_to_run_is_named(data, events, reason, category):
    found = explain(data, events)
    assert (found.reason, found.category) == (reason, category)
    assert found.terminal is (found.phase in ("Succeeded", "Failed"))


def test_what_later_events_cured_is_no_reason():
    failed = event("FailedScheduling", NO_GPU, last="2026-01-31T04:00:00Z")
    scheduled = event("Scheduled", kind="Normal", last="2026-01-31T04:01:00Z")
    assert explain({}, [failed]).category is Code.MISSING_GPU
    assert explain({}, [failed, scheduled]).category is None
    assert explain({}, [scheduled, failed]).category is None
    again = event("FailedScheduling", NO_GPU, last="2026-01-31T04:02:00Z")
    assert explain({}, [failed, scheduled, again]).category is Code.MISSING_GPU


def test_explain_counts_what_was_asked_and_tried():
    spec = {
        "nodeName": "node-a",
        "containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "4"}, "limits": {}}},
                       {"name": "b", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "2", "cpu": "8"}}}],
        "initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }  # fmt: skip
    events = [event("Pulling", kind="Normal", count=4), event("Failed", "Error: ErrImagePull", count=4)]
    found = explain(pod("Pending", spec, **waiting("ErrImagePull")), events)
    assert (found.gpus_requested, found.attempts, found.first_error) == (6, 4, "ErrImagePull")
    assert (found.node, found.container, found.normal, found.warnings) == ("node-a", "bench", 1, 1)
    assert explain({}, []).gpus_requested is None


def test_explain_survives_any_shape():
    odd_event = {"series": 5, "count": "x", "involvedObject": []}
    for odd in ({}, {"status": None}, {"status": {"containerStatuses": [None, {}, {"state": {"waiting": None}}]}},
                {"spec": {"containers": "x"}}, {"metadata": [], "status": {"conditions": {}, "phase": 5}}):  # fmt: skip
        assert dataclasses.asdict(explain(odd, [{}, odd_event]))["phase"] is None


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


def as_yaml(text):
    return pytest.importorskip("yaml").safe_dump(json.loads(text), sort_keys=True)


def behind(prefix, text):
    return "".join(prefix + line for line in text.splitlines(keepends=True))


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
