"""Every printer is read by its reader and gives what was put in; whatever is printed says that it is simulated."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from plumbline.benchmarks._fio_windows import parse_log
from plumbline.readers import Completeness, Fact, Reading, Source, read
from plumbline.readers.reading import Status
from plumbline.simulation import printers
from plumbline.simulation.printers import dcgmi_diag, fio, hpl_mxp, mllog, nccl_tests, nvbandwidth, nvidia_smi, perftest


class Read:
    """What a reader made of a text."""

    def __init__(self, reader: str, text: str, folder: Path, **expect: Any) -> None:
        path = folder / "output"
        path.write_text(text)
        self.items = list(read(reader, Source.of_path(path), expect))
        [self.status] = [item for item in self.items if isinstance(item, Completeness)]
        self.facts = {item.name: item.value for item in self.items if isinstance(item, Fact)}

    def values(self, indicator: str, **params: Any) -> list[float]:
        return [
            item.value
            for item in self.items
            if isinstance(item, Reading)
            and item.indicator == indicator
            and all(item.params.get(key) == value for key, value in params.items())
        ]


def test_every_printer_is_tested_here() -> None:
    names = {module.name for module in pkgutil.iter_modules(printers.__path__)}
    assert names == {"dcgmi_diag", "fio", "hpl_mxp", "mllog", "nccl_tests", "nvbandwidth", "nvidia_smi", "perftest"}
    assert all(importlib.import_module(f"plumbline.simulation.printers.{name}").__doc__ for name in names)


# -- nccl-tests ------------------------------------------------------------------------------------------------------

# From nothing that rounding leaves of a bandwidth to times of six digits.
SIZES = [8 << (2 * power) for power in range(16)]
TIMES = [
    31.337,
    28.0,
    99.996,
    100.04,
    24.5,
    9999.994,
    9999.996,
    12345.67,
    99999.97,
    123456.7,
    *[2e6 + n for n in range(6)],
]


def a_table(**more: Any) -> nccl_tests.Table:
    return nccl_tests.Table(
        **{
            "operation": "all_reduce", "sizes": SIZES, "times_us": TIMES, "wrong": [0] * len(SIZES), "factor": 1.875,
            "devices": [(f"n{n:04d}", g, f"0000:{g:02x}:00", "NVIDIA H100") for n in (1, 2) for g in range(8)],
            "nccl": "2.26.2", "step_factor": 4, "warmup": 5, "iterations": 20, **more,
        }
    )  # fmt: skip


def test_nccl_tests_table(tmp_path: Path) -> None:
    table = a_table()
    found = Read("nccl_tests", nccl_tests.text(table), tmp_path, nranks=16)
    assert found.status.status is Status.COMPLETE, found.status
    for size, us, (algorithm, bus) in zip(SIZES, TIMES, table.rates, strict=True):
        for in_place in (False, True):
            at = {"message_bytes": size, "in_place": in_place}
            assert found.values("time", **at) == [float(nccl_tests._float(us, 7))]
            assert found.values("algorithm_bandwidth", **at) == [float(nccl_tests._float(algorithm, 6))]
            assert found.values("bus_bandwidth", **at) == [float(nccl_tests._float(bus, 6))]
            assert found.values("wrong", **at) == [0.0]
    assert found.facts["nranks"] == 16
    assert found.facts["nccl_version"] == "2.26.2"
    assert found.facts["hosts"] == ["n0001", "n0002"]


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        # getFloatStr of nccl-tests 2.17, src/util.cu.
        (0.0, 7, "   0.00"), (9999.5, 7, "9999.50"), (10000.0, 7, "10000.0"), (99999.4, 7, "99999.4"),
        (100000.0, 7, " 100000"), (9999999.0, 7, "9999999"), (1e7, 7, "1.0e+07"), (999.4, 6, "999.40"),
        (1000.0, 6, "1000.0"), (10000.0, 6, " 10000"), (1e6, 6, " 1e+06"),
    ],
)  # fmt: skip
def test_nccl_tests_numbers_are_as_wide_as_its_own(value: float, width: int, text: str) -> None:
    assert nccl_tests._float(value, width) == text


def test_nccl_tests_wrong_results(tmp_path: Path) -> None:
    found = Read("nccl_tests", nccl_tests.text(a_table(wrong=[0, 3] + [0] * 14)), tmp_path)
    assert found.status.status is Status.FAILED
    assert found.values("wrong", message_bytes=SIZES[1], in_place=False) == [3.0]
    assert found.facts["oob_status"] == "FAILED"


def test_nccl_tests_report(tmp_path: Path) -> None:
    """The smallest bandwidths have no digit that is printed: they are 0, and read as such."""
    table = a_table(times_us=[1e8, *TIMES[1:]])
    found = Read("nccl_tests", nccl_tests.report(table, "2026-03-01 02:00:00", "2026-03-01 02:01:00"), tmp_path)
    assert found.status.status is Status.COMPLETE, found.status
    for size, us, (algorithm, bus) in zip(SIZES, table.times_us, table.rates, strict=True):
        at = {"message_bytes": size, "in_place": False}
        assert found.values("time", **at) == [round(us, 6)]
        assert found.values("algorithm_bandwidth", **at) == [float(f"{algorithm:.6f}")]
        assert found.values("bus_bandwidth", **at) == [float(f"{bus:.6f}")]
    assert found.values("algorithm_bandwidth", message_bytes=8, in_place=False) == [0.0]
    assert found.facts["nranks"] == 16
    assert found.facts["nccl_version"] == "2.26.2"


def test_nccl_tests_report_has_the_keys_of_the_tool() -> None:
    """Names and nesting are those of nccl-tests 2.17, src/util.cu; one key is ours."""
    data = json.loads(nccl_tests.report(a_table(), "a", "b"))
    assert set(data) - {"simulated_by"} == {
        "version", "start_time", "args", "env", "nccl_version", "config", "results", "out_of_bounds",
        "average_bus_bandwidth", "errors", "end_time",
    }  # fmt: skip
    assert set(data["results"][0]) == {
        "size", "count", "type", "redop", "root", "out_of_place", "in_place", "actual_iterations", "experiment_name",
    }  # fmt: skip
    assert set(data["config"]["devices"][0]) == {
        "rank", "group", "pid", "hostname", "device", "device_hex", "device_info",
    }  # fmt: skip


# -- fio -------------------------------------------------------------------------------------------------------------


def a_client(**more: Any) -> fio.Client:
    return fio.Client(
        **{
            "job": "rand_read", "rw": "randread", "direction": "read", "block_bytes": 4096, "block_size": "4k",
            "size": 256 << 20, "iodepth": 16, "ioengine": "libaio", "runtime_s": 5.0, "ramp_s": 1.0, "ios": 123_457,
            "runtime_ms": 5000, "ended_ms": 1_772_330_407_000, "filename": "/mnt/x/client-0.dat", **more,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    "more", [{}, {"rw": "write", "direction": "write", "block_bytes": 1 << 20, "block_size": "1M", "ios": 7}]
)
def test_fio_report(more: dict[str, Any], tmp_path: Path) -> None:
    client = a_client(**more)
    found = Read("fio", fio.report(client), tmp_path, jobs=1)
    assert found.status.status is Status.COMPLETE, found.status
    assert found.values("iops") == [pytest.approx(client.ios / 5, rel=1e-9)]
    assert found.values("bandwidth") == [pytest.approx(round(client.moved_bytes / 5) / 1e6)]
    assert found.values("total_bytes") == [client.moved_bytes]
    assert found.values("completion_latency_mean") == [pytest.approx(client.mean_latency_ns / 1000)]


def test_fio_histogram_counts_every_io_in_buckets_of_fios_own() -> None:
    buckets, counts = fio.bins(123_457, 16, 5000)
    assert counts.sum() == 123_457
    mean = 16 * 5000 * 1e6 / 123_457
    for (part, _), bucket in zip(fio._SHAPE, buckets.tolist(), strict=True):
        assert abs(bucket - part * mean) <= part * mean / 64  # 64 buckets a power of two
        assert fio.bucket(bucket) == bucket


@pytest.mark.parametrize("latency", [1, 63, 127, 128, 129, 255, 256, 12345, 10**9])
def test_fio_buckets_are_those_of_stat_c(latency: int) -> None:
    """plat_val_to_idx and plat_idx_to_val of fio's stat.c with 6 bits, written out."""
    msb = latency.bit_length() - 1
    if msb <= 6:
        value = latency
    else:
        error_bits = msb - 6
        index = ((error_bits + 1) << 6) + ((latency >> error_bits) & 63)
        error_bits = (index >> 6) - 1
        value = int((1 << (error_bits + 6)) + ((index % 64) + 0.5) * (1 << error_bits))
    assert fio.bucket(latency) == value


def test_fio_bandwidth_log() -> None:
    client = a_client()
    entries = parse_log(fio.bandwidth_log(client), "log")
    assert len(entries) == 50
    assert entries[-1][0] == client.ended_ms
    assert sum(rate for _, rate in entries) * 1024 / 10 == pytest.approx(client.moved_bytes, rel=1e-4)


# -- the others ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [4.4e-4, 3.2e3])
def test_hpl_mxp(residual: float, tmp_path: Path) -> None:
    solve = hpl_mxp.Solve(
        n=400_000, nb=2048, p=4, q=2, sloppy="FP16", gflops=1_556_912.0, lu_gflops=2_740_249.0, residual=residual,
        host="n0001",
    )  # fmt: skip
    found = Read("hpl_mxp", hpl_mxp.text(solve), tmp_path, tests=1, n=400_000, nb=2048, p=4, q=2, precision="FP16")
    assert found.status.status is (Status.COMPLETE if residual < 16 else Status.FAILED)
    assert found.values("performance") == [1_556_900.0]
    assert found.values("performance_lu") == [2_740_200.0]
    assert found.values("residual") == [residual]
    assert found.values("iterations") == [hpl_mxp.ITERATIONS]
    assert found.values("time_lu") == [pytest.approx(solve.lu_s, abs=0.005)]
    assert found.values("time_solver") == [pytest.approx(solve.solver_s, abs=0.005)]


def a_run(**more: Any) -> str:
    steps = [1.4201234567, 1.43, 1.4199999999]
    run = mllog.Training(
        **{
            "begin_ms": 1_772_330_400_000, "batch": 256, "warmup": 1, "steps_s": steps,
            "losses": [4.2, 3.9876543, 3.5, 3.25], "evaluations": [(4, 2.1978)], "status": "success",
            "checkpoint_write_s": 2.1, "checkpoint_read_s": 1.4, **more,
        }
    )  # fmt: skip
    return mllog.header({"submission_benchmark": "gpt3", "seed": 7}, 1_772_330_390_000) + mllog.body(run)


def test_mllog(tmp_path: Path) -> None:
    found = Read("mllog", a_run(), tmp_path, runs=1, steps=3)
    assert found.status.status is Status.COMPLETE, found.status
    assert found.values("step_time") == [1.420123457, 1.43, 1.42]
    assert found.values("train_loss") == [4.2, 3.987654, 3.5, 3.25]
    assert found.values("eval_accuracy") == [2.1978]
    assert found.values("checkpoint_write_time") == [2.1]
    assert found.values("checkpoint_read_time") == [1.4]
    assert found.facts["submission_benchmark"] == "gpt3"
    [elapsed] = found.values("time_to_train")
    assert elapsed == (round((1.4201234567 + 1.43 + 1.4199999999) / 3 * 1000) + 1420 + 1430 + 1420 + 1) / 1000


def test_mllog_of_a_run_without_warm_up_takes_what_elapsed_ms_says(tmp_path: Path) -> None:
    steps = [1.4206, 1.4204, 1.5]
    found = Read("mllog", a_run(warmup=0, steps_s=steps, losses=[3.0, 2.0, 1.0], evaluations=[(3, 2.0)]), tmp_path)
    assert found.values("time_to_train") == [mllog.elapsed_ms(steps) / 1000]


def test_dcgmi_diag(tmp_path: Path) -> None:
    passed = Read("dcgmi_diag", dcgmi_diag.report("570.133.20", range(8), {}, []), tmp_path)
    assert passed.status.status is Status.COMPLETE, passed.status
    assert passed.facts["entities"] == {"GPU": [str(gpu) for gpu in range(8)]}
    failed = Read("dcgmi_diag", dcgmi_diag.report("570.133.20", range(8), {("pcie", 3): "x8 of x16"}, [5]), tmp_path)
    assert failed.status.status is Status.FAILED
    assert failed.facts["failed"] == ["pcie"]
    assert failed.facts["warnings"] == ["x8 of x16"]
    assert failed.facts["entities"] == {"GPU": ["0", "1", "2", "3", "4", "6", "7"]}
    assert failed.facts["driver"] == "570.133.20"


def test_nvbandwidth(tmp_path: Path) -> None:
    host, device = [55.12, 54.2, 27.61], [[None, 370.1, 371.25], [372.0, None, 373.0], [188.5, 187.25, None]]
    products = [(f"0000:{g:02x}:00", "NVIDIA H100 80GB HBM3") for g in range(3)]
    found = Read("nvbandwidth", nvbandwidth.text("570.133.20", "n0001", products, host, device), tmp_path)
    assert found.status.status is Status.COMPLETE, found.status
    assert found.values("bandwidth", test="host_to_device_memcpy_ce") == host
    assert found.values("bandwidth", test="device_to_device_memcpy_read_ce") == [
        value for row in device for value in row if value is not None
    ]
    assert len(found.facts["devices"]) == 3


def test_nvidia_smi(tmp_path: Path) -> None:
    gpus = [
        nvidia_smi.Gpu(
            index=i, uuid=f"GPU-sim-{i}", product="NVIDIA H100 80GB HBM3", driver="570.133.20",
            bus_id=f"00000000:{i:02X}:00.0", temperature_degc=60 + i, power_w=650.25 + i, sm_mhz=1980 - 300 * i,
            sm_max_mhz=1980, memory_total_mib=81559, link_width=16 >> i, throttle=i,
        )
        for i in range(3)
    ]  # fmt: skip
    found = Read("nvidia_smi_csv", nvidia_smi.csv(gpus), tmp_path, gpus=3, polls=1)
    assert found.status.status is Status.COMPLETE, found.status
    for name, put in (
        ("temperature", [60, 61, 62]), ("power", [650.25, 651.25, 652.25]), ("clock_sm", [1980, 1680, 1380]),
        ("clock_max_sm", [1980] * 3), ("fb_memory_total", [81559] * 3), ("pcie_link_width", [16, 8, 4]),
    ):  # fmt: skip
        assert found.values(name) == put
    masks = [int(device["clocks_event_reasons.active"], 16) for device in found.facts["devices"]]
    assert [bool(mask & 0x20) for mask in masks] == [False, True, False]  # software thermal slowdown
    assert [bool(mask & 0x4) for mask in masks] == [False, False, True]  # software power cap


def test_perftest(tmp_path: Path) -> None:
    rows = [(65536, 5000, 392.4, 391.21), (1 << 20, 5000, 393.4, 393.11)]
    found = Read("perftest", perftest.ib_write_bw("mlx5_0", rows), tmp_path)
    assert found.status.status is Status.COMPLETE, found.status
    assert found.values("bandwidth_peak") == [392.4, 393.4]
    assert found.values("bandwidth_average") == [391.21, 393.11]
    assert found.values("iterations") == [5000, 5000]
    assert found.facts["device"] == "mlx5_0"


# -- honesty ---------------------------------------------------------------------------------------------------------


def test_whatever_is_printed_says_that_it_is_simulated() -> None:
    """nvidia-smi's CSV has no place for a word of ours: what is made of it carries the record's origin."""
    texts = {
        "nccl_tests": nccl_tests.text(a_table()),
        "nccl_tests -J": nccl_tests.report(a_table(), "a", "b"),
        "fio": fio.report(a_client()),
        "mllog": a_run(),
        "dcgmi_diag": dcgmi_diag.report("570", range(8), {}, []),
        "nvbandwidth": nvbandwidth.text("570", "n0001", [("0000:19:00", "x")], [1.0], [[None]]),
        "perftest": perftest.ib_write_bw("mlx5_0", [(8, 1, 1.0, 1.0)]),
        "hpl_mxp": hpl_mxp.text(
            hpl_mxp.Solve(n=1, nb=1, p=1, q=1, sloppy="FP16", gflops=1, lu_gflops=2, residual=1, host="n")
        ),
    }
    for name, text in texts.items():
        assert text.startswith(printers.STAMP) or json.loads(text)["simulated_by"] == "plumbline", name
