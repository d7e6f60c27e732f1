"""What launchers, collectors and NCCL itself put before, between and into the rows of nccl-tests."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from tests.readers import nccl_text as text
from tests.readers.infra_outputs import parts

from plumbline.readers import Status, nccl_tests

parse = partial(parts, nccl_tests)


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", " 0: ", "[0] ", "node12: ", "gpu-07.cluster.local: ",
        "2026-01-01T00:00:00.000000000Z stdout F ", "2026-01-01T00:00:00.123Z ", "[pod/nccl-launcher-x/mpi] ",
        "2026-01-01T00:00:00.0Z stdout F [1,0]<stdout>:", "Fri Jan  2 03:04:05 2026[1,0]<stdout>:", "    ",
    ],
)  # fmt: skip
def test_prefixes_of_launchers_and_collectors(prefix):
    whole = text.output("2026", ranks=16)
    marked = "".join(prefix + line for line in whole.splitlines(keepends=True))
    readings, facts, status = parse(marked)
    expected, plain, _ = parse(whole)
    assert status.status is Status.COMPLETE, status.reason
    assert readings == expected
    assert facts == plain


def test_tags_within_a_row():
    whole = text.output("2026", ranks=16)
    lines = ["[0] " + line for line in whole.splitlines(keepends=True)]
    rows = [at for at, line in enumerate(lines) if " float " in line]
    assert rows
    for at in rows:  # the root is followed by the columns out of place, these by the ones in place
        lines[at] = re.sub(r"( -1| 0)(?=  )", r"\1[0] ", lines[at])
    assert lines[rows[0]].count("[0] ") > 1
    assert parse("".join(lines)) == parse(whole)


def test_json_lines_of_a_collector():
    whole = text.output("2026")
    lines = [
        json.dumps({"log": line, "stream": "stdout", "time": "2026-01-01T00:00:00Z"}) for line in whole.splitlines(True)
    ]
    assert parse("\n".join(lines) + "\n")[0] == parse(whole)[0]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_and_colours(end):
    whole = text.output("2026")
    coloured = whole.replace("# Out", "\x1b[32m# Out").replace("\n", f"\x1b[0m{end}")
    assert parse(coloured.encode())[0] == parse(whole)[0]
    assert parse(coloured.encode())[2].status is Status.COMPLETE


def test_nccl_lines_between_rows_and_what_they_tell():
    log = [
        text.NCCL + "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        text.NCCL + "Using network IB",
        "NCCL version 2.21.5+cuda12.4",
        text.NCCL + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        text.NCCL + "Channel 00 : 0[0] -> 3[3] via SHM/direct/direct",
        text.NCCL + "Channel 01/0 : 7[7] -> 8[0] [send] via NET/IB/3/GDRDMA",
        text.NCCL + "Channel 01/0 : 15[7] -> 0[0] [receive] via NET/IB/3/GDRDMA",
        text.NCCL + "NVLS comm 0x55 headRank 0 nHeads 8 buffSize 4194304",
        text.NCCL + "AllReduce: 1048576 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
        "node2:99:99 [1] ibvwrap.cc:94 NCCL WARN Call to ibv_modify_qp failed",
    ]
    lines = text.output("2022").splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["4194304"])
    readings, facts, status = parse("\n".join(lines[:at] + log + lines[at:]) + "\n")
    assert status.status is Status.COMPLETE, status.reason
    assert readings == parse(text.output("2022"))[0]
    assert facts["transports"] == ["NET/IB", "NVLS", "P2P/CUMEM", "SHM"]
    assert facts["networks"] == ["IB"]
    assert facts["gpu_direct"] == "all"
    assert facts["nccl_version"] == "2.21.5+cuda12.4"
    assert facts["algorithms"] == ["NVLS/SIMPLE"]
    assert facts["warnings"] == ["NCCL WARN Call to ibv_modify_qp failed"]


@pytest.mark.parametrize(
    ("via", "name"),
    [
        ("[send] via NET/Socket/0", "NET/Socket"),
        ("[send] via NET/AWS Libfabric/0/GDRDMA", "NET/AWS Libfabric"),
        ("[send] via NET/Libfabric/3/GDRDMA", "NET/Libfabric"),
        ("[receive] via NET/IB/0/GDRDMA/Shared", "NET/IB"),
        ("[send] via NET/IBext_v8/1(4)/GDRDMA", "NET/IBext_v8"),
        ("via P2P/IPC/read", "P2P/IPC"),
        ("via P2P/direct pointer comm 0x7f nRanks 02", "P2P/direct pointer"),
        ("via direct shared memory", "SHM"),
        ("[send] via COLLNET/SHARP/0/GDRDMA", "COLLNET/SHARP"),
    ],
)
def test_transport_names_of_all_versions(via, name):
    whole = text.NCCL + f"Channel 00 : 7[7] -> 8[0] {via}\n" + text.output("2022")
    _, facts, _ = parse(whole)
    assert facts["transports"] == [name]
    expected = Status.COMPLETE if name == "NET/IB" else Status.INCOMPLETE
    assert parse(whole, transport="NET/IB")[2].status is expected


@pytest.mark.parametrize("generation", ["2022", "2026"])
@pytest.mark.parametrize("host", ["node1", "10-0-0-1"])
def test_rows_interrupted_by_nccl_lines(generation, host):
    """With NCCL_DEBUG_SUBSYS=COLL, NCCL prints while a row is half printed, on the same line."""
    lines = text.output(generation).replace("node1", host).splitlines()
    edges = (52, 84) if generation == "2022" else (52, 85)
    spoken = f"{host}:123:456 [0] NCCL INFO AllReduce: opCount 5 sendbuff 0x7f1 count 262144"
    torn = []
    for line in lines:
        if line[:1] == " ":
            first, second = edges
            torn += [line[:first] + spoken, spoken, line[first:second] + spoken, line[second:]]
        else:
            torn.append(line)
    readings, _, status = parse("\n".join(torn) + "\n")
    assert status.status is Status.COMPLETE, status.reason
    assert readings == parse(text.output(generation).replace("node1", host))[0]
