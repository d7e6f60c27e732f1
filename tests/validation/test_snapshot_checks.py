"""What GPUs must show around a launch, and what becomes of it when they don't."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plumbline.model import Code, Contends, Device, LaunchSpec, Origin, Outcome, RunRecord
from plumbline.validation.snapshot_checks import REQUIRED, snapshot_problems

GPU = {
    "clocks_throttle_reasons.active": "0x0000000000000004", "clocks.current.sm": "1980", "clocks.max.sm": "1980",
    "pcie.link.width.current": "16", "pcie.link.width.max": "16", "ecc.errors.uncorrected.volatile.total": "0",
}  # fmt: skip


def spec(*nodes: str, device: Device = Device.GPU) -> LaunchSpec:
    return LaunchSpec(
        launch_id="made-up", run_id="r", cluster="c", benchmark="b", benchmark_version="1", reader="none",
        node_count=len(nodes), wave=1, group=0, repeat=1, nodes=nodes, accelerators_per_node=4, device=device,
        origin=Origin.MEASURED, contends=Contends.NONE, params={}, argv=("true",), timeout_s=1.0,
    )  # fmt: skip


def record(asked: LaunchSpec, snapshots: Any, **more: Any) -> RunRecord:
    found = RunRecord(
        launch_id=asked.launch_id, run_id="r", cluster="c", attempt=1, spec_sha256="", outcome=Outcome.EXITED,
        exit_code=0, signal=None, reason="", argv=asked.argv, hosts=asked.nodes, started_at="", ended_at="",
        duration_s=1.0, origin=asked.origin, device=asked.device, snapshots=snapshots, raw_dir="raw/x",
    )  # fmt: skip
    return replace(found, **more)


def gpus(count: int = 4, node: str | None = None, **first: Any) -> list[dict[str, Any]]:
    where = f"{node}/" if node else ""
    found: list[dict[str, Any]] = [{**GPU, "index": f"{where}{i}", "uuid": f"GPU-{node}-{i}"} for i in range(count)]
    if found:
        found[0] |= {key.replace("__", "."): value for key, value in first.items()}
    return found


def problems(before: Any, after: Any, asked: LaunchSpec | None = None, **more: Any) -> list[tuple[Code, str]]:
    asked = asked or spec("n1")
    snapshots = {"before": {"gpus": before}, "after": {"gpus": after}}
    return list(snapshot_problems(asked, record(asked, snapshots, **more)))


def codes(*arguments: Any, **more: Any) -> list[Code]:
    return [code for code, _ in problems(*arguments, **more)]


def test_sound_gpus_say_nothing():
    assert problems(gpus(), gpus()) == []
    assert problems([{"index": str(i)} for i in range(4)], gpus()) == []  # before, only that they are there


def test_a_cpu_launch_needs_no_gpu():
    asked = spec("n1", device=Device.CPU)
    assert list(snapshot_problems(asked, record(asked, {}))) == []


@pytest.mark.parametrize("snapshots", [{}, None, [], {"before": None, "after": {"gpus": None}}, {"after": {}},
                                       {"before": {"gpus": "8"}, "after": {"gpus": [1, 2]}}])  # fmt: skip
def test_without_any_snapshot_the_state_is_unknown(snapshots: Any):
    asked = spec("n1")
    [(code, message)] = snapshot_problems(asked, record(asked, snapshots))
    assert code is Code.GPU_STATE_UNKNOWN
    assert "before and after" in message


def test_only_before_is_a_loss_and_only_after_unknown():
    assert codes(gpus(), []) == [Code.MISSING_GPU]
    [(code, message)] = problems([], gpus())
    assert (code, "before the launch" in message) == (Code.GPU_STATE_UNKNOWN, True)


@pytest.mark.parametrize("outcome", [Outcome.INFRASTRUCTURE, Outcome.NOT_STARTED, Outcome.STOPPED])
def test_a_launch_that_never_ran_has_no_state_to_show(outcome: Outcome):
    assert codes([], [], outcome=outcome) == []
    assert codes(gpus(3), [], outcome=outcome) == [Code.MISSING_GPU]


def test_every_gpu_counts_once_before_and_after():
    assert codes(gpus(), gpus(3)) == [Code.MISSING_GPU]
    assert codes(gpus(3), gpus()) == [Code.MISSING_GPU]
    assert codes(gpus(), [*gpus(3), gpus(1)[0]]) == [Code.MISSING_GPU]


def test_every_node_of_a_group_shows_its_gpus():
    asked = spec("n1", "n2")
    both = [*gpus(node="n1"), *gpus(node="n2")]
    assert problems(both, both, asked) == []
    one = problems(both, gpus(node="n1"), asked)
    assert [code for code, _ in one] == [Code.MISSING_GPU]
    assert "n2: 0 of 4" in one[0][1]
    assert codes(both, [*gpus(node="n1"), *gpus(node="n3")], asked) == [Code.MISSING_GPU]
    assert codes(both, gpus(8), asked) == [Code.MISSING_GPU] * 2  # nobody says whose they are


def test_what_is_wrong_names_node_and_gpu_and_is_said_once():
    asked = spec("n1", "n2")
    hot = [*gpus(node="n1"), *gpus(node="n2", clocks_throttle_reasons__active="0x0000000000000048")]
    [(code, message)] = problems(hot, hot, asked)
    assert code is Code.THROTTLED
    assert message.startswith("GPU n2/0: hardware slowdown, hardware thermal slowdown")


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ({"pcie__link__width__current": "8"}, Code.WRONG_LINK_WIDTH),
        ({"ecc__errors__uncorrected__volatile__total": "2"}, Code.DIAGNOSTIC_FAILED),
        ({"remapped_rows__pending": "1"}, Code.DIAGNOSTIC_FAILED),
        ({"remapped_rows__pending": "Yes"}, Code.DIAGNOSTIC_FAILED),
        ({"remapped_rows__failure": "1"}, Code.DIAGNOSTIC_FAILED),
    ],
)
def test_a_fault_is_seen_on_either_side(cells: dict[str, str], code: Code):
    assert codes(gpus(**cells), gpus()) == codes(gpus(), gpus(**cells)) == [code]


def test_rows_that_were_remapped_are_a_repair():
    assert problems(gpus(), gpus(remapped_rows__correctable="3", remapped_rows__pending="0")) == []


@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize(
    "cell",
    ["[N/A]", "", "[Not Supported]", "nan", "inf", "-1", "1e3", "\u0661\u0666", None, [16], "0xfffffffffffffffff"],
)
def test_a_field_without_a_number_is_unknown_and_never_sound(field: str, cell: Any):
    [(code, message)] = problems(gpus(), gpus(**{field.replace(".", "__"): cell}))
    assert code is Code.GPU_STATE_UNKNOWN
    assert field in message
    bare = [{key: value for key, value in gpu.items() if key != field} for gpu in gpus()]
    [(code, message)] = problems(gpus(), bare)
    assert (code, "GPU 0 and 3 more" in message) == (Code.GPU_STATE_UNKNOWN, True)
