import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_history, build_run

from plumbline.errors import OutputError
from plumbline.model import Code, Device, Origin, verdict
from plumbline.reports.news import since_previous
from plumbline.reports.report import write_report
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.run_directory import RunDirectory

CLUSTER = Scenario(cluster="h100", nodes=6, device=Device.GPU)
VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Reads a page and complains about what a browser would only forgive."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def report(run: RunDirectory) -> tuple[str, Page]:
    text = write_report(run).read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, str, Page]:
    results = tmp_path_factory.mktemp("results")
    build_history(results, 3, replace(CLUSTER, when=CLUSTER.when - timedelta(days=1)))
    run = build_run(
        results,
        replace(CLUSTER, seed=9, kernel="6.9-other", slow_nodes={"n0002": 0.6}, excluded={"n0005": "in repair"}),
    )
    return run, *report(run)


# -- ten seconds -----------------------------------------------------------------------------------------------------


def test_the_top_says_verdict_cause_change_gap_and_cost(failed):
    _, _, page = failed
    top = page.text[: page.text.index("Headline figures")]
    for words in (
        "✗ FAIL", "gate closed", "n0002: outside the reference", "Since the last run",
        "worse: the gate is closed, it was open", "kernel: 6.1.0-test → 6.9-other", "Not covered",
        "n0005: left out on purpose", "in repair", "GPU-hours", "TEST DATA",
    ):  # fmt: skip
        assert words in top, words


def test_the_report_tells_the_verdict_of_verdict_json(failed):
    run, text, page = failed
    data = run.read_derived("verdict.json")
    title = re.search(r"<title>(.*?)</title>", text)
    assert title and title.group(1).startswith(f"{data['verdict']} · h100 · nightly · {run.run_id}")
    assert f"{data['verdict']}, gate {data['gate']}" in page.text


def test_an_open_gate_is_said_and_a_first_run_has_nothing_to_compare(tmp_path: Path):
    _, page = report(build_run(tmp_path, nodes=2))
    assert "✓ PASS" in page.text and "gate open" in page.text and "Nothing closes the gate." in page.text
    assert "There is no earlier run of this suite" in page.text
    assert "all 2 nodes of the inventory were measured" in page.text


def test_a_quiet_night_says_so(tmp_path: Path):
    scenario = Scenario(nodes=1)
    build_run(tmp_path, scenario)
    _, page = report(build_run(tmp_path, scenario, when=scenario.when + timedelta(days=1)))  # the same numbers
    assert "No verdict or version changed, and no headline figure beyond its tolerance (3 %, or more" in page.text


@pytest.mark.parametrize(("speed", "moved"), [(0.91, False), (0.5, True)])
def test_a_figure_that_is_known_to_scatter_is_no_news_until_it_moves_by_more(tmp_path: Path, speed: float, moved: bool):
    before = Scenario(nodes=2, references="local-cpu")
    build_run(tmp_path, before)
    now = build_run(tmp_path, replace(before, when=before.when + timedelta(days=1), speed={"fio": speed}))
    since = since_previous(JudgedRun(now))
    assert any(item.text.startswith("fio read_bandwidth") for item in since.items) is moved
    assert any(change.indicator == "read_bandwidth" for change in since.nodes) is moved


def test_a_run_that_was_asked_for_less_than_its_suite_does_not_say_that_all_was_measured(tmp_path: Path):
    asked = ({"setting": "node_counts", "run": [1], "suite": "ladder"},)
    _, page = report(build_run(tmp_path, nodes=2, asked=asked))
    assert "not the suite as it is: node_counts 1 (the suite: ladder)" in page.text
    assert "Every planned value" not in page.text


# -- stamps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "stamps"),
    [
        (Scenario(nodes=1), ["CPU ONLY"]),
        (Scenario(nodes=1, device=Device.GPU, origin=Origin.SIMULATED), ["SIMULATED"]),
        (Scenario(nodes=1, device=Device.CPU, origin=Origin.SIMULATED), ["SIMULATED", "CPU ONLY"]),
        (Scenario(nodes=1, device=Device.GPU), []),
        (Scenario(nodes=2), ["CPU ONLY"]),
    ],
)
def test_every_section_with_numbers_bears_the_stamps(tmp_path: Path, scenario: Scenario, stamps: list[str]):
    text, _ = report(build_run(tmp_path, scenario))
    headings = re.findall(r"<h2 id=\"([a-z_0-9]+)\">(.*?)</h2>", text, flags=re.DOTALL)
    with_numbers = {name: body for name, body in headings if name not in ("findings", "environment", "evidence")}
    assert {"figures", "fio", "nccl_tests", "hpl_mxp", "mlperf_gpt3"} <= with_numbers.keys()
    for name in ("SIMULATED", "CPU ONLY"):
        there = [name in body for body in with_numbers.values()]
        assert all(there) if name in stamps else not any(there)
    band = re.search(r'class="band".*?</div></div>', text, flags=re.DOTALL)
    assert band and all(name in band.group(0) for name in (*stamps, "REDUCED-SIZE PROXIES"))
    proxies = {name for name, body in with_numbers.items() if "REDUCED-SIZE PROXIES" in body}
    assert proxies == {"figures", "mlperf_gpt3"}, "storage is no proxy because training is"


def test_whoever_says_that_it_is_a_proxy_is_stamped(tmp_path: Path):
    run = build_run(tmp_path, Scenario(nodes=1, device=Device.GPU))
    launches = run.read_derived("launches.json")
    launches[0]["facts"]["proxy"] = True
    run.write_derived_json("launches.json", launches)
    text, page = report(run)
    heading = re.search(r'<h2 id="fio">(.*?)</h2>', text, flags=re.DOTALL)
    assert heading and "REDUCED-SIZE PROXIES" in heading.group(1)
    assert "No figure here is an MLPerf result" in page.text


# -- one file, hostile text ------------------------------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> \"' & </table></body> $x_1$ {{ 7*7 }} {% raw %}"
    "\x1b[31mred\x1b[0m \u202eSSAP\u202c \x00\x07 javascript:alert(3)"
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    scenario = Scenario(
        nodes=2,
        kernel=HOSTILE.replace("\x00", ""),
        failing_launches={"hpl_mxp-n1-g0-r1": HOSTILE},
        excluded={"local-1": HOSTILE.replace("\x00", "").replace("\x07", "")},
        extra=[
            verdict(Code.UNREADABLE, HOSTILE, HOSTILE, benchmark="fio", indicator=HOSTILE, expected=HOSTILE,
                    params=json.dumps({"operation": HOSTILE}), reference=HOSTILE),
        ],
    )  # fmt: skip
    return report(build_run(tmp_path_factory.mktemp("results"), scenario))


def test_hostile_text_stays_text(hostile):
    _, page = hostile
    assert page.having("script") == page.having("img") == []
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert "<script>alert(1)</script>" in page.text and "{{ 7*7 }}" in page.text


def test_text_cannot_hide_or_turn_around(hostile):
    text, _ = hostile
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)
    assert "{% raw %}red �SSAP�" in text


def test_the_file_needs_nothing_else(failed, hostile):
    for text, page in (failed[1:], hostile):
        assert not [attrs for name, attrs in page.tags if name in ("link", "iframe", "object", "embed", "base", "form")]
        sources = [attrs[key] for _, attrs in page.tags for key in ("src", "xlink:href") if attrs.get(key)]
        assert all(source.startswith("#") for source in sources)
        assert "@import" not in text and not re.search(r"url\(\s*['\"]?(?!#)", text)
        assert "default-src 'none'" in text


def test_links_are_relative_into_the_run_and_lead_to_files(failed):
    run, _, page = failed
    links = [attrs["href"] for attrs in page.having("a") if attrs.get("href")]
    ids = {attrs["id"] for _, attrs in page.tags if attrs.get("id")}
    for link in links:
        if link.startswith("#"):
            assert link[1:] in ids, link
        else:
            assert (run.derived / link).resolve().is_relative_to(run.path) and (run.derived / link).exists(), link
    assert sum("evidence/raw" in link for link in links) > 10


def test_ids_are_unique_figures_included(failed):
    _, _, page = failed
    ids = [attrs["id"] for _, attrs in page.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert len(page.having("svg")) >= 5


def test_the_page_is_accessible(failed):
    _, text, page = failed
    assert page.having("html")[0]["lang"] == "en"
    for svg in page.having("svg"):
        assert svg["role"] == "img" and svg["aria-labelledby"]
    heads = page.having("th")
    assert heads and all(head.get("scope") in ("col", "row") for head in heads)
    assert len(page.having("table")) == text.count("<thead>")
    assert re.search(r'class="mark FAIL[^"]*">✗ FAIL', text), "never by colour alone"


# -- what it holds ---------------------------------------------------------------------------------------------------


def test_values_stand_with_what_was_expected_limits_and_their_source(failed):
    _, text, page = failed
    assert "Expected" in page.text and "Limit" in page.text and "references/test.yaml" in page.text
    rows = re.findall(r"<tr[^>]*><th scope=\"row\">HPL-MxP.*?</tr>", text, flags=re.DOTALL)
    assert any("840,000" in row and "≥ 756,000" in row and 'href="#hpl_mxp-s1"' in row for row in rows)


def test_evidence_bears_its_digests(failed):
    run, text, page = failed
    assert run.manifest_sha256() in text
    manifest = json.loads((run.evidence / "manifest.json").read_text())["files"]
    assert manifest["plan.json"]["sha256"][:12] in text
    assert manifest["raw/fio-n1-g0-r1.a1/stdout"]["sha256"][:10] in text
    assert f"plumbline verify {run.path}" in page.text


def test_snapshots_show_what_rose_and_where(failed):
    _, _, page = failed
    assert "GPU temperature" in page.text and "CPU throttle count" in page.text
    assert re.search(r"CPU throttle count 3 n0002", page.text)


def test_a_launch_that_failed_shows_the_end_of_its_stderr(tmp_path: Path):
    run = build_run(tmp_path, Scenario(nodes=1, failing_launches={"hpl_mxp-n1-g0-r1": "exit code 1"}))
    (run.evidence / "raw" / "hpl_mxp-n1-g0-r1.a1" / "stderr").write_text("first\n" * 500 + "the last word\n")
    _, page = report(run)
    assert "Launches that did not end well" in page.text and "the last word" in page.text


def test_findings_json_and_the_page_name_the_same(failed):
    run, _, page = failed
    found = run.read_derived("findings.json")
    assert found and all(item["title"] in page.text for item in found)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ({"kind": "acceptance", "decision": "reject"}, "Rejected by ann"),
        ({"kind": "acceptance", "decision": "accept"}, "Accepted (and part of the baseline) by ann"),
        ({"kind": "approve_baseline"}, "Approved as baseline by ann"),
        ({"kind": "revoke_baseline"}, "Approval taken back by ann"),
    ],
)
def test_a_decision_is_shown(tmp_path: Path, decision: dict[str, str], words: str):
    run = build_run(tmp_path, Scenario(nodes=1))
    run.add_decision({**decision, "by": "ann", "comment": "too hot"})
    _, page = report(run)
    assert words in page.text and "too hot" in page.text


def test_the_same_run_gives_the_same_bytes(tmp_path: Path):
    run = build_run(tmp_path, Scenario(nodes=2))
    assert write_report(run).read_bytes() == write_report(run).read_bytes()


def test_a_run_without_any_value_still_has_a_report(tmp_path: Path):
    launches = [spec.launch_id for spec in build_run(tmp_path / "x", Scenario(nodes=1)).plan().launches]
    _, page = report(build_run(tmp_path, Scenario(nodes=1, missing_launches=launches)))
    assert "gate closed" in page.text and "a launch that left no record" in page.text


@pytest.mark.parametrize("name", ["verdict.json", "verdicts.parquet", "launches.json"])
def test_an_unjudged_run_has_no_report(tmp_path: Path, name: str):
    run = build_run(tmp_path, Scenario(nodes=1))
    (run.derived / name).unlink()
    with pytest.raises(OutputError, match=name.replace(".", r"\.")):
        write_report(run)
    assert not (run.derived / "report.html").exists()


def test_many_nodes_stay_one_readable_file(tmp_path: Path):
    scenario = Scenario(cluster="big", nodes=96, device=Device.GPU, slow_nodes={f"n{n:04d}": 0.6 for n in (7, 40)})
    run = build_run(tmp_path, scenario)
    text, page = report(run)
    assert len(text) < 2_000_000
    assert "The 20 places farthest behind their peers" in page.text
    assert [item["component"]["name"] for item in run.read_derived("findings.json")] == ["n0007", "n0040"]
    assert "more launches, all of which ended well" in page.text


def test_every_rung_of_a_big_cluster_is_in_the_headline_table_or_named_beside_it(tmp_path: Path):
    text, page = report(build_run(tmp_path / "a", Scenario(cluster="big", nodes=128, device=Device.GPU)))
    head = re.search(r'id="figures".*?<thead>(.*?)</thead>', text, flags=re.DOTALL)
    assert head and re.findall(r">(\d+) nodes?<", head.group(1)) == ["1", "2", "4", "8", "16", "32", "64", "128"]
    assert "Not in this table" not in page.text


def test_node_counts_without_a_column_are_named():
    from plumbline.reports.page import MOST_COUNTS, _shown_counts

    counts = _shown_counts(range(1, 40))
    assert len(counts) == MOST_COUNTS and counts[0] == 1 and counts[-1] == 39


def test_columns_that_find_no_room_are_named_under_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("plumbline.reports.page.MOST_COUNTS", 2)
    _, page = report(build_run(tmp_path, CLUSTER))
    assert "Not in this table: 2, 4 nodes." in page.text
