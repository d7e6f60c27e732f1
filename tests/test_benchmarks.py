"""The benchmarks of Plumbline itself: that they measure what they say, and how they judge; never how fast."""

from __future__ import annotations

import json
import shutil

import pytest
from benchmarks.ratios import interleave, mean_interval, ratio_interval, within_row
from benchmarks.section import Row, Section

from benchmarks import fidelity, kubernetes, page, readers, supervision


def test_a_child_is_given_the_same_through_the_runner(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_HOME", "/nowhere")
    found, withheld = fidelity.given_differences(tmp_path)
    assert {kind: lines for kind, lines in found.items() if lines} == {}
    assert {"argv", "environment", "affinity", "cgroup"} <= set(found)
    assert "AIRFLOW_HOME" in withheld


def test_a_difference_is_named():
    assert fidelity._differences({"A": "1", "B": "2"}, {"A": "1", "B": "3"}) == ["B: '2' → '3'"]
    assert fidelity._differences([0, 1], [0]) == ["[0, 1] → [0]"]


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_the_reader_gives_fios_own_number(tmp_path, monkeypatch):
    argv = fidelity.fio_command(tmp_path / "file", 1)
    output, record = fidelity.run_through([*argv, "--size=1M", "--loops=1"], {}, tmp_path, "one")
    assert fidelity.reader_agrees(output)
    one_byte_more = fidelity.fio_value(output) + 1
    monkeypatch.setattr(fidelity, "fio_value", lambda text: one_byte_more)
    assert not fidelity.reader_agrees(output)
    assert record.runner_cpu_s is not None


def test_a_failing_tool_is_no_figure(tmp_path):
    with pytest.raises(RuntimeError, match="exit code 3"):
        fidelity.run_through(["sh", "-c", "exit 3"], {}, tmp_path, "one")


@pytest.mark.parametrize(("name", "kind"), list(readers.CASES))
def test_every_stream_holds_what_its_reader_reads(name, kind):
    found = readers.read_case(name, kind, 1 << 20)
    assert found["bytes"] >= 1 << 20
    assert found["items"] > (1 if kind == "noise" else 100)
    assert not str(found["status"]).startswith("refused")


def test_a_stream_gives_its_pieces_and_ends():
    stream = readers.Stream(iter([b"abcd", b"efgh", b"never"]), 8)
    assert [stream.read(3), stream.read(3), stream.read(), stream.read(1), stream.read()] == [
        b"abc", b"d", b"efgh", b"", b"",
    ]  # fmt: skip


def test_intervals_hold_the_mean_and_narrow_with_the_spread():
    found = mean_interval([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.high - found.mean == pytest.approx(4.302653 / 3**0.5, rel=1e-5)  # Student's t, 2 degrees, 97.5 %
    ratio = ratio_interval([2.0, 8.0], [1.0, 2.0])
    assert ratio.mean == pytest.approx(8**0.5)
    with pytest.raises(ValueError, match="two values"):
        mean_interval([1.0])


@pytest.mark.parametrize(
    ("through", "held"), [([1.0, 1.001, 0.999], True), ([1.1, 1.101, 1.099], False), ([0.9, 0.901, 0.899], False)]
)
def test_an_interval_beside_the_range_does_not_hold(through, held):
    assert within_row("x", ratio_interval(through, [1.0, 1.0, 1.0]), 0.97, 1.03).held is held


def test_pairs_alternate_their_order():
    order: list[str] = []
    first, second = interleave(2, lambda: order.append("a") or 1.0, lambda: order.append("b") or 2.0)
    assert (order, first, second) == (["a", "b", "b", "a"], [1.0, 1.0], [2.0, 2.0])


def test_the_page_says_under_what_circumstances(tmp_path):
    row = Row(name="x | y", value=1.23456, unit="s", limit="≤ 1 s", held=False)
    section = Section(name="scale", title="Title", method="How", rows=[row])
    about = {
        "command": "python -m benchmarks scale", "date": "2026-01-01", "cpu": "A CPU", "cores": 2, "memory_gib": 4.0,
        "kernel": "6", "python": "3.11", "load_before": "0.10 0.20 0.30", "commit": "0123456789ab",
    }  # fmt: skip
    data = {"circumstances": about, "quick": True, "title": section.title, "method": section.method,
            "rows": [{"name": row.name, "value": row.value, "unit": row.unit, "spread": row.spread,
                      "limit": row.limit, "held": row.held}]}  # fmt: skip
    (tmp_path / "scale.json").write_text(json.dumps(data))
    page.write_page(tmp_path / "page.md", [tmp_path / "scale.json", tmp_path / "absent.json"])
    text = (tmp_path / "page.md").read_text()
    assert "| x \\| y | 1.235 | s |" in text
    assert "**no**" in text
    for part in ("0123456789ab", "A CPU", "0.10 0.20 0.30", "Quick run"):
        assert part in text
    assert "NO  x | y" in page.table(data)


def test_a_launcher_of_scripted_pods_is_watched_to_its_end(tmp_path):
    found = supervision.rung(tmp_path, 3, 1)
    assert (found["groups"], found["watches"], found["mpiruns"]) == (3, 1, 0)
    assert found["requests"] >= 3 + 3 + 2  # every Job made and removed; a list and a watch
    assert found["per_s_peak"] <= found["requests"]
    assert found["cpu_s"] > 0
    assert found["peak_mib"] == found["python_mib"] > 1


def test_the_busiest_second_holds_the_most_requests():
    assert supervision.busiest([0.0, 0.1, 5.0, 5.2, 5.9, 6.0, 9.0]) == 3
    assert supervision.busiest([]) == 0


def test_without_a_cluster_a_launch_is_not_measured_and_says_what_it_needs(monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBECTL", "/nowhere/kubectl")
    told = kubernetes.measure_launches(2)
    assert "KUBECONFIG" in told
    assert "KUBECTL" in told
    [row] = kubernetes._launch_rows(told)
    assert (row.value, row.held, row.spread) == (None, None, told)


def test_what_a_launch_adds_is_judged_by_its_mean():
    slow = {"one node": {"through": [9.0, 9.1, 9.2], "bare": [2.0, 2.1, 2.1]}}
    assert [row.held for row in kubernetes._launch_rows(slow)] == [None, None, False]
