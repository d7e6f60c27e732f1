"""p2pBandwidthLatencyTest: six matrices, their diagonals left out, damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import check_cuts, outcome

from plumbline.errors import ConfigError, OutputError
from plumbline.readers import Status, p2p_bandwidth

TITLES = (
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
    "Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)",
    "P2P=Disabled Latency Matrix (us)",
    "P2P=Enabled Latency (P2P Writes) Matrix (us)",
)


def matrix(corner, n, diagonal, other):
    head = f"   {corner}" + "".join(f"{j:6d} " for j in range(n)) + "\n"
    rows = [
        f"{i:6d} " + "".join(f"{diagonal if i == j else other + i + j / 100:6.02f} " for j in range(n)) + "\n"
        for i in range(n)
    ]
    return head + "".join(rows)


def output(n=3, titles=TITLES, devices=None):
    text = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
    for i in range(devices if devices is not None else n):
        text += f"Device: {i}, NVIDIA A100-SXM4-80GB, pciBusID: {16 + i:x}, pciDeviceID: 0, pciDomainID:0\n"
    text += "Device=0 CAN Access Peer Device=1\nDevice=0 CANNOT Access Peer Device=2\n"
    text += (
        "\n***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy procedure.\n"
    )
    text += "So you can see lesser Bandwidth (GB/s) and unstable Latency (us) in those cases.\n\n"
    text += "P2P Connectivity Matrix\n     D\\D" + "".join(f"{j:6d}" for j in range(n)) + "\n"
    text += "".join(f"{i:6d}\t" + "".join(f"{1:6d}" for _ in range(n)) + "\n" for i in range(n))
    for at, title in enumerate(titles):
        text += title + "\n"
        if "Latency" in title:
            text += matrix("GPU", n, 1.5, 10.0 * (at + 1)) + "\n" + matrix("CPU", n, 2.5, 5.0 * (at + 1))
        else:
            text += matrix("D\\D", n, 1300.12, 100.0 * (at + 1))
    return text + "\nNOTE: The CUDA Samples are not meant for performance measurements.\n"


def parse(text, **expect):
    return outcome(p2p_bandwidth, text, expect)


def test_matrices():
    found = parse(output(), devices=3)
    assert found.status is Status.COMPLETE, found.end.reason
    assert found.facts[TITLES[1]] == {"n": 3, "offdiag_min": 200.01, "offdiag_max": 202.01}
    assert found.facts[TITLES[4]] == {"n": 3, "offdiag_min": 50.01, "offdiag_max": 52.01}
    assert found.facts[f"{TITLES[4]} CPU"] == {"n": 3, "offdiag_min": 25.01, "offdiag_max": 27.01}
    assert found.values("unidirectional_bandwidth", source=2, target=1, p2p=True, mode="writes") == [202.01]
    assert len(found.values("bidirectional_bandwidth")) == 12
    assert len(found.values("gpu_latency", p2p=False)) == 6
    assert set(found.values("local_bandwidth")) == {1300.12}
    assert found.facts["devices"] == ["NVIDIA A100-SXM4-80GB"] * 3
    assert found.facts["no_access"] == [[0, 2]]
    assert found.facts["bus_ids"] == ["10", "11", "12"]


def test_one_gpu_has_no_pairs():
    found = parse(output(1))
    assert found.status is Status.COMPLETE
    assert found.facts[TITLES[0]] == {"n": 1}
    assert found.values("unidirectional_bandwidth") == []


def test_ten_gpus_and_numbers_of_four_digits():
    found = parse(output(10))
    assert found.status is Status.COMPLETE
    assert len(found.values("unidirectional_bandwidth", p2p=True)) == 90


def test_reads_and_old_titles():
    titles = [t.replace("Writes", "Reads") for t in TITLES]
    found = parse(output(titles=titles))
    assert found.status is Status.COMPLETE
    assert found.values("gpu_latency", p2p=True, mode="reads")
    old = [t.replace(" (P2P Writes)", "") for t in TITLES]
    assert parse(output(titles=old)).status is Status.COMPLETE


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.replace("300.01", "3e+02", 1),
        lambda t: t.replace("300.01", "nan", 1),
        lambda t: t.replace("300.01", "-1.00", 1),
        lambda t: t.replace("300.01", "300.0", 1),
        lambda t: t.replace("300.01", "", 1),
        lambda t: t.replace("     1 301.00", "     2 301.00", 1),
        lambda t: "".join(line for line in t.splitlines(True) if "301.00" not in line),
        lambda t: t.replace(TITLES[3], "Somewhat P2P=Perhaps Matrix"),
        lambda t: t[: t.index("   CPU", t.index(TITLES[5]))],
        lambda t: t + t,
        lambda _: output(3, devices=4),
        lambda _: output(titles=TITLES[:4]),
    ],
)
def test_damage_is_incomplete(damage):
    text = damage(output())
    assert text != output()
    found = parse(text)
    assert found.status is Status.INCOMPLETE
    assert found.end.reason
    assert all(r.value > 0 for r in found.readings)


def test_failures_and_beginnings():
    text = output()
    failing = text[: text.index(TITLES[2])] + "Cuda failure p2p.cu:120: 'an illegal memory access was encountered'\n"
    assert parse(failing).status is Status.FAILED
    assert parse(text[: text.index("P2P Connectivity")]).status is Status.NOT_STARTED
    banner = text[: text.index("Device: 0")]
    assert parse(banner).status is Status.NOT_STARTED
    assert parse(banner + "Cuda failure p2p.cu:9: 'no CUDA-capable device is detected'\n").status is Status.FAILED
    assert parse(text, devices=8).status is Status.INCOMPLETE
    with pytest.raises(ConfigError):
        parse(text, devices="many")


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-01-01T00:00:00.000000000Z stdout F ", ""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_prefixes_and_line_ends(prefix, end):
    text = "".join(prefix + line + end for line in output().splitlines())
    assert parse(text).readings == parse(output()).readings


def test_the_note_at_the_end_is_no_part_of_a_matrix():
    assert parse(output().rstrip("\n")).status is Status.COMPLETE
    assert parse(output()[: output().rindex("not meant")]).status is Status.COMPLETE


def test_cut_anywhere():
    whole = output().encode()
    check_cuts(p2p_bandwidth, whole, most=len(whole))


def test_a_run_that_only_began_is_missed_wherever_it_stands():
    whole = output()
    lines = whole.splitlines(keepends=True)
    for kept in range(1, len(lines) - 1):
        begun = "".join(lines[:kept])
        for text in (
            whole + begun + "Segmentation fault (core dumped)\n",
            begun + "Segmentation fault (core dumped)\n" + whole,
            begun + whole,
        ):
            found = parse(text)
            assert found.status is Status.INCOMPLETE, (kept, text)
            assert len(found.readings) >= len(parse(whole).readings)
    last = whole.index("Device: 0")
    for text in (whole + whole[last : whole.index("P2P=")], whole[last : whole.index("P2P Conn")] + whole[last:]):
        assert parse(text).end.reason == "a matrix is damaged or cut: a run began and no matrix followed"


@pytest.mark.parametrize("junk", ["", "hello\n", "{}", "   D\\D     0\n     0   1.00\n"])
def test_other_formats_are_refused(junk):
    with pytest.raises(OutputError):
        parse(junk)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(output(2).splitlines(keepends=True)), st.text(max_size=10)), max_size=30))
def test_any_mixture_is_read_or_refused(pieces):
    try:
        found = parse("".join(pieces).encode("utf-8", "surrogatepass"))
    except OutputError:
        return
    assert all(r.value >= 0 for r in found.readings)
