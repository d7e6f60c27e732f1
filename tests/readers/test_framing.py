"""What stands before a tool's line is told from the line itself."""

import pytest

from plumbline.readers.framing import join_parts, peel, strip_document, strip_prefix

ROW = "     1048576        262144     float     sum      -1    123.4    8.50   15.93      0"


@pytest.mark.parametrize(
    ("prefix", "origin"),
    [
        ("", ""),
        ("2026-01-01T00:00:00.000000000Z stdout F ", ""),
        ("2026-01-01T00:00:00.123456789+02:00 stderr F ", ""),
        ("2026-01-01T00:00:00.000000000Z ", ""),
        ("[2026-01-01 00:00:00] ", ""),
        ("2026-01-01 00:00:00,123 ", ""),
        ("Jan  1 00:00:00 ", ""),
        ("[1,0]<stdout>:", "[1,0]"),
        ("[1,12]<stderr>: ", "[1,12]"),
        ("Fri Jan  2 03:04:05 2026[1,0]<stdout>:", "[1,0]"),
        ("2026-01-01 00:00:00[1,0]<stdout>:", "[1,0]"),
        ("[prterun-node1-12@1,0]<stdout>: ", "[prterun-node1-12@1,0]"),
        ("[prterun-node1-12@1,0][node1:123]<stdout>: ", "[prterun-node1-12@1,0][node1:123]"),
        ("0: ", "0"),
        ("  7: ", "7"),
        ("[0] ", "[0]"),
        ("[default3]:", "[default3]:"),
        ("[rank0]: ", "[rank0]:"),
        ("[pod/nccl-launcher-x7/mpi] ", "[pod/nccl-launcher-x7/mpi]"),
        ("2026-01-01T00:00:00Z stdout F 0: ", "0"),
        ("[pod/a/b] [1,0]<stdout>:", "[pod/a/b] [1,0]"),
        ("    [1,0]<stdout>:", "[1,0]"),
        ("> ", ""),
        ("> > 0: ", "0"),
    ],
)
def test_prefixes(prefix, origin):
    found, text = peel(prefix + ROW)
    assert found == origin
    assert text in (ROW, ROW[1:])  # some launchers put a space after their tag, some do not
    assert strip_prefix(prefix + "# nThread 1") == "# nThread 1"
    assert strip_prefix(prefix) in ("", prefix, prefix.strip())


@pytest.mark.parametrize(
    "line",
    [
        ROW,
        "# Avg bus bandwidth    : 330.1 ",
        "node1:123:456 [0] NCCL INFO Bootstrap : Using eth0",
        "[0] NCCL INFO odd",
        "[  123.456789] NVRM: Xid (PCI:0000:9b:00): 119",
        "seqread: (g=0): rw=read, bs=(R) 1024KiB",
        "GPU 0: OK",
        "Device: 0, NVIDIA A100",
        '{"fio version" : "fio-3.33"}',
        '{"log": "no collector"}',
        '{"log": 3, "stream": "stdout"}',
        '{"log": "torn", "stream": ',
        "[1, 2, 3]",
        "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]",
        "12:30 is a time",
        "T/V                N    NB     P     Q               Time                 Gflops",
        "WR11C2R4      100000   192     2     2             123.45              5.4e+03",
        "a | b",
        "",
        " ",
    ],
)
def test_a_tools_own_words_stay(line):
    assert peel(line) == ("", line)


def test_hosts_only_when_asked_for():
    assert peel("node12: " + ROW) == ("", "node12: " + ROW)
    assert peel("node12: " + ROW, hosts=True) == ("node12", ROW)
    assert peel("rack-1.node-2.example: # x", hosts=True) == ("rack-1.node-2.example", "# x")
    assert peel("node[1-4,7]: # x", hosts=True) == ("node[1-4,7]", "# x")
    assert peel(ROW, hosts=True) == ("", ROW)


def test_json_objects_of_collectors():
    assert strip_prefix('{"log":"# size\\n","stream":"stdout","time":"2026-01-01T00:00:00Z"}') == "# size"
    assert strip_prefix('{"message": "[1,0]<stdout>:  12", "@timestamp": "2026"}') == " 12"


def test_pieces_of_one_line_are_joined_per_stream():
    lines = [
        '2026-01-01T00:00:00Z stdout P {"a":',
        "2026-01-01T00:00:00Z stderr F warning",
        "2026-01-01T00:00:01Z stdout P  1,",
        '2026-01-01T00:00:02Z stdout F "b": 2}',
        "2026-01-01T00:00:03Z stdout P torn",
    ]
    assert [strip_prefix(line) for line in join_parts(lines)] == ["warning", '{"a": 1,"b": 2}', "torn"]
    assert strip_document('0: {\r\n0:   "a": 1\n0: }') == '{\n  "a": 1\n}'
