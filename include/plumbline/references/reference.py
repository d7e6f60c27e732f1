"""References: what hardware is expected to do, read from YAML, checked, and looked up for one kind of row.

A gate must not open because a threshold vanished, so a file says twice what it holds: `count` is the number of its
references, `required` names the benchmark/indicator pairs that must have bounds in it, and a reference without a bound
on its indicator's bad side is refused. An emptied file, a lost row or a lost bound is therefore a ConfigError, and
files in PLUMBLINE_REFERENCES must require at least what the shipped file for the same hardware requires.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from plumbline.configuration import Document, load_yaml, parse, search_path
from plumbline.errors import ConfigError, near_match
from plumbline.indicators import indicator, indicators
from plumbline.model import Better, Indicator, Params, Reference, Scalar, to_plain
from plumbline.units import check_unit

FOLDER = Path(__file__).parent
ANY = "*"
"""As `hardware`: any hardware (all-hardware.yaml). As `benchmark`: any that has the indicator."""


class ReferenceRow(Document):
    """One reference as written in YAML; see model.Reference for what the fields mean."""

    benchmark: str
    indicator: str
    fabric: str | None = None
    node_counts: tuple[Annotated[int, Field(ge=1)], ...] = ()
    concurrency: Literal["isolated", "full"] | None = None
    benchmark_version: str | None = None
    match: dict[str, Scalar] = {}
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    warn_lower: float | None = None
    warn_upper: float | None = None
    unit: str
    source: Annotated[str, Field(min_length=3)]
    date: datetime.date
    note: str = ""
    kind: Literal["published", "physical", "approved_history", "vendor", "contract"] = "published"


class ReferenceFile(Document):
    """One hardware's references. `count` and `required` are the second place that a lost row disagrees with."""

    hardware: Annotated[str, Field(min_length=1)]
    title: str
    accelerators_per_node: Annotated[int, Field(ge=1)] | None = None
    """What values of a whole node are for; lint compares them with data sheets by it."""
    count: Annotated[int, Field(ge=1)]
    required: tuple[Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")], ...]
    references: Annotated[tuple[ReferenceRow, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSet:
    """The references for one cluster: its hardware's file and the one for all hardware."""

    hardware: str
    files: tuple[ReferenceFile, ...]
    references: tuple[Reference, ...]

    @property
    def required(self) -> frozenset[tuple[str, str]]:
        """(benchmark, indicator) pairs that the files say must have bounds."""
        return frozenset((b, i) for f in self.files for b, _, i in (pair.partition("/") for pair in f.required))

    def find(
        self,
        *,
        benchmark: str,
        benchmark_version: str,
        indicator: str,
        node_count: int,
        concurrency: str,
        fabric: str,
        params: Params,
        physical: bool,
    ) -> Reference | None:
        """Give the most specific reference for a row, or None. Raises ConfigError when two are equally specific.

        Physical bounds and expectations are looked up apart (`physical`): the one must never hide the other.
        """
        found = [
            item
            for item in self.references
            if (item.kind == "physical") is physical
            and item.indicator == indicator
            and item.benchmark in (benchmark, ANY)
            and item.benchmark_version in (None, benchmark_version)
            and (not item.node_counts or node_count in item.node_counts)
            and item.concurrency in (None, concurrency)
            and item.fabric in (None, fabric)
            and all(_same(params.get(key), value) for key, value in item.match.items())
        ]
        found.sort(key=specificity, reverse=True)
        if len(found) > 1 and specificity(found[0]) == specificity(found[1]):
            raise ConfigError(f"two references are equally specific: {describe(found[0])} and {describe(found[1])}")
        return found[0] if found else None


def specificity(item: Reference) -> int:
    """Say how narrow a reference is: the number of things that it asks of a row."""
    asked = (item.fabric, item.concurrency, item.benchmark_version, item.node_counts or None)
    named = (item.hardware != ANY) + (item.benchmark != ANY)
    return named + sum(part is not None for part in asked) + len(item.match)


def describe(item: Reference) -> str:
    """Name a reference for people: 'H100-SXM5-80GB nccl_tests/bus_bandwidth, node count 1, operation all_reduce'."""
    parts = [f"{item.hardware} {item.benchmark}/{item.indicator}"]
    if item.node_counts:
        parts.append(f"node count {', '.join(map(str, item.node_counts))}")
    parts += [f"{key} {value}" for key, value in item.match.items()]
    parts += [str(part) for part in (item.fabric, item.concurrency, item.benchmark_version) if part]
    return ", ".join(parts)


def _same(left: Scalar, right: Scalar) -> bool:
    """Compare a parameter as numbers where both are numbers: 8.0 is 8, but '8' is not, nor is True 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


# -- loading -----------------------------------------------------------------------------------------------------


def reference_folders() -> list[Path]:
    """Give the folders that references are looked for in: PLUMBLINE_REFERENCES, then the shipped ones."""
    return search_path("PLUMBLINE_REFERENCES", FOLDER)


def load_references(hardware: str, folders: Sequence[Path] | None = None) -> ReferenceSet:
    """Read the references for a hardware key and those for all hardware; earlier folders win. Raises ConfigError."""
    shipped = {file.hardware: file for _, file in read_folder(FOLDER)}
    found: dict[str, tuple[Path, ReferenceFile]] = {}
    for folder in reference_folders() if folders is None else folders:
        for path, file in read_folder(folder):
            found.setdefault(file.hardware, (path, file))
    for wanted in (hardware, ANY):
        if wanted not in found:
            known = [name for name in found if name != ANY]
            raise ConfigError(f"no references for hardware {wanted!r}{near_match(wanted, known)}")
        path, file = found[wanted]
        if wanted in shipped and (lost := sorted(set(shipped[wanted].required) - set(file.required))):
            raise ConfigError(f"{path}: required must contain {', '.join(lost)}, as the shipped file does")
    return _reference_set(hardware, [found[hardware], found[ANY]])


def read_folder(folder: Path) -> Iterator[tuple[Path, ReferenceFile]]:
    """Give every reference file of a folder, checked by itself. Raises ConfigError, also for a hardware twice."""
    seen: dict[str, Path] = {}
    for path in sorted(folder.glob("*.yaml")):
        file = parse(ReferenceFile, load_yaml(path), str(path))
        if file.hardware in seen:
            raise ConfigError(f"{path}: hardware {file.hardware!r} is already in {seen[file.hardware].name}")
        seen[file.hardware] = path
        yield path, file


def references_data(references: ReferenceSet) -> dict[str, Any]:
    """Give a reference set as plain data, headers included."""
    return {"hardware": references.hardware, "files": [to_plain(f.model_dump(mode="json")) for f in references.files]}


def references_from(data: Mapping[str, Any]) -> ReferenceSet:
    """Read a reference set back, with every check again. Raises ConfigError or KeyError."""
    where = Path("references.json")
    return _reference_set(data["hardware"], [(where, parse(ReferenceFile, f, where.name)) for f in data["files"]])


def _reference_set(hardware: str, files: Sequence[tuple[Path, ReferenceFile]]) -> ReferenceSet:
    if [file.hardware for _, file in files] != [hardware, ANY]:
        raise ConfigError(f"references for {hardware!r} need its own file and the one for all hardware")
    references: list[Reference] = []
    for path, file in files:
        if len(file.references) != file.count:
            raise ConfigError(f"{path}: count says {file.count} references, the file holds {len(file.references)}")
        own = [_reference(file.hardware, row, f"{path.name}: references[{i}]") for i, row in enumerate(file.references)]
        _check_required(path.name, file, own)
        references += own
    _check_ambiguity(references)
    return ReferenceSet(hardware=hardware, files=tuple(f for _, f in files), references=tuple(references))


def _reference(hardware: str, row: ReferenceRow, where: str) -> Reference:
    where = f"{where} ({row.benchmark}/{row.indicator})"
    try:
        check_unit(row.unit)
        meant = _meant(row)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    for item in meant:
        if item.unit != row.unit:
            raise ConfigError(f"{where}: unit {row.unit!r} is not the indicator's, which is {item.unit!r}")
    _check_bounds(row, meant, where)
    data = row.model_dump(exclude={"date"})
    return Reference(**data, hardware=hardware, date=row.date.isoformat())


def _meant(row: ReferenceRow) -> list[Indicator]:
    if row.benchmark != ANY:
        return [indicator(row.benchmark, row.indicator)]
    known = indicators()
    meant = [item for (_, name), item in known.items() if name == row.indicator]
    if not meant:
        names = {name for _, name in known}
        raise ConfigError(f"no benchmark has indicator {row.indicator!r}{near_match(row.indicator, names)}")
    return meant


def _check_bounds(row: ReferenceRow, meant: Iterable[Indicator], where: str) -> None:
    ordered = [row.lower, row.warn_lower, row.value, row.warn_upper, row.upper]
    given = [bound for bound in ordered if bound is not None]
    if given != sorted(given):
        raise ConfigError(f"{where}: bounds must be ordered lower ≤ warn_lower ≤ value ≤ warn_upper ≤ upper")
    for item in meant:
        lost = {Better.HIGHER: row.lower is None, Better.LOWER: row.upper is None}.get(
            item.better, row.lower is None and row.upper is None
        )
        if lost:
            side = {Better.HIGHER: "lower", Better.LOWER: "upper"}.get(item.better, "lower or upper")
            raise ConfigError(f"{where}: {side} bound is missing: without it nothing could fail")


def _check_required(name: str, file: ReferenceFile, references: Iterable[Reference]) -> None:
    present = {f"{item.benchmark}/{item.indicator}" for item in references}
    if lost := sorted(set(file.required) - present):
        raise ConfigError(f"{name}: required, but without a reference: {', '.join(lost)}")
    if free := sorted(present - set(file.required)):
        raise ConfigError(f"{name}: has references, but is not listed in required: {', '.join(free)}")


def _check_ambiguity(references: Sequence[Reference]) -> None:
    """Refuse two references that one row could match and of which neither is the narrower."""
    by_name: dict[tuple[str, bool], list[Reference]] = {}
    for item in references:
        by_name.setdefault((item.indicator, item.kind == "physical"), []).append(item)
    for group in by_name.values():
        for left, right in combinations(group, 2):
            if specificity(left) == specificity(right) and _can_meet(left, right):
                raise ConfigError(f"one row could match both {describe(left)} and {describe(right)}")


def _can_meet(left: Reference, right: Reference) -> bool:
    pairs = (
        (left.benchmark if left.benchmark != ANY else None, right.benchmark if right.benchmark != ANY else None),
        (left.fabric, right.fabric),
        (left.concurrency, right.concurrency),
        (left.benchmark_version, right.benchmark_version),
    )
    if any(a is not None and b is not None and a != b for a, b in pairs):
        return False
    if left.node_counts and right.node_counts and not set(left.node_counts) & set(right.node_counts):
        return False
    return all(_same(left.match[key], right.match[key]) for key in set(left.match) & set(right.match))
