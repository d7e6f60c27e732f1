"""ClusterProfile: what a cluster is made of and how it is reached. Read from profiles/*.yaml."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from plumbline.amounts import node_list
from plumbline.clusters.kubernetes import Kubernetes
from plumbline.configuration import (
    Document,
    Text,
    check_name,
    find_document,
    load_yaml,
    parse,
    project_root,
    search_path,
)
from plumbline.model import Device, Origin, Scalar

PROFILES = Path(__file__).parent / "profiles"
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")


class Accelerator(Document):
    """The accelerator of every node. `model` is the key of references and ceilings ('H100-SXM5-80GB', 'cpu')."""

    model: Text
    per_node: Annotated[int, Field(ge=1, le=64)]
    resource: str | None = None
    """Kubernetes resource name, such as nvidia.com/gpu or amd.com/gpu."""


class Fabric(Document):
    """How nodes are connected. `name` is a key of references ('ndr-8x400g', 'loopback')."""

    name: Text
    node_bandwidth_gbit_s: Annotated[float, Field(gt=0)] | None = None
    """All NICs of one node together, one direction; None where unknown (no network ceiling is applied)."""
    transport: str | None = None
    """What NCCL must report that it uses between nodes ('IB', 'Socket', 'OFI'); None: not asserted."""
    in_network_reduction: bool = False
    """SHARP or similar: the network term of the ceiling does not apply."""


class Node(Document):
    """One node of the inventory: its name, or a mapping that tells its place in the topology as well."""

    name: str
    leaf: str | None = None
    rack: str | None = None
    nvlink_domain: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_name(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"name": given}
        if not isinstance(given, (Mapping, Node)):
            quotes = "; a name of digits goes in quotes" if isinstance(given, int) else ""
            raise ValueError(
                f"must be a node's name such as node1, or {{name: node1, leaf: leaf1}}, not {given!r}{quotes}"
            )
        return given

    @field_validator("name")
    @classmethod
    def _is_a_host_name(cls, name: str) -> str:
        if _HOST_NAME.fullmatch(name) is None:
            shown = name if len(name) <= 60 else f"{name[:60]}…"
            raise ValueError(f"must be a host name (letters, digits, '-', '.', '_'; at most 253), not {shown!r}")
        return name


class Exclusion(Document):
    """A node that is left out on purpose, with a reason, an owner and an end date; an expired one is void."""

    node: Text
    reason: Text
    owner: Text
    until: date


class Nodes(Document):
    """Which nodes: exactly one of the forms."""

    emulated: Annotated[int, Field(ge=1, le=64)] | None = None
    """This machine plays so many nodes, one process each."""
    simulated: Annotated[int, Field(ge=1, le=16384)] | None = None
    """So many simulated nodes, named n0001 and so on."""
    listed: tuple[Node, ...] | None = None
    selector: dict[str, str] | None = None
    """Kubernetes labels; the inventory is what the API lists."""
    nodes_per_leaf: Annotated[int, Field(ge=1)] = 32
    leaves_per_rack: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _exactly_one(self) -> Nodes:
        given = [name for name in ("emulated", "simulated", "listed", "selector") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of emulated, simulated, listed, selector, not {given or 'none'}")
        return self

    @field_validator("listed", mode="before")
    @classmethod
    def _in_order(cls, given: Any) -> Any:
        if isinstance(given, (set, frozenset)):
            raise ValueError("must be a list: a set has no order, and the plan follows it")
        return given

    @model_validator(mode="after")
    def _listed_once(self) -> Nodes:
        if self.listed == ():
            raise ValueError("listed: names no node")
        counts = Counter(node.name for node in self.listed or ())
        if twice := next((name for name, count in counts.items() if count > 1), None):
            raise ValueError(f"listed: node {twice!r} is there twice")
        return self


class Limits(Document):
    """The most that one run may take. Once minutes or GPU-hours are spent, no further batch starts."""

    nodes: Annotated[int, Field(ge=1)] | None = None
    minutes: Annotated[float, Field(gt=0)] = 240
    gpu_hours: Annotated[float, Field(gt=0)] | None = None


class Storage(Document):
    """The file system under test. `directory` is relative to the project root when it is not absolute."""

    directory: Text
    name: Text = "storage"


class Repeatability(Document):
    """How well this cluster repeats itself, where that is worse or better than what suites assume."""

    tolerance: Annotated[float, Field(gt=0, lt=1)]
    warn_tolerance: Annotated[float, Field(gt=0, lt=1)]


class ClusterProfile(Document):
    """One cluster. Relative paths start at the project root."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    title: Text
    launcher: Literal["local", "kubernetes", "simulated"]
    device: Device
    accelerator: Accelerator
    fabric: Fabric
    nodes: Nodes
    storage: Storage
    hardware: Text | None = None
    """Key of the reference file; defaults to accelerator.model."""
    python: Text = sys.executable
    """Interpreter of the benchmark environment, as seen where benchmarks run."""
    programs: Text = "docker/bench"
    results: Text = "results"
    exclusions: tuple[Exclusion, ...] = ()
    limits: Limits = Limits()
    repeatability: Repeatability | None = None
    """Takes the place of the suite's baseline tolerances."""
    benchmarks: dict[str, dict[str, Scalar]] = {}
    """Parameters of benchmarks that depend on the cluster (sizes that fit); a suite's own parameters win."""
    images: dict[str, str] = {}
    """Image of each benchmark, by digest; `launcher` is that of launchers of groups of one node, where it differs."""
    kubernetes: Kubernetes | None = None
    simulation: dict[str, Any] = {}

    @property
    def origin(self) -> Origin:
        """Simulated clusters yield simulated numbers; everything else is measured."""
        return Origin.SIMULATED if self.launcher == "simulated" else Origin.MEASURED

    @property
    def reference_hardware(self) -> str:
        """Give the hardware key that references are looked up by."""
        return self.hardware or self.accelerator.model

    def path(self, text: str) -> Path:
        """Give a path of this profile, absolute."""
        path = Path(text)
        return path if path.is_absolute() else project_root() / path

    @model_validator(mode="after")
    def _launcher_fits_nodes(self) -> ClusterProfile:
        wanted = {"local": ("emulated",), "simulated": ("simulated",), "kubernetes": ("listed", "selector")}
        if all(getattr(self.nodes, form) is None for form in wanted[self.launcher]):
            raise ValueError(f"launcher {self.launcher} needs nodes.{' or nodes.'.join(wanted[self.launcher])}")
        return self

    @model_validator(mode="after")
    def _kubernetes_is_whole(self) -> ClusterProfile:
        settings = self.kubernetes
        if (self.launcher == "kubernetes") != (settings is not None):
            raise ValueError(f"launcher {self.launcher} {'has no' if settings else 'needs the'} section kubernetes")
        if settings is None:
            return self
        if not self.images:
            raise ValueError("launcher kubernetes needs images: the image of each benchmark")
        loose = sorted(name for name, image in self.images.items() if not _DIGEST.search(image))
        if loose and not settings.unpinned_images:
            more = f", nor {'does' if len(loose) == 2 else 'do'} {node_list(loose[1:])}" if loose[1:] else ""
            raise ValueError(
                f"images.{loose[0]}: {self.images[loose[0]]!r} names no digest (…@sha256:<64 hex digits>){more}; "
                "kubernetes.unpinned_images: true allows it"
            )
        if self.device is Device.GPU and self.accelerator.resource is None:
            raise ValueError("accelerator.resource is missing: nvidia.com/gpu, amd.com/gpu, …")
        relative = [name for name in ("programs", "python") if not Path(getattr(self, name)).is_absolute()]
        if relative:
            raise ValueError(f"{' and '.join(relative)} must be an absolute path: it is one inside the images")
        return self


def profile_folders() -> list[Path]:
    """Give the folders that profiles are looked for in: PLUMBLINE_PROFILES, then the shipped ones."""
    return search_path("PLUMBLINE_PROFILES", PROFILES)


def load_profile(name: str) -> ClusterProfile:
    """Read a profile by name or path, which is called as its file is. Raises ConfigError.

    The name decides whose baseline, results and lock are used: under another's name a cluster would be judged by its
    values.
    """
    path = find_document("cluster profile", name, profile_folders())
    profile = parse(ClusterProfile, load_yaml(path), str(path))
    check_name(path, "cluster", profile.name)
    return profile
