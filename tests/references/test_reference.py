from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from plumbline.clusters.profile import PROFILES, load_profile
from plumbline.errors import ConfigError
from plumbline.references.lint import fabric_gb_s, problems
from plumbline.references.reference import (
    FOLDER,
    ReferenceSet,
    load_references,
    references_data,
    references_from,
    specificity,
)

H100 = "h100-sxm5-80gb.yaml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site's own folder with a copy of the H100 file, which wins over the shipped one."""
    monkeypatch.setenv("PLUMBLINE_REFERENCES", str(tmp_path))
    (tmp_path / H100).write_text((FOLDER / H100).read_text())
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    data = yaml.safe_load((folder / H100).read_text())
    data.update(fields)
    (folder / H100).write_text(yaml.safe_dump(data))


def change_first(folder: Path, **fields: Any) -> None:
    data = yaml.safe_load((folder / H100).read_text())
    data["references"][0].update(fields)
    (folder / H100).write_text(yaml.safe_dump(data))


def refused(match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        load_references("H100-SXM5-80GB")


def find(references: ReferenceSet, **fields: Any) -> Any:
    asked = {"benchmark": "nccl_tests", "benchmark_version": "1", "indicator": "bus_bandwidth_headline",
             "node_count": 1, "concurrency": "full", "fabric": "ndr-8x400g", "physical": False,
             "params": {"operation": "all_reduce", "message_bytes": 8 << 30}}  # fmt: skip
    return references.find(**{**asked, **fields})


def test_every_shipped_profile_has_references():
    for path in PROFILES.glob("*.yaml"):
        profile = load_profile(path.stem)
        found = load_references(profile.reference_hardware)
        assert found.files[0].accelerators_per_node in (None, profile.accelerator.per_node), path.name


def test_what_is_shipped_has_no_problem():
    assert problems() == []


def test_a_set_survives_being_sealed():
    found = load_references("H100-SXM5-80GB")
    assert references_from(references_data(found)) == found


def test_the_most_specific_reference_wins():
    references = load_references("H100-SXM5-80GB")
    assert find(references).lower == 456.0
    assert find(references, node_count=8).value == 386.6
    assert find(references, node_count=8, fabric="roce-8x400g") is None
    assert find(references, node_count=2, fabric="efa-3200g").value == 487.1
    assert find(references, node_count=3) is None
    assert find(references, params={"operation": "all_gather"}) is None
    ratio = {"indicator": "bus_bandwidth_of_ceiling"}
    assert find(references, **ratio).value == 0.6095 and find(references, node_count=100, **ratio).value == 0.859
    assert specificity(find(references)) > specificity(find(references, node_count=100, **ratio))
    assert find(references, indicator="share_of_peer_median").hardware == "*"


def test_physical_bounds_and_expectations_are_looked_up_apart():
    references = load_references("local-cpu")
    asked = {"benchmark": "fio", "indicator": "read_iops", "params": {}}
    assert find(references, **asked) is None and find(references, physical=True, **asked).upper == 1e8


# -- a threshold that vanishes -----------------------------------------------------------------------------------


def test_an_unchanged_copy_is_taken(folder: Path):
    assert load_references("H100-SXM5-80GB").files[0].count == 12


@pytest.mark.parametrize("text", ["", "hardware: H100-SXM5-80GB\n", "[]", "hardware: [", "references: []\n"])
def test_an_emptied_file_is_an_error(folder: Path, text: str):
    (folder / H100).write_text(text)
    refused(H100)


def test_missing_hardware_is_an_error_with_a_near_match():
    with pytest.raises(ConfigError, match="no references for hardware 'H100-SXM-80GB'; did you mean 'H100-SXM5-80GB'"):
        load_references("H100-SXM-80GB")


def test_a_lost_row_disagrees_with_the_count(folder: Path):
    data = yaml.safe_load((folder / H100).read_text())
    change(folder, references=data["references"][1:])
    refused("count says 12 references, the file holds 11")


def test_a_lost_row_disagrees_with_what_is_required(folder: Path):
    data = yaml.safe_load((folder / H100).read_text())
    kept = [row for row in data["references"] if row["indicator"] != "matmul_rate"]
    change(folder, references=kept, count=len(kept))
    refused("required, but without a reference: hpl_mxp/matmul_rate")


def test_a_site_must_require_what_is_shipped(folder: Path):
    data = yaml.safe_load((folder / H100).read_text())
    kept = [row for row in data["references"] if row["indicator"] != "matmul_rate"]
    required = [pair for pair in data["required"] if "matmul_rate" not in pair]
    change(folder, references=kept, count=len(kept), required=required)
    refused("required must contain hpl_mxp/matmul_rate")


def test_a_lost_bound_is_an_error(folder: Path):
    change_first(folder, lower=None, warn_lower=None)
    refused("lower bound is missing")


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"unit": "GiB/s"}, "unit 'GiB/s' is not the indicator's"),
        ({"unit": "GBps"}, "unknown unit 'GBps'"),
        ({"lower": 481.0}, "bounds must be ordered"),
        ({"warn_lower": 400.0}, "bounds must be ordered"),
        ({"indicator": "bus_bandwith_headline"}, "did you mean 'bus_bandwidth_headline'"),
        ({"benchmark": "nccl"}, "no benchmark 'nccl'"),
        ({"source": ""}, "source"),
        ({"date": "soon"}, "date"),
        ({"lowr": 1.0}, "did you mean 'lower'"),
        ({"kind": "guess"}, "kind"),
        ({"value": "fast"}, "value"),
        ({"node_counts": [0]}, "node_counts"),
        ({"concurrency": "some"}, "concurrency"),
    ],
)
def test_a_damaged_row_is_an_error(folder: Path, fields: dict[str, Any], match: str):
    change_first(folder, **fields)
    refused(match)


def test_two_equally_specific_references_are_an_error(folder: Path):
    data = yaml.safe_load((folder / H100).read_text())
    twin = copy.deepcopy(data["references"][0])
    change(folder, references=[*data["references"], twin], count=13)
    refused("one row could match both")
    twin |= {"match": {"message_bytes": 8 << 30}}
    change(folder, references=[*data["references"], twin], count=13)
    refused("one row could match both")
    twin |= {"match": {"operation": "all_gather"}}
    change(folder, references=[*data["references"], twin], count=13)
    load_references("H100-SXM5-80GB")


def test_a_sealed_set_without_a_row_is_refused():
    data = references_data(load_references("H100-SXM5-80GB"))
    del data["files"][0]["references"][0]
    with pytest.raises(ConfigError, match="count says 12"):
        references_from(data)
    with pytest.raises(ConfigError, match="its own file"):
        references_from({**data, "files": data["files"][1:]})


# -- lint --------------------------------------------------------------------------------------------------------


def lint(folder: Path) -> str:
    return "\n".join(problems(folder))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"lower": 4.56, "warn_lower": None}, "below 25% of what physics allows"),
        ({"value": 900.0}, "above what physics allows"),
        ({"value": None, "lower": 900.0, "warn_lower": None}, "above what physics allows"),
        ({"date": "2999-01-01"}, "in the future"),
        ({"source": "12345"}, "names nothing"),
        ({"unit": "GiB/s"}, "not the indicator's"),
    ],
)
def test_lint_finds(folder: Path, fields: dict[str, Any], match: str):
    assert lint(folder) == ""
    change_first(folder, **fields)
    assert match in lint(folder)


def test_lint_knows_the_published_typing_errors(folder: Path):
    """A floor a thousand times too low, and a floor above the machine's links, as found in published tables."""
    data = yaml.safe_load((folder / H100).read_text())
    rate = next(row for row in data["references"] if row["indicator"] == "matmul_rate")
    rate |= {"lower": 794.5, "warn_lower": None}
    change(folder, references=data["references"])
    assert "matmul_rate" in lint(folder) and "below 25%" in lint(folder)
    change_first(folder, lower=900.0, value=None, warn_lower=None)
    assert "above what physics allows at node count 1" in lint(folder)


def test_an_empty_folder_is_a_problem(tmp_path: Path):
    assert problems(tmp_path) == [f"{tmp_path}: no reference files"]


@pytest.mark.parametrize(
    ("name", "rate"), [("ndr-8x400g", 400.0), ("hdr-8x200g", 200.0), ("efa-3200g", 400.0), ("loopback", None)]
)
def test_a_fabrics_name_tells_its_bandwidth(name: str, rate: float | None):
    assert fabric_gb_s(name) == rate
