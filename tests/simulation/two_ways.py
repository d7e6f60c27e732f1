"""One simulated night, both ways: printed and read like any run, and as measurements without text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import make_plan, plan_data
from plumbline.indicators.derived import derive
from plumbline.simulation import deriving, launcher
from plumbline.simulation.faults import Scenario
from plumbline.simulation.layout import Layout, seed_of
from plumbline.simulation.measuring import Measured, measure
from plumbline.simulation.night import Night
from plumbline.simulation.sheets import COLUMNS, Frames, Sheet
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.readout import Readout, read_run

MOMENT = datetime(2026, 3, 1, 2, tzinfo=UTC)


def print_night(
    profile: ClusterProfile,
    suite: Suite,
    scenario: Scenario,
    moment: datetime,
    run_id: str,
    folder: Path,
    *,
    seal: bool = True,
) -> RunDirectory:
    """Write all evidence of a night and seal it."""
    faults = folder / f"{run_id}.yaml"
    faults.write_text(yaml.safe_dump(scenario.model_dump(mode="json", exclude_none=True)))
    plan = make_plan(
        profile, suite, static_inventory(profile, moment.date()), run_id=run_id, seed=seed_of(run_id)
    )  # fmt: skip
    run = RunDirectory.create(folder, profile.name, suite.name, run_id)
    run.write_evidence("profile", profile.model_dump(mode="json"))
    run.write_evidence("suite", suite.model_copy(update={"faults": str(faults)}).model_dump(mode="json"))
    run.write_evidence("environment", {"prepared_at": moment.isoformat()})
    run.write_evidence("plan", plan_data(plan))
    for batch in plan.batches:
        launcher.launch(profile, plan.batch(batch.batch_id), run.evidence, lambda text: None)
    if seal:
        run.seal(launcher.clock_of(run.evidence))
    return run


@dataclass(frozen=True, kw_only=True)
class BothWays:
    """The same night twice."""

    run: RunDirectory
    readout: Readout
    measured: Measured
    sheets: tuple[Sheet, ...]

    def rows_of_text(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(_plain(getattr(row, name)) for name in COLUMNS) for row in self.readout.measurements)

    def rows_without_text(self) -> Counter[tuple[Any, ...]]:
        layout = self.measured.layouts[0]
        frames = Frames(self.sheets, [node.name for node in layout.inventory])
        same = {
            "run_id": layout.run_id, "suite": layout.suite.name, "cluster": layout.profile.name, "origin": "simulated",
            "device": "gpu",
        }  # fmt: skip
        found = frames.night(self.sheets, 0, same)
        return Counter(tuple(map(_plain, row)) for row in found.astype(object).itertuples(index=False, name=None))

    def expected_of_text(self) -> Counter[tuple[str, str, str]]:
        return Counter((row.launch_id, row.indicator, row.params) for row in self.readout.expected)

    def expected_without_text(self) -> Counter[tuple[str, str, str]]:
        return Counter(
            (place.launch_id, kind.indicator, kind.params)
            for sheet in self.sheets
            for place in sheet.places
            for kind in sheet.kinds
        )


def both_ways(
    profile: ClusterProfile,
    suite: Suite,
    scenario: Scenario,
    folder: Path,
    *,
    moment: datetime = MOMENT,
    number: int = 1,
) -> BothWays:
    """Give a night both ways; `number` is the random part of its run id, which shuffles the nodes."""
    run = print_night(profile, suite, scenario, moment, f"{moment:%Y%m%dT%H%M%SZ}-{number:06x}", folder)
    plan = run.plan()
    readout = derive(read_run(run), plan=plan, profile=profile)
    measured = measure([Night.of(profile, scenario, moment)], [Layout.of(plan, profile, suite)])
    return BothWays(run=run, readout=readout, measured=measured, sheets=(*measured.sheets, *deriving.derive(measured)))


def differences(found: BothWays) -> list[str]:
    """Say in what the two ways differ; nothing where they are equal."""
    pairs = {
        "rows": (found.rows_without_text(), found.rows_of_text()),
        "expected rows": (found.expected_without_text(), found.expected_of_text()),
        "verdicts": (Counter(found.measured.verdicts[0]), Counter(found.readout.verdicts)),
    }
    return [
        f"{name}: {sum((a - b).values())} only without text, {sum((b - a).values())} only in the text, "
        f"such as {[*(a - b), *(b - a)][0]}"
        for name, (a, b) in pairs.items()
        if a != b
    ]


def _plain(value: Any) -> Any:
    import pandas as pd

    if value is None or value is pd.NA or value != value:
        return None
    value = getattr(value, "value", value)
    return value.item() if hasattr(value, "item") else value
