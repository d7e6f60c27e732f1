"""Xid lines of kernel logs: counted once, never from a cut line; silence counts only where the log covers the time."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import DATA, outcome

from plumbline.errors import ConfigError, OutputError
from plumbline.readers import xid as reader
from plumbline.readers.reading import Status

FOLDER = DATA / "xid"
DMESG = (FOLDER / "dmesg.log").read_text()
DMESG_T = (FOLDER / "dmesg_T.log").read_text()
JOURNAL = (FOLDER / "journal.jsonl").read_text()
SYSLOG = (FOLDER / "syslog.log").read_text()


def test_events_devices_and_details():
    read = outcome(reader, DMESG)
    assert read.facts["events"] == 5
    assert read.facts["by_code"] == {"31": 2, "79": 1, "149": 1, "154": 1}
    assert read.facts["devices"] == ["0000:1b:00", "0000:5d:00"]
    assert read.value("xid_events", device="0000:1b:00", code=31) == 2
    first, _, link, action, lost = read.facts["xids"]
    assert first["pid"] == 4711
    assert first["process"] == "burn"
    assert first["message"].startswith("Ch 00000008")
    assert first["time"] == "901.112233"
    assert (link["subcode"], link["severity"], link["link"]) == ("NETIR_LINK_EVT", "Fatal", 8)
    assert action["message"].startswith("GPU recovery action changed")
    assert "pid" not in lost
    assert "process" not in lost
    assert read.facts["gpu_uuids"] == {"0000:1b:00": "GPU-0a1b2c3d-0000-0000-0000-000000000000"}


def test_an_sxid_is_one_event_with_its_severity_and_data_lines():
    read = outcome(reader, DMESG)
    assert read.facts["sxid_events"] == 1
    assert read.value("sxid_events", device="0000:c4:00.0", code=12028, severity="Non-fatal") == 1


def test_the_same_line_captured_twice_is_one_event_and_repeats_are_counted():
    read = outcome(reader, SYSLOG)
    assert read.facts["by_code"] == {"63": 1, "64": 2}
    assert read.value("amdgpu_ras_events", device="0000:c3:00.0", kind="uncorrectable", block="umc") == 1
    assert outcome(reader, DMESG + DMESG).facts["events"] == 5


@pytest.mark.parametrize(
    ("line", "device", "code"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", "0000:01:00", "79"),
        ("[    1.500000] NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", "14"),
        (
            "Jan  1 00:00:00 host kernel: [    9.000000] NVRM: Xid (PCI:0000:05:00): 43, pid=1, Ch 00000010",
            "0000:05:00",
            "43",
        ),
        ("3,4471,3023054882,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen", "0000:3b:00", "79"),
        (
            "kern  :err   : [   12.250000] NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained",
            "0000:01:00",
            "94",
        ),
        ("2026-01-31T04:00:00+00:00 host kernel: NVRM: Xid (PCI:0000:01:00) 31, Ch 00000010", "0000:01:00", "31"),
        (
            "<3>[   12.000000] NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406)",
            "0018:01:00",
            "149",
        ),
        ('{"MESSAGE":"NVRM: Xid (PCI:0000:01:00): 79","__REALTIME_TIMESTAMP":"1"}', "0000:01:00", "79"),
        (
            '{"log":"[    5.000000] NVRM: Xid (PCI:0000:01:00): 48, DBE \\"x\\"\\n","stream":"stdout"}',
            "0000:01:00",
            "48",
        ),
        ("[  5.000000] \x1b[31mNVRM: Xid (PCI:0000:01:00): 48, DBE\x1b[0m", "0000:01:00", "48"),
    ],
)
def test_every_wrapping(line, device, code):
    read = outcome(reader, line + "\n")
    assert read.facts["by_code"] == {code: 1}
    assert read.facts["devices"] == [device]


@pytest.mark.parametrize(
    "line",
    [
        "[    1.500000] NVRM: Xid error handling enabled",
        "[    1.500000] nvidia: see Xid 79 in the manual (PCI:0000:01:00): 79",
        "[    1.500000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15",
    ],
)
def test_a_line_that_only_talks_of_xids_is_none(line):
    assert outcome(reader, line + "\n").facts["events"] == 0


@pytest.mark.parametrize(
    "line", ["NVRM: Xid (PCI:0000:9b", "NVRM: Xid (PCI:0000:9b:00): 11", "NVRM: Xid (PCI:0000:9b:00): x"]
)
def test_a_cut_line_is_no_event_and_is_seen(line):
    read = outcome(reader, "[    1.500000] usb 1-1: new device\n[    1.600000] " + line)
    assert read.facts["events"] == 0
    assert read.values("xid_events") == []
    assert read.status is Status.INCOMPLETE


@pytest.mark.parametrize(
    ("text", "since", "until", "status"),
    [
        (DMESG_T, "2026-01-31T04:00:00Z", "2026-01-31T04:30:00Z", Status.COMPLETE),
        (DMESG_T, "2026-01-31T03:00:00Z", "2026-01-31T04:30:00Z", Status.INCOMPLETE),
        (DMESG_T, "2026-01-31T04:00:00Z", "2026-01-31T05:00:00Z", Status.INCOMPLETE),
        (JOURNAL, "2026-01-31T04:00:00Z", "2026-01-31T04:20:00+00:00", Status.COMPLETE),
        (JOURNAL, "2026-01-31T04:00:00Z", "2026-01-31T04:20:01Z", Status.INCOMPLETE),
        (DMESG, "2026-01-31T04:00:00Z", "2026-01-31T04:30:00Z", Status.INCOMPLETE),
    ],
)
def test_what_the_log_covers(text, since, until, status):
    assert outcome(reader, text, {"since": since, "until": until}).status is status


def test_a_gpu_off_the_bus_counts_without_an_xid_line():
    """The driver prints this as it loads; with the three lines of one message, only the first has a time."""
    off = (
        "[   12.308145] NVRM: The NVIDIA GPU 0000:b4:00.0\n"
        "               NVRM: (PCI ID: 10de:2335) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
        "[   12.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
    )
    read = outcome(reader, off, {"covers": True})
    assert read.value("xid_events", device="0000:b4:00", code=79) == 1
    assert read.facts["xids"][0]["time"] == "12.308145"
    assert outcome(reader, off + off).facts["events"] == 1
    xid = "[   11.000000] NVRM: Xid (PCI:0000:b4:00): 79, pid=1, GPU has fallen off the bus.\n"
    assert outcome(reader, xid + off).facts["by_code"] == {"79": 1}
    unsupported = off.replace("fallen off the bus and is not responding to commands", "no supported driver")
    assert outcome(reader, unsupported).facts["events"] == 0


def test_silence_is_no_health_unless_the_log_covers_the_time():
    quiet = "[    1.500000] usb 1-1: new device\n[    2.500000] EXT4-fs: mounted\n"
    read = outcome(reader, quiet)
    assert read.values("xid_events") == [0]
    assert read.status is Status.UNKNOWN
    assert outcome(reader, quiet, {"covers": "true"}).status is Status.COMPLETE
    assert outcome(reader, quiet[:-1], {"covers": True}).status is Status.INCOMPLETE
    lost = quiet + "Jan  1 00:00:00 h systemd-journald[5]: Missed 35 kernel messages\n"
    assert outcome(reader, lost, {"covers": True}).status is Status.INCOMPLETE


@pytest.mark.parametrize("expect", [{"covers": "perhaps"}, {"since": "yesterday"}])
def test_a_wrong_expectation_is_a_wrong_use(expect):
    with pytest.raises(ConfigError):
        outcome(reader, DMESG, expect)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "hello\nworld\n",
        "2026-01-31T04:00:00Z step 1\nJan 31 04:00:00 x y\n",
        "| GPU | Xid |\n",
        "\x00" * 1000,
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        outcome(reader, text)


@pytest.mark.parametrize("text", [DMESG, DMESG_T, JOURNAL, SYSLOG], ids=["dmesg", "dmesg -T", "journal", "syslog"])
def test_a_cut_log_counts_only_whole_events(text):
    data, full = text.encode(), outcome(reader, text)
    for at in range(len(data)):
        try:
            read = outcome(reader, data[:at], {"covers": True})
        except OutputError:
            continue
        for code, events in read.facts["by_code"].items():
            assert events <= full.facts["by_code"][code], at
        if read.facts["events"] < full.facts["events"] and not data[:at].endswith(b"\n"):
            assert read.status is Status.INCOMPLETE, at


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data):
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(SYSLOG)), st.integers(0, len(SYSLOG)))))
    junk = data.draw(st.binary(max_size=30))
    with contextlib.suppress(OutputError):
        outcome(reader, SYSLOG[:at].encode() + junk + SYSLOG[end:].encode())


def test_sniff():
    for text in (DMESG, DMESG_T, SYSLOG):
        assert reader.sniff(text) > 0.9
    assert reader.sniff(JOURNAL) >= 0.7
    assert reader.sniff("hello\nworld\n") == 0
