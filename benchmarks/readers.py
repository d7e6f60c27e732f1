"""How fast readers are and whether their memory stays constant: python -m benchmarks.readers NAME KIND BYTES."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast

from benchmarks.child import Cost, answer, in_child
from benchmarks.section import Options, Row, Section
from benchmarks.streams import CASES, Stream
from plumbline.errors import OutputError
from plumbline.readers import Completeness, Item, Source, reader

METHOD = """\
Each figure comes from a fresh process that reads a stream made in memory, so that no disk takes part: *noise* is what
surrounds records (NCCL INFO lines, training progress, kernel messages) with one whole output in the middle, *table* is
records only. MB/s is 10⁶ bytes per CPU second of that one thread, what making the stream takes not counted; the better
of two processes counts, because whatever disturbs one only slows it, and the other is shown beside it. Growth is
the difference of the peak resident memory between a long stream and one of a quarter of that length: constant memory
means next to none. Readers of documents hold the document, and some hold the readings until the last is checked: there
growth has no limit, and a document's length has one."""

METHOD_HUGE = """\
As above, once each, by those readers that hold neither the document nor its readings."""

NOISE_LEAST, TABLE_LEAST = 50.0, 10.0
GROWTH_MOST_MIB = 8.0
ROUNDS = 2
HUGE = 1 << 31


def read_case(name: str, kind: str, length: int) -> dict[str, Any]:
    """Read one stream; give bytes, CPU seconds without those that making the stream took, items and the status."""
    making, given = 0.0, 0

    def timed(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal making, given
        while True:
            start = time.process_time()
            piece = next(pieces, b"")
            making += time.process_time() - start
            if not piece:
                return
            given += len(piece)
            yield piece

    stream = cast(BinaryIO, Stream(timed(CASES[name, kind].pieces(length)), length))
    module, items, status = reader(name), 0, None
    item: Item | None = None
    start = time.process_time()
    try:
        for items, item in enumerate(module.read(Source(stream, f"{name} {kind}"), {}), 1):  # noqa: B007 - the last
            pass
    except OutputError as error:
        status = f"refused: {error}"
    cpu = time.process_time() - start - making
    status = item.status.value if isinstance(item, Completeness) else status
    return {"bytes": given, "cpu_s": cpu, "items": items, "status": status, "mb_per_s": given / 1e6 / cpu,
            "keeps": CASES[name, kind].keeps}  # fmt: skip


def measure(options: Options) -> Section:
    """Measure every case at two lengths; at 2 GiB, those that hold nothing, once."""
    rows: list[Row] = []
    raw: dict[str, Any] = {}
    for (name, kind), case in CASES.items():
        if options.huge and (case.keeps or case.most < HUGE):
            continue
        long = min(_length(kind, options), case.most)
        short = min(long // 4, 64 << 20)
        rounds = 1 if options.huge or options.quick else ROUNDS
        found = [in_child("benchmarks.readers", [name, kind, str(length)]) for length in (short, *[long] * rounds)]
        rows += _rows(f"{name}, {kind}", short, long, found[0], found[1:])
        raw[f"{name} {kind}"] = [{**cost.answer, "peak_mib": cost.peak_mib} for cost in found]
    if options.huge:
        return Section(name="readers_huge", title="Readers: 2 GiB at constant memory", method=METHOD_HUGE, rows=rows,
                       raw=raw)  # fmt: skip
    return Section(name="readers", title="Readers: megabytes a second at constant memory", method=METHOD, rows=rows,
                   raw=raw)  # fmt: skip


def _length(kind: str, options: Options) -> int:
    """Give the bytes of the long stream."""
    if options.huge:
        return HUGE
    if options.quick:
        return 16 << 20
    return 128 << 20 if kind == "noise" else 64 << 20


def _rows(name: str, short: int, long: int, first: Cost, rounds: Sequence[Cost]) -> Iterator[Row]:
    speeds = [cost.answer["mb_per_s"] for cost in rounds]
    told, keeps = rounds[0].answer, rounds[0].answer["keeps"]
    least = NOISE_LEAST if name.endswith("noise") else TABLE_LEAST
    spread = f"{long >> 20} MiB, {told['items']} items, status {told['status']}"
    if len(speeds) > 1:
        spread += f"; the other: {min(speeds):.4g}"
    yield Row(name=name, value=max(speeds), unit="MB/s", spread=spread, limit=f"≥ {least:g}",
              held=max(speeds) >= least)  # fmt: skip
    peak = max(cost.peak_mib for cost in rounds)
    growth = peak - first.peak_mib
    spread = f"peak {peak:.0f} MiB" + (f", holds {keeps}" if keeps else "")
    yield Row(name=f"{name}: growth from {short >> 20} MiB", value=growth, unit="MiB", spread=spread,
              limit="" if keeps else f"≤ {GROWTH_MOST_MIB:g}",
              held=None if keeps else growth <= GROWTH_MOST_MIB)  # fmt: skip


if __name__ == "__main__":
    answer(read_case(sys.argv[1], sys.argv[2], int(sys.argv[3])))
