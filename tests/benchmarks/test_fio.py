"""The storage benchmark on a recorded run of its clients (2 clients, 1 s a job), whole and broken in many ways."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.launches import launch, record

from plumbline.benchmarks import benchmark, fio
from plumbline.benchmarks._fio_windows import merged_percentile
from plumbline.benchmarks.benchmark import Measured, Placement
from plumbline.configuration import project_root
from plumbline.errors import ConfigError, OutputError
from plumbline.model import Code, Device, LaunchSpec, Origin, canonical_params
from plumbline.readers.reading import Status
from plumbline.units import UNITS

DATA = Path(__file__).parents[1] / "data" / "fio_clients"
RAN = {"started_at": "2026-11-29T16:08:56.000000Z", "ended_at": "2026-11-29T16:09:12.000000Z", "duration_s": 16.0}
"""When the launch ran: its layout took 1.3 s, its jobs ended from 16:09:01 to 16:09:10."""
ASKED = {"size": "16M", "runtime_s": 1.0, "ramp_s": 0.5}
JOBS = ("seq_write", "seq_read", "rand_read", "rand_write")


def placement(**changes: Any) -> Placement:
    fields = {
        "launcher": "local", "device": Device.CPU, "origin": Origin.MEASURED, "nodes": ("n1",),
        "accelerators_per_node": 1, "accelerator": "cpu", "fabric": "loopback", "python": "python3",
        "programs": Path("/p/docker/bench"), "storage_dir": "/tmp/fiodata",
    }  # fmt: skip
    return Placement(**{**fields, **changes})


def spec(nodes: tuple[str, ...] = ("n1",), **params: Any) -> LaunchSpec:
    return launch(benchmark("fio"), placement(nodes=nodes), **{**ASKED, **params})


def measure(raw: Path, the_spec: LaunchSpec | None = None, **changes: Any) -> Measured:
    chosen = the_spec or spec()
    return fio.measure(chosen, record(chosen, **{**RAN, **changes}), raw)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "raw"))


def names(measured: Measured) -> set[tuple[str, str]]:
    return {(value.indicator, canonical_params(value.params)) for value in measured.values}


def value(measured: Measured, indicator: str, **params: Any) -> float:
    found = [v.value for v in measured.values if v.indicator == indicator and params.items() <= v.params.items()]
    assert len(found) == 1
    return found[0]


def codes(measured: Measured) -> set[Code]:
    return {finding.code for finding in measured.findings}


def report(job: str, client: int) -> Any:
    return json.loads((DATA / f"fio-{job}-n1-c{client}.json").read_text())["jobs"][0]


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# -- what is asked


def test_every_expected_row_is_measured_and_no_other() -> None:
    measured = measure(DATA)
    expected = {(row.indicator, canonical_params(row.params)) for row in fio.expected(spec())}
    assert names(measured) == expected
    assert len(measured.values) == len(expected) == 12
    assert measured.findings == ()
    assert {statement.status for statement in measured.completeness} == {Status.COMPLETE}
    assert len(measured.completeness) == 1 + 4 * 2, "one for the program, one for each client's report"
    indicators = {indicator.name: indicator for indicator in fio.INDICATORS}
    for item in measured.values:
        assert item.unit == indicators[item.indicator].unit
        assert item.unit in UNITS


def test_one_client_has_no_spread_and_fewer_jobs_have_fewer_rows() -> None:
    rows = list(fio.expected(spec(clients=1, jobs="seq_read,rand_write")))
    assert [row.indicator for row in rows] == ["read_bandwidth", "write_iops", "write_latency_p50", "write_latency_p99"]
    assert {row.params["clients"] for row in fio.expected(spec(nodes=("a", "b"), clients=3))} == {6}


def test_the_command_is_complete() -> None:
    command = fio.command(placement(nodes=("n0", "n1")), spec().params)
    argv = list(command.argv)
    assert argv[:3] == ["python3", "-m", "plumbline_bench.fio_clients"]
    assert command.env == {"PYTHONPATH": "/p/docker/bench"}
    assert argv[argv.index("--size") + 1] == str(16 << 20)
    assert argv[argv.index("--nodes") + 1] == "n0,n1"
    assert "--create" not in argv, "a mount that is missing must not be made up"
    assert command.timeout_s > 4 * 1.5 + 300
    embedded = fio.command(placement(storage_dir=str(project_root() / ".plumbline/storage")), spec().params)
    assert "--create" in embedded.argv
    cluster = fio.command(placement(launcher="kubernetes"), {**spec().params, "require_mount": True})
    assert "--nodes" not in cluster.argv, "each machine is told its name by its environment"
    assert "--require-mount" in cluster.argv


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"jobs": "seq_wrte"}, "did you mean 'seq_write'"),
        ({"jobs": ""}, "names no job"),
        ({"size": "big"}, "not a size"),
        ({"clients": 0}, "at least 1"),
        ({"ioengine": "libao"}, "must be one of"),
    ],
)
def test_wrong_parameters_are_refused_by_name(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        spec(**params)


# -- what is measured


def test_the_aggregate_is_what_all_clients_did_at_once() -> None:
    measured = measure(DATA)
    for job, indicator, direction in (
        ("seq_write", "write_bandwidth", "write"),
        ("seq_read", "read_bandwidth", "read"),
    ):
        total = sum(report(job, client)[direction]["bw_bytes"] for client in (0, 1)) / 1e6
        assert value(measured, indicator) == pytest.approx(total, rel=0.1), "they ran together almost all of the time"
    total = sum(report("rand_read", client)["read"]["iops"] for client in (0, 1))
    assert value(measured, "read_iops") == pytest.approx(total, rel=0.1)
    for job in JOBS:
        assert 0 < value(measured, "client_spread", job=job) <= 1


def test_percentiles_are_merged_and_never_averaged() -> None:
    measured = measure(DATA)
    p99 = [report("rand_read", client)["read"]["clat_ns"]["percentile"]["99.000000"] / 1000 for client in (0, 1)]
    assert min(p99) <= value(measured, "read_latency_p99") <= max(p99)
    bins = [report("rand_read", client)["read"]["clat_ns"]["bins"] for client in (0, 1)]
    everything = sorted(int(ns) for each in bins for ns, count in each.items() for _ in range(count))
    assert value(measured, "read_latency_p50") == everything[-(-len(everything) // 2) - 1] / 1000


@pytest.mark.parametrize("job", ["rand_read", "rand_write"])
@pytest.mark.parametrize("percentile", [1, 50, 90, 99, 99.9, 99.99])
def test_a_percentile_of_one_histogram_is_the_one_that_fio_prints(job: str, percentile: float) -> None:
    latency = report(job, 0)[JOBS_WAY[job]]["clat_ns"]
    bins = {int(ns): count for ns, count in latency["bins"].items()}
    assert merged_percentile([bins], percentile) == latency["percentile"][f"{percentile:f}"]


JOBS_WAY = {"rand_read": "read", "rand_write": "write"}


# -- broken in one way at a time


def test_clients_that_never_ran_at_once_give_no_aggregate(raw: Path) -> None:
    shift(raw, "seq_read", 10_000)
    measured = measure(raw)
    assert codes(measured) == {Code.INCOMPLETE_OUTPUT}
    assert "ran at once for 0.00 s" in measured.findings[0].message
    assert "read_bandwidth" not in {item.indicator for item in measured.values}
    assert "write_bandwidth" in {item.indicator for item in measured.values}


def test_clients_of_several_nodes_that_never_ran_at_once_point_at_the_clocks(raw: Path) -> None:
    two = spec(nodes=("n1", "n2"), clients=1)
    for old in sorted(raw.glob("*-n1-c1*")):
        old.rename(raw / old.name.replace("-n1-c1", "-n2-c0"))
    data = json.loads((raw / "fio-facts-n1.json").read_text())
    text = json.dumps(data).replace('"clients": 2', '"clients": 1')
    for name, index in (("n1", 0), ("n2", 1)):
        facts = json.loads(text)
        facts["asked"]["nodes"] = [name]
        for job in facts["jobs"]:
            client = job["clients"][index]
            client.update(node=name, client=0, output=client["output"].replace("n1-c1", "n2-c0"))
            client["bw_log"] = client["bw_log"].replace("n1-c1", "n2-c0")
            job["clients"] = [client]
        (raw / f"fio-facts-{name}.json").write_text(json.dumps(facts))
    assert measure(raw, two).findings == ()
    assert names(measure(raw, two)) == {(r.indicator, canonical_params(r.params)) for r in fio.expected(two)}
    shift(raw, "rand_read", 30_000, client="n2-c0")
    assert codes(measure(raw, two)) == {Code.CLOCK_SKEW}


def shift(raw: Path, job: str, by_ms: int, client: str = "n1-c1") -> None:
    """Let one client have run at another time."""
    edit_json(raw / f"fio-{job}-{client}.json", lambda d: d.update(timestamp_ms=d["timestamp_ms"] + by_ms))
    log = raw / f"fio-{job}-{client}_bw.log"
    log.write_text(re.sub(r"^\d+", lambda m: str(int(m[0]) + by_ms), log.read_text(), flags=re.MULTILINE))


BREAKS: dict[str, tuple[Callable[[Path], Any], Code]] = {
    "a report is gone": (lambda r: (r / "fio-seq_read-n1-c1.json").unlink(), Code.UNREADABLE),
    "a log is gone": (lambda r: (r / "fio-seq_read-n1-c1_bw.log").unlink(), Code.UNREADABLE),
    "a log is empty": (lambda r: (r / "fio-seq_read-n1-c1_bw.log").write_text(""), Code.UNREADABLE),
    "a log is cut": (lambda r: cut(r / "fio-seq_read-n1-c1_bw.log", 7), Code.UNREADABLE),
    "a log is garbage": (lambda r: (r / "fio-seq_read-n1-c1_bw.log").write_text("nan, 1, 0, 0, 0\n"), Code.UNREADABLE),
    "the log of another client": (
        lambda r: shutil.copy(r / "fio-rand_write-n1-c0_bw.log", r / "fio-seq_read-n1-c1_bw.log"),
        Code.INCOMPLETE_OUTPUT,
    ),
    "another block size": (
        lambda r: edit_json(r / "fio-seq_read-n1-c1.json", lambda d: options(d).update(bs="64k")),
        Code.WRONG_PARAMETERS,
    ),
    "another workload": (
        lambda r: edit_json(r / "fio-seq_read-n1-c1.json", lambda d: options(d).update(rw="randread")),
        Code.WRONG_PARAMETERS,
    ),
    "another runtime": (
        lambda r: edit_json(r / "fio-seq_read-n1-c1.json", lambda d: options(d).update(runtime="2")),
        Code.WRONG_PARAMETERS,
    ),
    "buffered although direct was said": (
        lambda r: edit_json(r / "fio-seq_read-n1-c1.json", lambda d: options(d).update(direct="0")),
        Code.WRONG_PARAMETERS,
    ),
    "another size": (
        lambda r: edit_json(r / "fio-facts-n1.json", lambda d: d["asked"].update(size_bytes=1)),
        Code.WRONG_PARAMETERS,
    ),
    "another host": (
        lambda r: edit_json(r / "fio-facts-n1.json", lambda d: d["asked"].update(nodes=["n7"])),
        Code.WRONG_HOST,
    ),
    "through the page cache": (
        lambda r: edit_json(r / "fio-facts-n1.json", lambda d: d.update(page_cache=True)),
        Code.PAGE_CACHE,
    ),
}


def options(document: Any) -> Any:
    return document["jobs"][0]["job options"]


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_found(raw: Path, name: str) -> None:
    break_it, code = BREAKS[name]
    break_it(raw)
    measured = measure(raw)
    assert code in codes(measured)
    if code in (Code.UNREADABLE, Code.INCOMPLETE_OUTPUT):
        assert not [v for v in measured.values if v.indicator == "read_bandwidth" or v.params.get("job") == "seq_read"]
        assert [v for v in measured.values if v.indicator == "read_iops"], "the other jobs keep their numbers"


def test_a_report_that_is_cut_is_not_complete(raw: Path) -> None:
    cut(raw / "fio-seq_read-n1-c1.json", 100)
    measured = measure(raw)
    assert Status.INCOMPLETE in {statement.status for statement in measured.completeness}
    assert "read_bandwidth" not in {item.indicator for item in measured.values}


def test_a_client_that_was_never_listed_is_missed(raw: Path) -> None:
    edit_json(raw / "fio-facts-n1.json", lambda d: d["jobs"][1]["clients"].pop())
    measured = measure(raw)
    assert [s.reason for s in measured.completeness if s.status is Status.INCOMPLETE] == [
        "seq_read: 1 clients ran, 2 were asked for"
    ]
    edit_json(raw / "fio-facts-n1.json", lambda d: d["jobs"].pop(0))
    assert len([s for s in measure(raw).completeness if s.status is Status.INCOMPLETE]) == 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("directory_missing", Code.STORAGE_UNAVAILABLE),
        ("no_space", Code.STORAGE_UNAVAILABLE),
        ("mount_hung", Code.STORAGE_UNAVAILABLE),
        ("too_slow", Code.TIMEOUT),
        ("fio_missing", Code.BENCHMARK_FAILED),
        ("stopped", Code.STOPPED),
    ],
)
def test_errors_of_the_program_are_findings(tmp_path: Path, kind: str, code: Code) -> None:
    facts = json.loads((DATA / "fio-facts-n1.json").read_text())
    facts |= {"status": "error", "error": {"kind": kind, "message": "why"}, "jobs": []}
    (tmp_path / "fio-facts-n1.json").write_text(json.dumps(facts))
    measured = measure(tmp_path)
    assert codes(measured) == {code}
    assert "why" in measured.findings[0].message
    assert [s.status for s in measured.completeness] == [Status.FAILED]
    assert measured.values == ()


def test_a_program_that_was_killed_is_not_complete(raw: Path) -> None:
    edit_json(raw / "fio-facts-n1.json", lambda d: d.update(status="running"))
    assert Status.ABORTED in {statement.status for statement in measure(raw).completeness}


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"schema": 2, "asked": {}}', '{"schema": 1}'])
def test_without_a_facts_file_nothing_is_read(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "fio-facts-n1.json").write_text(content)
    with pytest.raises(OutputError):
        measure(tmp_path)


# -- whose output it is


EARLIER = {"started_at": "2026-11-29T16:09:28.000000Z", "ended_at": "2026-11-29T16:09:28.020000Z", "duration_s": 0.02}
"""A launch 18 s later that printed the earlier one's files and ended at once."""


def test_the_files_of_an_earlier_launch_are_not_this_ones() -> None:
    found = [finding.message for finding in measure(DATA, **EARLIER).findings]
    assert codes(measure(DATA, **EARLIER)) == {Code.OLD_OUTPUT}
    assert "2026-11-29T16:08:58" in found[0] and "another launch's output" in found[0]
    assert "all jobs together took 6.07 s" in found[1]


@pytest.mark.parametrize(
    ("seconds", "hosts", "hardware", "old"),
    [
        (0, ("n1",), {}, False),
        (4, ("n1",), {}, False),
        (18, ("n1",), {}, True),
        (18, ("n1", "n2"), {}, False),
        (18, ("n1",), {"nodes": {}}, False),
        (150, ("n1", "n2"), {}, True),
        (-18, ("n1",), {}, True),
    ],
)
def test_a_launchers_clock_may_differ_more_than_the_nodes_own(
    seconds: int, hosts: tuple[str, ...], hardware: dict[str, Any], old: bool
) -> None:
    began, ended = (
        (datetime.fromisoformat(f"2026-11-29T16:{at}+00:00") + timedelta(seconds=seconds)).isoformat()
        for at in ("08:58.8", "09:09.6")
    )
    times = {"started_at": began, "ended_at": ended, "duration_s": 10.8}
    assert codes(measure(DATA, hosts=hosts, hardware=hardware, **times)) == ({Code.OLD_OUTPUT} if old else set())


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), 1e300, -1.0])
def test_a_moment_that_is_none_hides_no_other(raw: Path, moment: float) -> None:
    def change(data: Any) -> None:
        data["jobs"][0]["clients"][0]["started_at"] = moment

    edit_json(raw / "fio-facts-n1.json", change)
    assert codes(measure(raw)) == {Code.OLD_OUTPUT}


def test_jobs_that_took_longer_than_the_launch_are_of_another_one() -> None:
    assert codes(measure(DATA, duration_s=6.1)) == set()
    assert codes(measure(DATA, duration_s=5.5)) == {Code.OLD_OUTPUT}


@pytest.mark.parametrize("directory", ["/tmp/other", "/tmp", None])
def test_another_directory_is_wrong(raw: Path, directory: str | None) -> None:
    edit_json(raw / "fio-facts-n1.json", lambda d: d["asked"].update(directory=directory))
    assert codes(measure(raw)) == {Code.WRONG_PARAMETERS}


@pytest.mark.parametrize("name", ["/tmp/other/client-0.dat", "/tmp/fiodata/../other/x", "/tmp/fiodata2/x", None])
def test_a_file_elsewhere_is_wrong(raw: Path, name: str | None) -> None:
    """The facts may say what was asked for; fio says what it opened."""
    options = {"filename": name} if name else {}

    def change(data: Any) -> None:
        job = data["jobs"][0]["job options"]
        del job["filename"]
        job.update(options)

    edit_json(raw / "fio-rand_read-n1-c1.json", change)
    assert codes(measure(raw)) == {Code.WRONG_PARAMETERS}


def test_bytes_that_contradict_the_rate_give_no_number(raw: Path) -> None:
    def change(data: Any) -> None:
        data["jobs"][0]["read"]["io_bytes"] = int(data["jobs"][0]["read"]["io_bytes"] * 1.38)

    edit_json(raw / "fio-seq_read-n1-c0.json", change)
    measured = measure(raw)
    assert Status.INCOMPLETE in {statement.status for statement in measured.completeness}
    assert "read_bandwidth" not in {name for name, _ in names(measured)}
