"""Mutations of records, plan and seal: what is claimed of a launch, and what is missing around it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tests.validation.mutant_night import HPL, NCCL, TABLE, Broken
from tests.validation.mutation import Mutation

from plumbline.model import Code, launch_spec


def record(name: str, *codes: Code, **fields: Any) -> Mutation:
    return Mutation(name=name, codes=codes, apply=lambda night: night.record(NCCL, **fields), where="record")


def broken(name: str, apply: Callable[[Broken], object], *codes: Code, where: str = "record") -> Mutation:
    return Mutation(name=name, codes=codes, apply=lambda night: void(apply(night)), where=where)


def void(_: object) -> None:
    """Drop a value."""


def shifted(**hours: float) -> Callable[[Broken], None]:
    """Move times of the record by hours."""

    def apply(night: Broken) -> None:
        data = night.read_record(NCCL)
        for key, amount in hours.items():
            data[key] = (datetime.fromisoformat(data[key]) + timedelta(hours=amount)).isoformat()
        night.record(NCCL, **data)

    return apply


def taken_up_later(**past: float) -> Callable[[Broken], None]:
    """All but one launch ran at night; the last was taken up so much later, when the run was sealed too."""

    def apply(night: Broken) -> None:
        later = timedelta(**past)
        data = night.read_record(NCCL)
        times = {key: (datetime.fromisoformat(data[key]) + later).isoformat() for key in ("started_at", "ended_at")}
        night.record(NCCL, **times)
        clock = json.loads((night.run.evidence / "simulation.json").read_text())
        clock["clock"] = (datetime.fromisoformat(clock["clock"]) + later).isoformat()
        night.evidence("simulation", lambda _: clock)

    return apply


def half_written(night: Broken) -> None:
    text = night.record_path(NCCL).read_text()
    night.record_path(NCCL).write_text(text[: len(text) // 2])


def another_host(night: Broken) -> None:
    hosts = night.read_record(NCCL)["hosts"]
    night.record(NCCL, hosts=[hosts[0], "n0099"])


def one_host_less(night: Broken) -> None:
    night.record(NCCL, hosts=night.read_record(NCCL)["hosts"][:1])


def stood_in(substitute: str | None, *, cause: bool) -> Callable[[Broken], None]:
    """Let another node take the first one's place: `None` is one of the inventory; `cause`: the first was lost."""

    def act(night: Broken) -> None:
        data = night.read_record(NCCL)
        lost, *others = data["hosts"]
        usable = [node.name for node in night.run.plan().inventory if node.name not in data["hosts"]]
        new = substitute or usable[0]
        second = {**data, "attempt": 2, "raw_dir": f"raw/{NCCL}.a2", "hosts": [new, *others], "replaced": {lost: new}}
        night.raw(NCCL, "").rename(night.run.evidence / "raw" / f"{NCCL}.a2")
        night.raw(NCCL, "").mkdir()
        night.run.evidence.joinpath("records", f"{NCCL}.a2.json").write_text(json.dumps(second))
        if cause:
            gone = {"outcome": "infrastructure", "exit_code": None, "code": "node_lost", "reason": f"{lost} was lost"}
            night.record(NCCL, **gone, hosts=[], raw_files=[])
        else:
            night.record_path(NCCL).unlink()

    return act


def tried_before(code: str, *, then: str | None) -> Callable[[Broken], None]:
    """Infrastructure stopped a first attempt by `code`; the second answers, or is stopped by `then`."""

    def act(night: Broken) -> None:
        data = night.read_record(NCCL)
        stopped = {"outcome": "infrastructure", "exit_code": None, "hosts": [], "raw_files": []}
        second = {**data, "attempt": 2, "raw_dir": f"raw/{NCCL}.a2"}
        night.raw(NCCL, "").rename(night.run.evidence / "raw" / f"{NCCL}.a2")
        night.raw(NCCL, "").mkdir()
        if then is not None:
            second |= {**stopped, "code": then, "reason": f"stopped by {then}"}
            shutil.rmtree(night.run.evidence / "raw" / f"{NCCL}.a2")
            (night.run.evidence / "raw" / f"{NCCL}.a2").mkdir()
        night.run.evidence.joinpath("records", f"{NCCL}.a2.json").write_text(json.dumps(second))
        night.record(NCCL, **stopped, code=code, reason=f"stopped by {code}")

    return act


def unplanned(night: Broken) -> None:
    data = night.read_record(NCCL)
    other = night.record_path("nccl_tests-n2-g9-r1")
    other.write_text(json.dumps({**data, "launch_id": "nccl_tests-n2-g9-r1"}))


def second_answer(night: Broken) -> None:
    """A second attempt after one that had answered: retried until it passed."""
    data = night.read_record(NCCL)
    shutil.copytree(night.raw(NCCL, ""), night.run.evidence / "raw" / f"{NCCL}.a2")
    path = night.run.evidence / "records" / f"{NCCL}.a2.json"
    path.write_text(json.dumps({**data, "attempt": 2, "raw_dir": f"raw/{NCCL}.a2"}))


def renamed(night: Broken) -> None:
    night.record_path(NCCL).rename(night.record_path("hpl_mxp-n2-g0-r1"))


def without(key: str) -> Callable[[Broken], None]:
    def apply(night: Broken) -> None:
        data = night.read_record(NCCL)
        del data[key]
        night.record_path(NCCL).write_text(json.dumps(data))

    return apply


def elsewhere(night: Broken) -> None:
    """The record points at another launch's raw output."""
    night.record(NCCL, raw_dir=f"raw/{HPL}.a1")


def not_planned_any_more(data: dict[str, Any]) -> None:
    data["launches"] = [spec for spec in data["launches"] if spec["launch_id"] != NCCL]


def without_launches(night: Broken, lost: Callable[[dict[str, Any]], bool], *, batches: bool) -> None:
    """Some launches were never planned, so they left no trace."""
    plan = json.loads((night.run.evidence / "plan.json").read_text())
    gone = {spec["launch_id"] for spec in plan["launches"] if lost(spec)}
    plan["launches"] = [spec for spec in plan["launches"] if spec["launch_id"] not in gone]
    if batches:
        for batch in plan["batches"]:
            batch["launch_ids"] = [one for one in batch["launch_ids"] if one not in gone]
        plan["batches"] = [batch for batch in plan["batches"] if batch["launch_ids"]]
    night.evidence("plan", lambda _: plan)
    for launch_id in gone:
        night.record_path(launch_id).unlink()
        shutil.rmtree(night.raw(launch_id, ""))


def launch_lost(night: Broken) -> None:
    without_launches(night, lambda spec: spec["launch_id"] == NCCL, batches=False)


def node_lost(night: Broken) -> None:
    """One node is planned nowhere, and the inventory still names it."""
    without_launches(night, lambda spec: "n0001" in spec["nodes"], batches=True)


def node_lost_from_inventory(night: Broken) -> None:
    node_lost(night)
    night.evidence("plan", lambda d: d.update(inventory=[n for n in d["inventory"] if n["name"] != "n0001"]))


def benchmark_lost(night: Broken) -> None:
    without_launches(night, lambda spec: spec["benchmark"] == "fio", batches=True)


def rung_lost(night: Broken) -> None:
    without_launches(night, lambda spec: spec["node_count"] == 2, batches=True)


def another_runs_plan(night: Broken) -> None:
    night.evidence("plan", lambda data: data.update(run_id="20200101T000000Z-000000"))


def one_digit(night: Broken) -> None:
    path = night.raw(NCCL, TABLE)
    text = path.read_text()
    path.write_text(text.replace(" 0 OK", " 1 OK"))


def tampered(name: str, tamper: Callable[[Broken], object], *codes: Code, error: str = "") -> Mutation:
    return Mutation(
        name=name, codes=codes, error=error, tamper=lambda night: void(tamper(night)), where="sealed evidence"
    )


def gpus_of(when: str, change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Broken], None]:
    """Change what the GPUs of the first node of the group told before or after the launch."""

    def apply(night: Broken) -> None:
        snapshots = night.read_record(NCCL)["snapshots"]
        node = snapshots[when]["gpus"][0]["index"].partition("/")[0]
        mine = [gpu for gpu in snapshots[when]["gpus"] if gpu["index"].startswith(f"{node}/")]
        others = snapshots[when]["gpus"][len(mine) :]
        change(mine)
        snapshots[when]["gpus"] = [*mine, *others]
        night.record(NCCL, snapshots=snapshots)

    return apply


def told(**cells: str) -> Callable[[Broken], None]:
    """Let the first GPU have told something else after the launch."""
    return gpus_of("after", lambda gpus: gpus[0].update({key.replace("__", "."): text for key, text in cells.items()}))


def without_snapshot(*which: str) -> Callable[[Broken], None]:
    def apply(night: Broken) -> None:
        snapshots = night.read_record(NCCL)["snapshots"]
        night.record(NCCL, snapshots={when: {} if when in which else found for when, found in snapshots.items()})

    return apply


def in_acceptance(apply: Callable[[Broken], None]) -> Callable[[Broken], None]:
    """Let the suite close on a WARN too, as an acceptance does; a nightly shows it."""

    def changed(night: Broken) -> None:
        apply(night)
        night.evidence("suite", lambda data: data["gate"].update(blocks=[*data["gate"]["blocks"], "WARN"]))

    return changed


def preempted(night: Broken) -> None:
    """The collectives of two nodes are preempted again, as on the eight nights before; all else runs every night."""
    lost = {"outcome": "infrastructure", "exit_code": None, "code": "preempted", "reason": "a job came"}
    for path in (night.run.evidence / "records").glob("nccl_tests-n2-*.json"):
        night.record(path.name.removesuffix(".a1.json"), **lost)
    night.evidence("references", lambda data: data["nights"].update({"nccl_tests-n2": 9}))


def linked(night: Broken) -> None:
    """The records lie elsewhere, where nothing seals them, and one is changed there."""
    folder, elsewhere = night.run.evidence / "records", night.folder / "elsewhere"
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere)


RECORDS = (
    broken("no record came back", lambda night: night.record_path(NCCL).unlink(), Code.NO_RECORD),
    broken("the record is half written", half_written, Code.UNREADABLE, Code.NO_RECORD),
    broken("the record lacks its digest of the spec", without("spec_sha256"), Code.UNREADABLE, Code.NO_RECORD),
    broken("the record has a foreign name", renamed, Code.UNPLANNED, Code.NO_RECORD),
    broken("a record that nobody planned", unplanned, Code.UNPLANNED),
    broken("an answered launch was run again", second_answer, Code.DUPLICATE),
    broken("the record points at another launch's output", elsewhere, Code.SCHEMA),
    record("it is of another run", Code.OLD_OUTPUT, run_id="20200101T000000Z-000000"),
    record("it is of another cluster", Code.WRONG_CLUSTER, cluster="other"),
    record("it answers another spec", Code.WRONG_PARAMETERS, spec_sha256="0" * 64),
    record("another command was run", Code.WRONG_PARAMETERS, argv=["true"]),
    record("it was measured and not simulated", Code.WRONG_PARAMETERS, origin="measured"),
    record("it ran on CPUs", Code.WRONG_HARDWARE, device="cpu"),
    broken("another host took part", another_host, Code.WRONG_HOST),
    broken("a host is missing", one_host_less, Code.WRONG_HOST),
    broken("a lost node was replaced by a free one", stood_in(None, cause=True), Code.REPLACED),
    broken("a node was replaced without a cause", stood_in(None, cause=False), Code.WRONG_HOST, Code.REPLACED),
    broken("a node that nobody knows stood in", stood_in("n0099", cause=True), Code.WRONG_HOST, Code.REPLACED),
    record("a number stood in for a node", Code.UNREADABLE, Code.NO_RECORD, replaced={"n0001": 7}),
    broken("its node was lost, and others held GPUs at the next try", tried_before("node_lost", then="busy"),
           Code.NODE_LOST),
    broken("a GPU was missing before it answered", tried_before("missing_gpu", then=None), Code.MISSING_GPU),
    broken("it ran out of memory before it answered", tried_before("out_of_memory", then=None), Code.OUT_OF_MEMORY),
    broken("it began before the run was made", shifted(started_at=-30, ended_at=-30), Code.OLD_OUTPUT),
    broken("one launch was taken up nine days after the others", taken_up_later(days=9), Code.OLD_OUTPUT),
    broken("one launch was taken up five hours after the others", taken_up_later(hours=5), Code.OLD_OUTPUT),
    broken("it ended after the seal", shifted(started_at=30, ended_at=30), Code.CLOCK_SKEW),
    broken("it ended before it began", shifted(ended_at=-1), Code.CLOCK_SKEW),
    record("it took longer than its clock says", Code.CLOCK_SKEW, duration_s=9999.0),
    record("it took nan seconds", Code.UNREADABLE, Code.NO_RECORD, duration_s=float("nan")),
    record("its times are no times", Code.SCHEMA, started_at="yesterday"),
    record("exit code 1 with good output", Code.BENCHMARK_FAILED, exit_code=1),
    record("exit code false with good output", Code.UNREADABLE, Code.NO_RECORD, exit_code=False),
    record("it exited well, and by a signal", Code.UNREADABLE, Code.NO_RECORD, signal=9),
    record("it names no hardware at all", Code.UNREADABLE, Code.NO_RECORD, hardware=None),
    record("a signal with good output", Code.BENCHMARK_FAILED, outcome="signalled", signal=9, exit_code=None),
    record("a time-out with good output", Code.TIMEOUT, outcome="timeout", exit_code=None, reason="hung"),
    record("it was never started", Code.BENCHMARK_FAILED, Code.INFRASTRUCTURE, Code.NO_MEASUREMENT,
           outcome="not_started", exit_code=None, reason="no such file"),
    record("it was stopped", Code.STOPPED, Code.INFRASTRUCTURE, outcome="stopped", exit_code=None, reason="SIGTERM"),
    record("its node was lost", Code.NODE_LOST, outcome="infrastructure", exit_code=None, code="node_lost",
           reason="node n0001 was lost"),
    broken("a rung was preempted nine nights in a row", preempted, Code.TOO_OLD),
    record("out of memory", Code.OUT_OF_MEMORY, outcome="infrastructure", exit_code=None, code="out_of_memory",
           reason="OOMKilled"),
    broken("one of eight GPUs is missing", gpus_of("after", lambda gpus: gpus.pop()), Code.MISSING_GPU),
    broken("one of eight GPUs was missing before", gpus_of("before", lambda gpus: gpus.pop()), Code.MISSING_GPU),
    broken("one GPU is listed twice for another", gpus_of("after", lambda gpus: gpus[1].update(gpus[0])),
           Code.MISSING_GPU),
    broken("one node of the group shows no GPU", gpus_of("after", lambda gpus: gpus.clear()), Code.MISSING_GPU),
    broken("no GPU answers after the launch", without_snapshot("after"), Code.MISSING_GPU),
    broken("a GPU was throttled by heat",
           told(clocks_throttle_reasons__active="0x0000000000000040", clocks__current__sm="1200"), Code.THROTTLED),
    broken("a PCIe link is narrow", told(pcie__link__width__current="8"), Code.WRONG_LINK_WIDTH),
    broken("a GPU has uncorrected memory errors", told(ecc__errors__uncorrected__volatile__total="3"),
           Code.DIAGNOSTIC_FAILED),
    broken("a GPU's memory rows wait to be remapped", told(remapped_rows__pending="1"), Code.DIAGNOSTIC_FAILED),
    broken("no GPU told its state, in an acceptance", in_acceptance(without_snapshot("before", "after")),
           Code.GPU_STATE_UNKNOWN),
    broken("no GPU told its state before, in an acceptance", in_acceptance(without_snapshot("before")),
           Code.GPU_STATE_UNKNOWN),
    broken("a GPU's throttle reasons are [N/A], in an acceptance",
           in_acceptance(told(clocks_throttle_reasons__active="[N/A]")), Code.GPU_STATE_UNKNOWN),
    broken("the records are a link to another folder", linked, Code.EVIDENCE_CHANGED),
    record("an unknown outcome", Code.UNREADABLE, Code.NO_RECORD, outcome="fine"),
    broken("a raw file is gone", lambda night: night.raw(NCCL, TABLE).unlink(), Code.EVIDENCE_CHANGED),
    broken("a raw file is not the one that was recorded", one_digit, Code.EVIDENCE_CHANGED),
    record("the record lists no raw file", Code.EVIDENCE_CHANGED, raw_files=[]),
    broken("another output lies beside those that were recorded",
           lambda night: night.raw(NCCL, "more.txt").write_text(night.raw(NCCL, TABLE).read_text()),
           Code.EVIDENCE_CHANGED),
)  # fmt: skip


def node_hidden(code: str) -> Callable[[Broken], None]:
    """A node is planned nowhere, and a gap explains it away."""

    def apply(night: Broken) -> None:
        node_lost(night)
        gap = {"code": code, "place": "node n0001", "reason": "fine", "node": "n0001", "benchmark": None,
               "node_count": None}  # fmt: skip
        night.evidence("plan", lambda data: data.update(gaps=[gap]))

    return apply


def seven_gpus(night: Broken) -> None:
    """The plan asks for seven of eight GPUs, and the record answers it."""

    def change(data: dict[str, Any]) -> None:
        spec = next(spec for spec in data["launches"] if spec["launch_id"] == NCCL)
        spec["accelerators_per_node"] = 7
        night.record(NCCL, spec_sha256=launch_spec(spec).digest())

    night.evidence("plan", change)


def one_node_twice(night: Broken) -> None:
    """One node plays both nodes of a group: its own NVLink is measured, and no fabric."""
    nodes = night.read_record(NCCL)["hosts"][:1] * 2

    def change(data: dict[str, Any]) -> None:
        spec = next(spec for spec in data["launches"] if spec["launch_id"] == NCCL)
        spec["nodes"] = nodes
        night.record(NCCL, spec_sha256=launch_spec(spec).digest(), hosts=nodes)

    night.evidence("plan", change)


def anothers_output(night: Broken) -> None:
    """A launch is to be read from the raw output of its neighbour."""

    def change(data: dict[str, Any]) -> None:
        spec = next(spec for spec in data["launches"] if spec["launch_id"] == NCCL)
        spec["outputs"] = [f"../{NCCL.replace('g0', 'g1')}.a1/*.txt"]
        night.record(NCCL, spec_sha256=launch_spec(spec).digest())

    night.evidence("plan", change)


PLANS = (
    broken("the plan lost a launch that ran", lambda night: night.evidence("plan", not_planned_any_more),
           Code.NO_RECORD, Code.UNPLANNED, where="plan"),
    broken("a launch was never planned", launch_lost, Code.NO_RECORD, where="plan"),
    broken("a node was never planned", node_lost, Code.NO_MEASUREMENT, where="plan"),
    broken("a node is not in the inventory", node_lost_from_inventory, Code.NO_MEASUREMENT, where="plan"),
    broken("a benchmark was never planned", benchmark_lost, Code.NO_MEASUREMENT, where="plan"),
    broken("a node count was never planned", rung_lost, Code.NO_MEASUREMENT, where="plan"),
    broken("the plan is for another cluster", lambda night: night.evidence("plan", lambda d: d.update(cluster="other")),
           Code.WRONG_CLUSTER, where="plan"),
    broken("the plan is of another run", another_runs_plan, Code.OLD_OUTPUT, Code.WRONG_PARAMETERS, where="plan"),
    broken("a node is explained away with the code ok", node_hidden("ok"), Code.SCHEMA, where="plan"),
    broken("a node is left out that nobody excluded", node_hidden("excluded"), Code.NO_MEASUREMENT, where="plan"),
    broken("seven of eight GPUs were asked for", seven_gpus, Code.WRONG_HARDWARE, where="plan"),
    broken("one node is named twice for two", one_node_twice, Code.SCHEMA, where="plan"),
    broken("a launch is read from another's output", anothers_output, Code.SCHEMA, where="plan"),
    broken("the profile has fewer nodes",
           lambda night: night.evidence("profile", lambda data: data["nodes"].update(simulated=3)),
           Code.WRONG_CLUSTER, where="plan"),
    broken("nothing was planned", lambda night: night.evidence("plan", lambda d: d.update(launches=[], batches=[])),
           Code.UNPLANNED, Code.NO_MEASUREMENT, where="plan"),
    Mutation(name="the plan is damaged", where="plan", error="plan.json",
             apply=lambda night: (night.run.evidence / "plan.json").write_text("{")),
)  # fmt: skip


def sealed_again(night: Broken) -> None:
    """The seal is broken, a record bettered, and the evidence sealed once more: every digest fits."""
    (night.run.evidence / "manifest.json").unlink()
    night.record(NCCL, reason="nothing happened")
    night.seal()


SEALS = (
    tampered("one digit of raw output changed", one_digit, Code.EVIDENCE_CHANGED),
    tampered("a record removed", lambda night: night.record_path(NCCL).unlink(), Code.EVIDENCE_CHANGED),
    tampered("a file added", lambda night: (night.run.evidence / "records" / "more.json").write_text("{}"),
             Code.EVIDENCE_CHANGED),
    tampered("the seal removed", lambda night: (night.run.evidence / "manifest.json").unlink(), error="unfinished"),
    tampered("the seal removed, a record changed and sealed again", sealed_again, Code.EVIDENCE_CHANGED),
    tampered("the seal emptied", lambda night: (night.run.evidence / "manifest.json").write_text("{}"),
             Code.EVIDENCE_CHANGED),
)  # fmt: skip
