"""The scoreboard as one page of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plumbline.amounts import plural
from plumbline.scoreboard.campaign import AGEING_HORIZON, HISTORY_NIGHTS, HORIZON, Failure, Setting
from plumbline.scoreboard.detectors import DETECTORS, GATE
from plumbline.scoreboard.scenarios import BANDS, WHOLE, bands_of, kinds
from plumbline.scoreboard.scoring import ALL, FAULTS_A_YEAR, Alarms, Cell, Share

Cells = Mapping[tuple[str, str, str], Cell]
Cause = tuple[tuple[str, str, str, int, str], int]


def page(
    setting: Setting,
    summary: Mapping[str, Any],
    scored: Sequence[Cell],
    quiet: Sequence[Alarms],
    causes: Sequence[Cause],
    failures: Sequence[Failure],
) -> str:
    """Give the page, ending in a newline."""
    of: Cells = {(cell.detector, cell.kind, cell.band): cell for cell in scored}
    parts = [
        _head(setting, summary),
        _failed(failures, summary),
        _false_alarms(quiet, causes),
        _overall(of, next(item for item in quiet if item.detector == GATE)),
        _recall(of),
        _by_detector(of),
        _nights(of),
        _naming(of),
        _method(setting),
    ]
    return "\n".join(parts)


def _head(setting: Setting, summary: Mapping[str, Any]) -> str:
    seeds = summary["seeds"]
    lines = [
        "# Scoreboard: how well planted faults are found",
        "",
        "**SIMULATED. No hardware was measured: these figures tell about detectors, not about any cluster.**",
        "Written by `plumbline scoreboard`; don't edit.",
        "",
        f"`{summary['command']}`, commit {summary['commit']}; {seeds['count']} seeds of `{seeds['file']}` "
        f"(SHA-256 {seeds['sha256'][:12]}…); {summary['scenarios']} scenarios and "
        f"{summary['cluster_years_without_fault']:.1f} cluster-years without a fault on "
        f"{plural(summary['nodes'], 'node')} "
        f"({setting.profile.title}), suite {summary['suite']}.",
        "",
    ]
    if summary["quick"]:
        lines += ["**QUICK: a few seeds only. It shows that everything runs and is far too small for any claim.**", ""]
    for text in summary["too_small"]:
        lines += [f"**Too small for a claim: {text}.**", ""]
    if seeds["development"]:
        lines += ["**Development seeds: detectors were tuned on them, so these scores flatter.**", ""]
    return "\n".join(lines)


def _failed(failures: Sequence[Failure], summary: Mapping[str, Any]) -> str:
    if not failures:
        return f"All {summary['scenarios']} scenarios ran.\n"
    rows = [[item.what, item.error] for item in failures]
    return f"## What did not run ({len(failures)})\n\nNone of these is in any figure below.\n\n" + _table(
        ["what", "why"], rows
    )


def _false_alarms(quiet: Sequence[Alarms], causes: Sequence[Cause]) -> str:
    rows = []
    for item in quiet:
        low, high = item.interval
        rate = "no exposure" if item.rate is None else f"{item.rate:.2f} ({low:.2f} to {high:.2f})"
        precision = "–"
        if item.precision is not None and item.least_precision is not None:
            precision = f"{item.precision:.1%} (at least {item.least_precision:.1%})"
        rows.append(
            [item.detector, str(item.nights), rate, _share(item.on_component), precision, DETECTORS[item.detector]]
        )
    text = _section(
        "False alarms and precision",
        f"""Nights with an alarm while nothing is broken, a cluster and year, with the exact 95 % Poisson
        interval. *On the component*: of the nights with an alarm in scenarios, up to the first that is on the
        broken component, those that are. *Precision*: of all alarms, those of a fault (at least: with the
        most false alarms that the interval allows), were there {FAULTS_A_YEAR:g} faults a year of the mixture
        below.""",
    )
    text += _table(["detector", "nights", "per cluster-year", "on the component", "precision", "what it is"], rows)
    if causes:
        shown = [[rule, f"{b}/{i}", str(n), f"`{p}`", str(count)] for (rule, b, i, n, p), count in causes]
        text += "\nWhat raised them, by rows:\n\n"
        text += _table(["rule or code", "indicator", "nodes", "parameters", "rows"], shown)
    return text


def _overall(of: Cells, gate: Alarms) -> str:
    rows = [
        [band, str(cell.recall.of), _share(cell.recall), _share(cell.first_night)]
        for band in (*BANDS, WHOLE, ALL)
        if (cell := of.get((GATE, ALL, band))) is not None
    ]
    text = _section(
        "Recall of the gate, all kinds together",
        f"""Every kind counts alike, whatever is common in reality. With 95 % Wilson intervals; all scenarios of
        one seed meet the same nights. False alarms alone would find at most {gate.by_chance(HORIZON):.2%} in
        {HORIZON} nights.""",
    )
    return text + _table(["severity", "scenarios", "found", "in the first night"], rows)


def _recall(of: Cells) -> str:
    rows = []
    for kind in kinds():
        cells = {band: of.get((GATE, kind, band)) for band in (*BANDS, WHOLE)}
        rows.append([kind, *(_share(cell.recall) if cell else "" for cell in cells.values())])
    ranges = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in BANDS.items())
    text = _section(
        "Recall of the gate by kind and severity",
        f"""Severity: {ranges}; what that is of each kind is in `include/plumbline/simulation/faults.py`. Faults without
        a degree are under *{WHOLE}*.""",
    )
    return text + _table(["kind", *BANDS, WHOLE], rows)


def _by_detector(of: Cells) -> str:
    names = [name for name in DETECTORS if name != GATE]
    rows = [
        [kind, *(_share(cell.recall) if (cell := of.get((name, kind, ALL))) else "" for name in names)]
        for kind in (*kinds(), ALL)
    ]
    text = _section(
        "Recall of each detector, all severities",
        """Faults that fail launches are followed only until the gate closes on them, so that the other detectors have
        one night or few.""",
    )
    return text + _table(["kind", *names], rows)


def _nights(of: Cells) -> str:
    rows = []
    for kind in kinds():
        horizon = AGEING_HORIZON if kind == "ageing_port" else HORIZON
        for band in bands_of(kind):
            if (cell := of.get((GATE, kind, band))) is not None:
                shown = (f"> {horizon}" if night is None else str(night) for night in cell.nights)
                rows.append([kind, band, *shown, str(cell.censored)])
    text = _section(
        "Nights until the gate closes",
        """The night, from 1, by which a part of all scenarios was found. *Censored*: not found in the nights that they
        were followed.""",
    )
    return text + _table(["kind", "severity", "25 %", "median", "75 %", "90 %", "censored"], rows)


def _naming(of: Cells) -> str:
    rows = [
        [kind, _share(cell.exact), _share(cell.held), f"{cell.named_nodes:g}", f"{cell.suspects:g}",
         _share(cell.suspected), _share(cell.part)]
        for kind in (*kinds(), ALL)
        if (cell := of.get((GATE, kind, ALL))) is not None and cell.recall.found
    ]  # fmt: skip
    text = _section(
        "What the alarms name",
        """Of the faults that were found, in the night in which they were. Nothing is tested beyond the ladder:
        **0 tests, 0 rounds, 0 GPU-minutes** for each fault found. What the ladder's groups name: *exact*, the
        smallest groups with an alarm are the broken component and nothing else (a shared resource: only its
        benchmarks alarm); *held*, it is among them; *nodes*, how many nodes they hold (median). *Suspects*:
        nodes left when the groups of all alarmed rungs are laid over each other (nobody does that for the
        operator today), and how often the broken one is left. *GPU*: a message names the very GPU; no message
        names a rail, a leaf or a storage server.""",
    )
    header = ["kind", "exact", "held", "nodes", "suspects", "broken one left", "GPU"]
    return text + _table(header, rows)


def _method(setting: Setting) -> str:
    baseline = setting.suite.baseline
    items = [
        f"""For every seed one cluster ({setting.profile.title}). Truth, noise and which nodes form a group come from
        the seed; the simulator's assumptions are in `include/plumbline/simulation/`. Real clusters have faults and
        noise that it has not.""",
        f"""{HISTORY_NIGHTS} healthy nights first: those whose gate is open are approved and set the baseline (window
        {baseline.window}, tolerance {baseline.tolerance:g}, {baseline.sigmas:g} deviations), which then stays.""",
        f"""Then {setting.year_nights} nights without a fault, and apart from them one fault of every kind and
        severity, in a component that the seed chooses, followed for {HORIZON} nights ({AGEING_HORIZON} for a port
        that ages). An alarm counts when it is on something that the broken component takes part in.""",
        """What a launch or a GPU says of itself is there whenever the fault is: a throttled GPU, a narrow PCIe link and
        memory rows to be remapped show in the snapshot after every launch. The detector *records* finds them by
        construction; on a real cluster a throttled GPU may have recovered by then.""",
        """Values are those that reading the simulated output gives, and verdicts those of `plumbline judge`: tests hold
        both equal, row by row (`tests/simulation/test_measuring.py`, `tests/scoreboard/test_judging.py`). Launches that
        fail are printed and read.""",
    ]
    return "\n".join(["## What was simulated", "", *(f"- {_flow(item)}" for item in items), ""])


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{_flow(text)}\n\n"


def _flow(text: str) -> str:
    return " ".join(text.split())


def _share(share: Share) -> str:
    if share.value is None:
        return "–"
    low, high = share.interval
    return f"{share.value:.1%} ({low:.1%} to {high:.1%})"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, ""])
