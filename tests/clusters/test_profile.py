"""A wrong profile is refused with file, key and near match."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import load_profile, profile_folders
from plumbline.errors import ConfigError
from plumbline.model import Code, Device, Origin

IMAGE = "registry.example/x@sha256:" + "0" * 64
RESULTS = {"claim": "results", "mount": "/mnt/results"}
GOOD = {
    "name": "lab", "title": "Lab", "launcher": "kubernetes", "device": "gpu",
    "accelerator": {"model": "H100-SXM5-80GB", "per_node": 8, "resource": "nvidia.com/gpu"}, "fabric": {"name": "ndr"},
    "nodes": {"listed": [{"name": "a", "leaf": "l1"}, {"name": "b"}]}, "storage": {"directory": "/mnt/x"},
    "programs": "/opt/plumbline/bench", "images": {"fio": IMAGE}, "kubernetes": {"results": RESULTS},
}  # fmt: skip


def load(tmp_path: Path, text: str):
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    return load_profile(str(path))


def test_every_shipped_profile_loads() -> None:
    names = [path.stem for folder in profile_folders() for path in folder.glob("*.yaml")]
    assert "local" in names
    for name in names:
        assert load_profile(name).name == name
    local = load_profile("local")
    assert (local.origin, local.device, local.launcher) == (Origin.MEASURED, Device.CPU, "local")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fabrik": {"name": "x"}}, "unknown key 'fabrik'; did you mean 'fabric'"),
        ({"accelerator": {"model": "x", "per_nod": 8}}, "unknown key 'accelerator.per_nod'; did you mean 'per_node'"),
        ({"accelerator": {"model": "x", "per_node": 0}}, "accelerator.per_node"),
        ({"launcher": "slurm"}, "launcher"),
        ({"launcher": "local"}, "launcher local needs nodes.emulated"),
        ({"nodes": {"emulated": 2, "simulated": 2}}, "exactly one of"),
        (
            {"nodes": {"listed": [7]}},
            "nodes.listed[0]: must be a node's name such as node1, or {name: node1, leaf: leaf1}, not 7; a name of",
        ),
        ({"nodes": {"listed": [{"nam": "a"}]}}, "unknown key 'nodes.listed[0].nam'; did you mean 'name'"),
        ({"nodes": {"listed": "node1"}}, "nodes.listed: must be a list, not 'node1'"),
        ({"nodes": {"listed": []}}, "nodes: listed: names no node"),
        ({"nodes": {"listed": [""]}}, "nodes.listed[0]: must be a host name"),
        ({"nodes": {"listed": ["a b"]}}, "nodes.listed[0]: must be a host name"),
        ({"nodes": {"listed": ["../x"]}}, "nodes.listed[0]: must be a host name"),
        ({"nodes": {"listed": ["-rf"]}}, "nodes.listed[0]: must be a host name"),
        ({"nodes": {"listed": ["a", {"name": "a", "leaf": "l1"}]}}, "nodes: listed: node 'a' is there twice"),
        ({"name": "Not A Name"}, "name"),
        ({"title": ""}, "title: must be text with something in it, not ''"),
        ({"python": "  "}, "python: must be text with something in it, not '  '"),
        ({"programs": ""}, "programs: must be text with something in it"),
        ({"results": ""}, "results: must be text with something in it"),
        ({"hardware": ""}, "hardware: must be text with something in it"),
        ({"storage": {"directory": ""}}, "storage.directory: must be text with something in it"),
        ({"fabric": {"name": ""}}, "fabric.name: must be text with something in it"),
        (
            {"exclusions": [{"node": "a", "reason": "", "owner": "o", "until": "2026-03-01"}]},
            "exclusions[0].reason: must",
        ),
        ({"kubernetes": None}, "launcher kubernetes needs the section kubernetes"),
        ({"launcher": "local", "nodes": {"emulated": 1}}, "launcher local has no section kubernetes"),
        ({"kubernetes": {}}, "key 'kubernetes.results' is missing"),
        ({"kubernetes": {"results": RESULTS, "rdmaa": {}}}, "unknown key 'kubernetes.rdmaa'; did you mean 'rdma'"),
        ({"kubernetes": {"results": {"mount": "/x"}}}, "exactly one of claim and host_path"),
        ({"kubernetes": {"results": RESULTS, "access": {"in_cluster": True, "kubeconfig": "x"}}}, "at most one of"),
        ({"kubernetes": {"results": RESULTS, "queue": {"kind": "kueue"}}}, "a queue of kind kueue needs a name"),
        ({"kubernetes": {"results": RESULTS, "memory": "lots"}}, "kubernetes.memory"),
        ({"images": {}}, "needs images"),
        ({"images": {"fio": "registry.example/x:latest"}}, "images.fio: 'registry.example/x:latest' names no digest"),
        ({"images": {"b": "x:1", "a": "x:2", "c": "x:3"}}, "hex digits>), nor do b, c; kubernetes.unpinned_images"),
        ({"programs": "bench", "python": "python3"}, "programs and python must be an absolute path"),
        ({"accelerator": {"model": "x", "per_node": 8}}, "accelerator.resource is missing"),
        ({"programs": "docker/bench"}, "programs must be an absolute path"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, yaml.safe_dump({**GOOD, **change}))
    assert message in str(caught.value)
    assert "lab.yaml" in str(caught.value)


def test_a_set_of_nodes_has_no_order_and_is_refused(tmp_path: Path) -> None:
    listed = yaml.safe_dump({**GOOD, "nodes": None}).replace("nodes: null", "nodes: {listed: !!set {a, b}}")
    with pytest.raises(ConfigError, match=r"nodes\.listed: must be a list: a set has no order"):
        load(tmp_path, listed)


def test_nodes_are_listed_by_name_or_with_their_place(tmp_path: Path) -> None:
    listed = ["node1", {"name": "node2", "leaf": "l1"}]
    profile = load(tmp_path, yaml.safe_dump({**GOOD, "nodes": {"listed": listed}}))
    inventory = static_inventory(profile, date(2026, 3, 1))
    assert [(node.name, node.leaf) for node in inventory] == [("node1", None), ("node2", "l1")]
    assert type(profile).model_validate(profile.model_dump(mode="json")) == profile


def test_missing_keys_are_all_listed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "name: lab")
    assert all(f"key '{key}' is missing" in str(caught.value) for key in ("title", "launcher", "nodes", "storage"))


@pytest.mark.parametrize("text", ["a: [", "name: x\nname: y", "- 1", "", "\x00"])
def test_what_is_not_a_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"lab\.yaml"):
        load(tmp_path, text)


def test_a_profile_of_another_name_than_its_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "second.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    with pytest.raises(ConfigError) as caught:
        load_profile(str(path))
    words = "the file is called second and the cluster lab: one of them is asked for (line "
    assert str(caught.value).startswith(f"{path}: name: {words}")


def test_an_unknown_name_has_a_near_match() -> None:
    with pytest.raises(ConfigError, match="did you mean 'local'"):
        load_profile("locall")


def test_exclusions_apply_until_their_day(tmp_path: Path) -> None:
    excluded = {"node": "a", "reason": "RMA", "owner": "ops", "until": "2026-03-01"}
    profile = load(tmp_path, yaml.safe_dump({**GOOD, "exclusions": [excluded]}))
    on_the_day, after = (static_inventory(profile, date(2026, 3, day)) for day in (1, 2))
    assert [node.unusable for node in on_the_day] == [Code.EXCLUDED, None]
    assert "RMA (owner ops" in on_the_day[0].reason
    assert [node.unusable for node in after] == [None, None]
