"""Simulated nights as measurements, without text: what reading the printed output gives, many nights at once.

Values come from the functions that the printers take theirs from, rounded as printed. A launch whose output is more
than its numbers (it failed, was cut short, gave wrong results, or its clock is off) is printed and read after all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.execution.plan import Gap, Plan, plan_data
from plumbline.model import LaunchSpec, Outcome, RunRecord, Verdict, verdict
from plumbline.simulation.launcher import PAUSE_S, duration_s, leave, snapshots
from plumbline.simulation.layout import Layout, same_shape
from plumbline.simulation.night import Night, Nights
from plumbline.simulation.outputs import outputs
from plumbline.simulation.sheets import Sheet
from plumbline.simulation.truth import Truth
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.readout import Readout, read_run
from plumbline.validation.record_checks import CLOCK_TOLERANCE, launch_fields, launch_place
from plumbline.validation.snapshot_checks import snapshot_problems

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rows = Mapping[int, Sequence[int]]
"""Step → rows of its launches."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What nights of one cluster yield before anything is derived: T nights."""

    nights: Nights
    layouts: tuple[Layout, ...]
    sheets: tuple[Sheet, ...]
    """One a step of the layout, in order."""
    verdicts: tuple[tuple[Verdict, ...], ...]
    """Of each night: what records and outputs say against their launches, as readout.read_run tells it."""


def measure(nights: Sequence[Night], layouts: Sequence[Layout], *, ask_gpus: Sequence[bool] | None = None) -> Measured:
    """Measure nights of one cluster side by side. `layouts` is each night's plan; they differ in their shuffles only.

    `ask_gpus` says for which nights `verdicts` has to hold what GPUs say of themselves; None is for all.
    Raises ValueError for layouts of different steps.
    """
    if not same_shape(layouts):
        raise ValueError("nights side by side need plans of the same steps")
    together = Nights.of(nights)
    sheets, odd = [], []
    for number in range(len(layouts[0].steps)):
        sheet, out_of_line = _sheet(together, layouts, number)
        sheets.append(sheet)
        odd.append(out_of_line)
    verdicts = []
    for t, (night, layout) in enumerate(zip(nights, layouts, strict=True)):
        rows = {number: found for number, marks in enumerate(odd) if (found := marks[t].nonzero()[0].tolist())}
        read: tuple[Verdict, ...] = ()
        if rows:
            readout = read_from_text(night, layout, rows)
            _fill(sheets, t, layout, readout)
            read = readout.verdicts
        said = _said_by_gpus(night, layout, rows) if ask_gpus is None or ask_gpus[t] else ()
        verdicts.append((*gap_verdicts(layout.gaps), *read, *said))
    return Measured(nights=together, layouts=tuple(layouts), sheets=tuple(sheets), verdicts=tuple(verdicts))


def _sheet(nights: Nights, layouts: Sequence[Layout], number: int) -> tuple[Sheet, NDArray[Any]]:
    """Give one step's sheet, and which of its launches must be read from text, [T, M]."""
    import numpy as np

    step = layouts[0].steps[number]
    rung = nights.rung(step.spec, [layout.indices[number] for layout in layouts])
    values, tells_more = outputs(step.spec.benchmark).values(nights, rung)
    shape = (len(layouts), len(step.places))
    odd = (tells_more | _troubled(nights.truth, step.spec.benchmark)[rung.groups.index].any(axis=1)).reshape(shape)
    values = values.reshape(*shape, len(step.kinds))
    values[odd] = np.nan
    sheet = Sheet(
        benchmark=step.spec.benchmark,
        benchmark_version=step.spec.benchmark_version,
        node_count=step.spec.node_count,
        kinds=step.kinds,
        places=step.places,
        nodes=np.stack([layout.indices[number][:, 0] for layout in layouts]) if rung.groups.nodes == 1 else None,
        values=values,
    )
    return sheet, odd


def _troubled(truth: Truth, benchmark: str) -> NDArray[Any]:
    """Say of each node whether launches of a benchmark with it don't end well, or tell wrong times."""
    import numpy as np

    found = truth.lost | ~truth.present.all(axis=1) | (truth.clock_offset_s > CLOCK_TOLERANCE.total_seconds())
    for node, which in (*truth.hang, *truth.truncated):
        found[node] |= which in (None, benchmark)
    return np.asarray(found)


def gap_verdicts(gaps: Sequence[Gap]) -> Iterator[Verdict]:
    """Say what a plan does not measure, as readout.read_run does."""
    for gap in gaps:
        yield verdict(
            gap.code, gap.place, gap.reason, benchmark=gap.benchmark, node=gap.node, node_count=gap.node_count
        )


# -- launches that are read from text --------------------------------------------------------------------------------


def read_from_text(night: Night, layout: Layout, rows: Rows) -> Readout:
    """Print those launches of a night and read them as those of any run: their rows and all that is said of them."""
    plan = layout.plan
    ids = {layout.steps[number].places[row].launch_id for number, found in rows.items() for row in found}
    chosen = replace(
        plan,
        launches=tuple(spec for spec in plan.launches if spec.launch_id in ids),
        batches=tuple(replace(b, launch_ids=tuple(i for i in b.launch_ids if i in ids)) for b in plan.batches),
        gaps=(),
    )
    in_memory = Path("/dev/shm")  # noqa: S108 - where there is none, any temporary folder does
    with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else None, prefix="plumbline-") as folder:
        run = RunDirectory.create(Path(folder), plan.cluster, plan.suite, plan.run_id)
        for name, data in (
            ("plan", plan_data(chosen)), ("profile", layout.profile.model_dump(mode="json")), ("environment", {}),
        ):  # fmt: skip
            run.write_evidence(name, data)
        _leave_all(night, plan, layout, rows, run)
        return read_run(run)


def _leave_all(night: Night, plan: Plan, layout: Layout, rows: Rows, run: RunDirectory) -> None:
    """Leave output and records with the times that they have in the whole night, and seal."""
    by_id = {spec.launch_id: spec for spec in plan.launches}
    clock = night.moment
    for number, step in enumerate(layout.steps):
        found = rows.get(number, ())
        longest = 0.0
        if found:
            specs = [by_id[place.launch_id] for place in step.places]
            longest = leave(night, specs, found, run.evidence, clock)
        if len(found) < len(step.places):
            longest = max(longest, duration_s(step.spec, hangs=False))
        clock += timedelta(seconds=longest + PAUSE_S)
    run.seal(clock)


def _fill(sheets: Sequence[Sheet], t: int, layout: Layout, readout: Readout) -> None:
    """Put what was read into its place in the sheets; a row that no sheet has is in no plan."""
    place = {p.launch_id: (n, m) for n, step in enumerate(layout.steps) for m, p in enumerate(step.places)}
    kind = [{(k.indicator, k.params): i for i, k in enumerate(step.kinds)} for step in layout.steps]
    for row in readout.measurements:
        number, m = place[row.launch_id]
        if (k := kind[number].get((row.indicator, row.params))) is not None:
            sheets[number].values[t, m, k] = row.value


# -- what GPUs say of themselves -------------------------------------------------------------------------------------


def _said_by_gpus(night: Night, layout: Layout, already: Rows) -> Iterator[Verdict]:
    """Give what the snapshots of launches hold against their GPUs, of launches that were not read from text."""
    import numpy as np

    truth = night.truth
    unsound = ((truth.throttle != 0) | (truth.retired != 0) | (np.rint(16 * truth.pcie) != 16)).any(axis=1)
    if not unsound.any():
        return
    for number, index in enumerate(layout.indices):
        for row in unsound[index].any(axis=1).nonzero()[0].tolist():
            if row not in already.get(number, ()):
                spec = layout.spec(number, row)
                shown = _shown(spec, {truth.names[i] for i in index[row][unsound[index[row]]].tolist()})
                for code, message in snapshot_problems(shown, _record(night, shown)):
                    yield verdict(code, launch_place(spec), message, **launch_fields(spec))


def _shown(spec: LaunchSpec, unsound: Set[str]) -> LaunchSpec:
    """Give the launch on those of its nodes whose GPUs have something to say, and still on several if it was."""
    if len(spec.nodes) == 1:
        return spec
    sound = next((name for name in spec.nodes if name not in unsound), None)
    return replace(spec, nodes=tuple(name for name in spec.nodes if name in unsound or name == sound))


def _record(night: Night, spec: LaunchSpec) -> RunRecord:
    """Give as much of the record of a launch that ended well as its snapshots need."""
    return RunRecord(
        launch_id=spec.launch_id, run_id=spec.run_id, cluster=spec.cluster, attempt=1, spec_sha256="",
        outcome=Outcome.EXITED, exit_code=0, signal=None, reason="", argv=spec.argv, hosts=spec.nodes, started_at="",
        ended_at="", duration_s=0.0, origin=spec.origin, device=spec.device, snapshots=snapshots(night, spec.nodes),
        raw_dir="",
    )  # fmt: skip
