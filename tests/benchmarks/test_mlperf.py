"""The two training benchmarks: their commands, their rows, and what their log says against a run."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from tests.benchmarks.launches import launch as planned
from tests.benchmarks.launches import record

from plumbline.benchmarks import benchmark
from plumbline.benchmarks.benchmark import Placement
from plumbline.errors import ConfigError, OutputError
from plumbline.model import Code, Device, LaunchSpec, Origin, canonical_params
from plumbline.readers import Status
from plumbline.units import UNITS

NAMES = ("mlperf_gpt3", "mlperf_bert")
T0 = 1_767_225_600_000  # 2026-01-01T00:00:00Z
STEPS = [0.25 + 0.01 * (number % 5) for number in range(20)]


def place(nodes=2, per_node=1, launcher="local", origin=Origin.MEASURED) -> Placement:
    return Placement(
        launcher=launcher,
        device=Device.CPU if launcher == "local" else Device.GPU,
        origin=origin,
        nodes=tuple(f"n{i + 1}" for i in range(nodes)),
        accelerators_per_node=per_node,
        accelerator="cpu",
        fabric="loopback",
        python="/p/.venv-bench/bin/python",
        programs=Path("/p/docker/bench"),
        storage_dir="/p/storage",
    )


def launch(name: str, where: Placement | None = None, **given) -> LaunchSpec:
    return planned(benchmark(name), where or place(), **given)


def line(key, value, at, **metadata):
    data = {"namespace": "", "time_ms": T0 + round(at * 1000), "event_type": "POINT_IN_TIME"}
    return ":::MLLOG " + json.dumps({**data, "key": key, "value": value, "metadata": metadata})


def settings_of(spec: LaunchSpec) -> dict:
    """Write what the trainer logs of its configuration, worked out here anew from the plan."""
    params, ranks = spec.params, spec.node_count * spec.accelerators_per_node
    strong = params["scaling"] == "strong"
    to_target = params["mode"] == "to_target"
    found = {
        "submission_benchmark": spec.benchmark.removeprefix("mlperf_"),
        "proxy": True,
        "global_batch_size": params["global_batch"] if strong else params["batch_per_rank"] * ranks,
        "max_sequence_length": params["sequence"],
        "num_layers": params["layers"],
        "hidden_size": params["hidden"],
        "num_heads": params["heads"],
        "vocab_size": params["vocab"],
        "opt_base_learning_rate": params["learning_rate"],
        "num_nodes": spec.node_count,
        "num_ranks": ranks,
        "planned_steps": params["max_steps"] if to_target else params["steps"] + params["warmup_steps"],
        "planned_warmup_steps": params["warmup_steps"],
        "model_flops_per_token": 3_000_000.0,
    }
    found |= {name: params[name] for name in ("mode", "scaling", "parallelism", "precision", "eval_samples", "seed")}
    if to_target:
        found["target_accuracy"] = params["target"]
    return found


def log_of(spec: LaunchSpec, *, change=None, steps=STEPS, losses=None, status=None, after=(), start=5.0) -> str:
    """Write the trainer's log of a good run, or one that is changed in one way."""
    told = {**settings_of(spec), **(change or {})}
    lines = [line("init_start", None, start - 3)]
    lines += [line(key, value, start - 2) for key, value in told.items() if value is not None]
    lines.append(line("run_start", None, start))
    warmup = spec.params["warmup_steps"]
    losses = losses or [6.0 - 0.05 * number for number in range(warmup + len(steps))]
    for number, loss in enumerate(losses):
        value = {"reduced_train_loss": loss}
        if number >= warmup:
            value["train_step_time"] = steps[number - warmup]
        lines.append(line("tracked_stats", value, start + 1 + number / 10, step=number + 1))
    lines.append(line("eval_accuracy", 2.125, start + 9, samples_count=100))
    if spec.params["checkpoint"]:
        times = {"checkpoint_write_time": 0.5, "checkpoint_read_time": 0.25}
        lines += [line("tracked_stats", times, start + 9.5, step=99), line("checkpoint_restored", True, start + 9.5)]
    lines += [line(key, value, start + 9.6) for key, value in after]
    default = "completed" if spec.params["mode"] == "fixed_steps" else "success"
    lines.append(line("run_stop", None, start + 10, status=status or default))
    return "\n".join(lines) + "\n"


def measure(tmp_path: Path, spec: LaunchSpec, text: str, compliance=None):
    (tmp_path / "stdout").write_text(text)
    if compliance is not None:
        (tmp_path / "compliance.json").write_text(json.dumps(compliance))
    return benchmark(spec.benchmark).measure(spec, record(spec), tmp_path)


def report(spec, *keys):
    ruleset = {"mlperf_gpt3": "4.1.0", "mlperf_bert": "5.0.0"}[spec.benchmark]
    findings = [{"key": key, "message": f"rule {key}"} for key in keys]
    return {"ruleset": ruleset, "version": "4.1.68", "passed": not keys, "findings": findings}


def codes(measured):
    return [finding.code for finding in measured.findings]


def values(measured):
    return {value.indicator: value.value for value in measured.values}


# ---------------------------------------------------------------------------------------------------------------
# The command


@pytest.mark.parametrize("name", NAMES)
def test_the_command_carries_every_parameter(name):
    spec = launch(name, layers=3, hidden=96, heads=6, sequence=64, vocab=256, batch_per_rank=2, seed=5, steps=25)
    arguments = dict(zip(spec.argv[3::2], spec.argv[4::2], strict=False))
    assert spec.argv[:3] == ("/p/.venv-bench/bin/python", "-m", "plumbline_bench.trainer")
    wanted = {
        "--benchmark": name.removeprefix("mlperf_"), "--nodes": "2", "--ranks-per-node": "1", "--device": "cpu",
        "--layers": "3", "--hidden": "96", "--heads": "6", "--sequence": "64", "--vocab": "256",
        "--batch-per-rank": "2", "--seed": "5", "--steps": "25", "--checkpoint-dir": "/p/storage",
    }  # fmt: skip
    assert {key: arguments[key] for key in wanted} == wanted
    assert "--create-checkpoint-dir" in spec.argv
    assert "--target" not in spec.argv
    assert spec.env == {"PYTHONPATH": "/p/docker/bench"}
    assert spec.expect == {"runs": 1, "steps": 25}


def test_modes_scaling_and_several_hosts():
    spec = launch("mlperf_gpt3", mode="to_target", scaling="strong", global_batch=64, target=3)
    assert spec.argv[spec.argv.index("--target") + 1] == "3.0"
    assert spec.argv[spec.argv.index("--global-batch") + 1] == "64"
    assert "--batch-per-rank" not in spec.argv
    spec = launch("mlperf_gpt3", place(nodes=2, per_node=8, launcher="kubernetes"), checkpoint=False)
    assert spec.argv[2:8] == ("plumbline_bench.trainer.hosts", "--hosts", "n1,n2", "--per-node", "8", "--")
    assert spec.argv[spec.argv.index("--device") + 1] == "cuda"
    assert "--checkpoint-dir" not in spec.argv
    spec = launch("mlperf_gpt3", place(nodes=1, per_node=8, launcher="kubernetes"))
    assert spec.argv[2] == "plumbline_bench.trainer"
    assert "--create-checkpoint-dir" not in spec.argv


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"hidden": 100, "heads": 3}, "multiple of heads"),
        ({"scaling": "strong", "global_batch": 7}, "divided evenly"),
        ({"eval_samples": 1}, "eval_samples"),
        ({"steps": 5}, "at least 20"),
        ({"mode": "to_targt"}, "one of"),
        ({"layrs": 2}, "did you mean 'layers'"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(given, word):
    with pytest.raises(ConfigError, match=word):
        launch("mlperf_gpt3", **given)


# ---------------------------------------------------------------------------------------------------------------
# Rows


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["fixed_steps", "to_target"])
@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_a_good_run_yields_exactly_what_is_expected(tmp_path, name, mode, scaling):
    spec = launch(name, mode=mode, scaling=scaling)
    measured = measure(tmp_path, spec, log_of(spec), report(spec))
    asked = {(row.indicator, canonical_params(row.params)) for row in benchmark(name).expected(spec)}
    given = [(value.indicator, canonical_params(value.params)) for value in measured.values]
    assert sorted(given) == sorted(asked)
    assert codes(measured) == []
    assert [item.status for item in measured.completeness] == [Status.COMPLETE]
    known = {item.name: item for item in benchmark(name).INDICATORS}
    for value in measured.values:
        assert value.unit == known[value.indicator].unit
        assert value.unit in UNITS


def test_the_numbers(tmp_path):
    spec = launch("mlperf_gpt3", mode="to_target")
    found = values(measure(tmp_path, spec, log_of(spec), report(spec)))
    median = statistics.median(STEPS)
    assert found["step_time"] == median == 0.27
    assert found["step_time_spread"] == pytest.approx(0.04 / 0.27)
    assert found["tokens_per_second_per_rank"] == pytest.approx(8 * 128 / 0.27)
    assert found["throughput"] == pytest.approx(2 * 8 * 128 / 0.27)
    assert found["model_flops"] == pytest.approx(3e6 * 8 * 128 / 0.27 / 1e9)
    assert found["final_loss"] == pytest.approx(6.0 - 0.05 * 20)
    assert found["loss_drop"] == pytest.approx(1.0)
    assert found["final_accuracy"] == 2.125
    assert (found["checkpoint_write_time"], found["checkpoint_read_time"]) == (0.5, 0.25)
    assert found["checkpoint_restored"] == 1
    assert found["time_to_train"] == 10.0
    spec = launch("mlperf_bert", scaling="strong", global_batch=32)
    found = values(measure(tmp_path, spec, log_of(spec)))
    assert found["sequences_per_second_per_rank"] == pytest.approx(16 / 0.27)
    assert found["throughput"] == pytest.approx(32 / 0.27)
    assert "time_to_train" not in found


def test_rungs_differ_in_no_parameter_of_their_rows():
    for scaling in ("weak", "strong"):
        rungs = [launch("mlperf_gpt3", place(nodes=nodes), scaling=scaling) for nodes in (1, 2, 4)]
        rows = [list(benchmark("mlperf_gpt3").expected(spec)) for spec in rungs]
        assert rows[0] == rows[1] == rows[2]


# ---------------------------------------------------------------------------------------------------------------
# What the log says against a run

_CHANGES = {
    "submission_benchmark": "bert", "proxy": None, "global_batch_size": 8, "max_sequence_length": 64, "num_layers": 1,
    "hidden_size": 64, "num_heads": 2, "vocab_size": 64, "opt_base_learning_rate": 1.0, "num_nodes": 1, "num_ranks": 1,
    "planned_steps": 22, "planned_warmup_steps": 2, "mode": "to_target", "scaling": "strong", "parallelism": "fsdp",
    "precision": "bf16", "eval_samples": 64, "seed": 2,
}  # fmt: skip


@pytest.mark.parametrize("key", _CHANGES)
def test_a_run_with_another_setting_than_asked_is_found(tmp_path, key):
    spec = launch("mlperf_gpt3")
    measured = measure(tmp_path, spec, log_of(spec, change={key: _CHANGES[key]}))
    assert codes(measured) == [Code.WRONG_PARAMETERS]
    assert key in measured.findings[0].message


def test_every_setting_that_is_compared_is_tried():
    assert set(_CHANGES) == set(settings_of(launch("mlperf_gpt3"))) - {"model_flops_per_token"}


def test_fewer_steps_than_asked_are_incomplete(tmp_path):
    spec = launch("mlperf_gpt3")
    measured = measure(tmp_path, spec, log_of(spec, steps=STEPS[:19]))
    assert measured.completeness[0].status is Status.INCOMPLETE


def test_losses_that_are_no_numbers_or_do_not_fall(tmp_path):
    spec = launch("mlperf_gpt3")
    losses = [6.0] * 22 + [float("nan")]
    measured = measure(tmp_path, spec, log_of(spec, losses=losses))
    assert codes(measured) == [Code.NOT_A_NUMBER]
    assert not {"final_loss", "loss_drop"} & set(values(measured))
    measured = measure(tmp_path, spec, log_of(spec, losses=[6.0 + number / 10 for number in range(23)]))
    assert codes(measured) == [Code.NOT_CONVERGED]
    assert values(measured)["loss_drop"] < 0


def test_a_checkpoint_that_differs_or_cannot_be_written(tmp_path):
    spec = launch("mlperf_gpt3")
    text = log_of(spec).replace('"checkpoint_restored", "value": true', '"checkpoint_restored", "value": false')
    measured = measure(tmp_path, spec, text)
    assert codes(measured) == [Code.CHECKPOINT_DIFFERS]
    assert values(measured)["checkpoint_restored"] == 0
    kept = log_of(spec, after=[("checkpoint_error", "OSError: no space")]).splitlines()
    kept = [item for item in kept if "checkpoint_write_time" not in item and "checkpoint_restored" not in item]
    measured = measure(tmp_path, spec, "\n".join(kept) + "\n")
    assert codes(measured) == [Code.STORAGE_UNAVAILABLE]
    assert "checkpoint_write_time" not in values(measured)
    assert "step_time" in values(measured)


def test_a_target_that_was_not_reached(tmp_path):
    spec = launch("mlperf_bert", mode="to_target")
    measured = measure(tmp_path, spec, log_of(spec, status="aborted"), report(spec))
    assert codes(measured) == [Code.NOT_CONVERGED]
    assert measured.completeness[0].status is Status.ABORTED
    assert "time_to_train" not in values(measured)


def test_a_log_of_another_day_and_steps_longer_than_the_run(tmp_path):
    spec = launch("mlperf_gpt3")
    assert codes(measure(tmp_path, spec, log_of(spec, start=-86_400))) == [Code.OLD_OUTPUT]
    assert codes(measure(tmp_path, spec, log_of(spec, start=50.0))) == []
    assert codes(measure(tmp_path, spec, log_of(spec, start=200.0))) == [Code.OLD_OUTPUT]
    assert codes(measure(tmp_path, spec, log_of(spec, steps=[2.0] * 20))) == [Code.IMPOSSIBLE_VALUE]
    too_long = codes(measure(tmp_path, spec, log_of(spec, steps=[9.0] * 20)))
    assert too_long == [Code.OLD_OUTPUT, Code.IMPOSSIBLE_VALUE]
    simulated = launch("mlperf_gpt3", place(launcher="simulated", origin=Origin.SIMULATED))
    assert codes(measure(tmp_path, simulated, log_of(simulated, start=-86_400))) == [Code.OLD_OUTPUT]


def test_findings_of_the_checker(tmp_path):
    spec = launch("mlperf_gpt3", mode="to_target")
    expected = ("max_sequence_length", "opt_base_learning_rate", "init_checkpoint_step", "eval_accuracy")
    measured = measure(tmp_path, spec, log_of(spec), report(spec, *expected))
    assert codes(measured) == [Code.EXPECTED_FINDING]
    measured = measure(tmp_path, spec, log_of(spec), report(spec, "seed", expected[0]))
    assert codes(measured) == [Code.UNEXPECTED_FINDING, Code.EXPECTED_FINDING]
    measured = measure(tmp_path, spec, log_of(spec), {**report(spec), "ruleset": "5.1.0"})
    assert codes(measured) == [Code.UNEXPECTED_FINDING]
    measured = measure(tmp_path, spec, log_of(spec), {**report(spec), "passed": False})
    assert codes(measured) == [Code.UNEXPECTED_FINDING]
    bert = launch("mlperf_bert", mode="to_target")
    measured = measure(tmp_path, bert, log_of(bert), report(bert, "max_sequence_length"))
    assert codes(measured) == [Code.UNEXPECTED_FINDING]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"findings": 3, "ruleset": "4.1.0", "passed": true}'])
def test_a_report_of_the_checker_that_cannot_be_read(tmp_path, text):
    spec = launch("mlperf_gpt3", mode="to_target")
    (tmp_path / "compliance.json").write_text(text)
    with pytest.raises(OutputError):
        measure(tmp_path, spec, log_of(spec))


def test_absent_files(tmp_path):
    spec = launch("mlperf_gpt3", mode="to_target")
    with pytest.raises(OutputError, match="absent"):
        benchmark("mlperf_gpt3").measure(spec, record(spec), tmp_path)
    with pytest.raises(OutputError, match="absent"):
        measure(tmp_path, spec, log_of(spec))


def test_a_log_cut_anywhere_never_yields_a_complete_measurement_with_fewer_rows(tmp_path):
    spec = launch("mlperf_gpt3")
    data = log_of(spec)
    whole = values(measure(tmp_path, spec, data))
    for cut in range(0, len(data), 97):
        try:
            measured = measure(tmp_path, spec, data[:cut])
        except OutputError:
            continue
        if measured.completeness[0].status is Status.COMPLETE:
            assert values(measured) == whole
