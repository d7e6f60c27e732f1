"""One run of one test program: what it announced, what it printed, and whether that is all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.readers._nccl_rows import Plan, block_readings, row_readings
from plumbline.readers._nccl_table import Block, Layout, Row, announced_rows
from plumbline.readers.reading import Reading, Status
from plumbline.sums import added

_HELD_ROWS = 5000
"""Rows are held until the run's name is known; of a longer table the rest is handed out as it comes."""
_ROWS_AT_ONCE = 200
_PRINTED = 0.011
"""Two tellings of one run differ at most by the rounding to two decimals."""
_RATIO_GBPS = 1.0
"""From here on the printed bandwidths have three digits, enough to tell operations by bus ÷ algorithm bandwidth."""
_RATIO_TOLERANCE = 0.02

SEVERITY = (Status.COMPLETE, Status.UNKNOWN, Status.INCOMPLETE, Status.NOT_STARTED, Status.ABORTED, Status.FAILED)


@dataclass(slots=True)
class _Sweep:
    """The sizes of the rows that agree in type, reduction and root."""

    rows: int = 0
    size: int = -1
    twice: int = 0
    """Rows of the same size as the row before: a sweep by a factor has none."""
    seen: dict[int, int] = field(default_factory=dict)

    def see(self, size: int) -> int:
        """Take over a row, and say how often its size came before.

        It comes again with -N, and where sizes round to the same one (-b 1 gives size 0 twice).
        """
        self.rows += 1
        self.twice += size == self.size and size > 0
        self.size = size
        repeat = self.seen.get(size, 0)
        if repeat or len(self.seen) < _HELD_ROWS:
            self.seen[size] = repeat + 1
        return repeat


@dataclass(slots=True, kw_only=True)
class Run:
    """A run as it grows. Every number of it that the reader gives is kept or counted here."""

    index: int
    operation: str | None = None
    settings: dict[str, int | bool] = field(default_factory=dict)
    memory_limit: int | None = None
    ranks: list[dict[str, Any]] = field(default_factory=list)
    nranks: int | None = None
    """How many ranks the tool says it has; None where only the list of ranks tells."""
    duplicate: bool = False
    """Whether it tells again what another run tells, in another format."""
    begun: bool = False
    """Whether the table was begun."""
    layout: Layout | None = None
    has_footer: bool = True
    """False for reports that end without one."""
    rows: int = 0
    torn: str | None = None
    cut: str | None = None
    """Why the output is known to stop early."""
    elided: bool = False
    out_of_bounds: int | None = None
    oob_status: str | None = None
    average: float | None = None
    average_status: str | None = None
    average_seen: bool = False
    wrong_rows: int = 0
    first_wrong: str = ""
    not_checked: int = 0
    unchecked_out_of_place: int = 0
    worst_error: float | None = None
    best: tuple[float, int] | None = None
    """The highest bus bandwidth and the size it was seen at."""
    smallest: int | None = None
    largest: Row | None = None
    dtypes: dict[str, None] = field(default_factory=dict)
    operators: dict[str, None] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    _plan: Plan | None = None
    _bandwidth_sum: float = 0.0
    _bandwidth_count: int = 0
    _held: list[tuple[Row, int]] = field(default_factory=list)
    _sweeps: dict[tuple[str, str | None, int | None], _Sweep] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether both closing lines were read."""
        return self.out_of_bounds is not None and self.average_seen

    @property
    def rank_count(self) -> int | None:
        """How many ranks took part, or None where nothing says so.

        The list of ranks may have been shortened (by hand, or at 2 KiB by the tool): the highest number tells then.
        """
        if self.nranks is not None or not self.ranks:
            return self.nranks
        numbers = {rank["rank"] for rank in self.ranks if isinstance(rank.get("rank"), int)}
        in_process = int(self.settings.get("threads", 1)) * int(self.settings.get("gpus", 1))
        return max(len(numbers), max(numbers, default=0) + 1, in_process)

    @property
    def mean_bandwidth(self) -> float | None:
        """The mean of all bus bandwidth cells, or None."""
        return self._bandwidth_sum / self._bandwidth_count if self._bandwidth_count else None

    def add(self, row: Row) -> bool:
        """Take over one row. True when rows wait to be handed out."""
        size, values, wrong = row.size, row.values, row.flagged
        repeat = self._sweep_of(row).see(size)
        self._see_sizes(row, size, 1)
        plan = self._plan_of(row)
        for at in plan.bandwidths:
            value = values[at]
            if value is not None:
                self._bandwidth_sum += value
                self._bandwidth_count += 1
                if self.best is None or value > self.best[0]:
                    self.best = (value, size)
        for at, in_place, counts in plan.checks:
            value = values[at]
            if value is None:
                self.not_checked += 1
                self.unchecked_out_of_place += not in_place
            elif value:
                wrong = wrong or counts
                self.worst_error = max(value, self.worst_error or 0.0)
            elif self.worst_error is None:
                self.worst_error = value
        if wrong:
            self.wrong_rows += 1
            self.first_wrong = self.first_wrong or f"size {size}"
        self._held.append((row, repeat))
        return len(self._held) >= (_HELD_ROWS if self.rows <= _HELD_ROWS else _ROWS_AT_ONCE)

    @property
    def streams(self) -> bool:
        """Whether so many rows were read that the next ones need not wait."""
        return self.rows >= _HELD_ROWS and not self._held

    def add_block(self, block: Block, with_run: bool) -> list[Reading]:
        """Take over rows all at once, and give their readings: what `add` and `hand_out` do one by one."""
        plan, sizes = self._plan_of(block.first), block.sizes
        checks = [(block.values[at], in_place) for at, in_place, _ in plan.checks]
        if any(any(column) for column, _ in checks):  # wrong results are told row by row
            for at in range(len(sizes)):
                self.add(block.row(at))
            return self.hand_out(with_run)
        sweep = self._sweep_of(block.first)
        repeats = [sweep.see(size) for size in sizes]
        largest = len(sizes) - 1 - sizes[::-1].index(max(sizes))
        self._see_sizes(block.row(largest), min(sizes), len(sizes))
        self._see_bandwidths(sizes, list(zip(*(block.values[at] for at in plan.bandwidths), strict=True)))
        for column, in_place in checks:
            unchecked = column.count(None)
            self.not_checked += unchecked
            self.unchecked_out_of_place += 0 if in_place else unchecked
            if self.worst_error is None and unchecked < len(column):
                self.worst_error = 0.0
        return block_readings(block, repeats, plan, self._common(with_run))

    def _sweep_of(self, row: Row) -> _Sweep:
        key = (row.dtype, row.redop, row.root)
        sweep = self._sweeps.get(key)
        if sweep is None:
            sweep = self._sweeps[key] = _Sweep()
            self.dtypes[row.dtype] = None
            self.operators[row.operator] = None
        return sweep

    def _see_sizes(self, largest: Row, smallest: int, rows: int) -> None:
        self.rows += rows
        if self.smallest is None or smallest < self.smallest:
            self.smallest = smallest
        if self.largest is None or largest.size >= self.largest.size:
            self.largest = largest

    def _see_bandwidths(self, sizes: list[int], rows: list[tuple[float | None, ...]]) -> None:
        seen = [value for row in rows for value in row if value is not None]
        self._bandwidth_sum = added(seen, self._bandwidth_sum)
        self._bandwidth_count += len(seen)
        most = max(seen, default=None)
        if most is not None and (self.best is None or most > self.best[0]):
            self.best = (most, next(size for size, row in zip(sizes, rows, strict=True) if most in row))

    def _plan_of(self, row: Row) -> Plan:
        if self._plan is None or self._plan.groups is not row.groups:
            self._plan = Plan(row.groups)
        return self._plan

    def is_twin(self, other: Run) -> bool:
        """Say whether another run is this one told again: same rows, and numbers equal as far as they are printed."""
        if not self.rows or self.rows != other.rows or self.sizes() != other.sizes():
            return False
        if self.name() and other.name() and self.name() != other.name():
            return False
        mine, theirs = self.mean_bandwidth or 0.0, other.mean_bandwidth or 0.0
        peak, other_peak = (self.best or (0.0,))[0], (other.best or (0.0,))[0]
        return abs(mine - theirs) <= _PRINTED and abs(peak - other_peak) <= _PRINTED

    def take_over(self, report: Run) -> None:
        """Learn from the report of the same run: its exact numbers, unless the rounded ones were handed out."""
        if len(self._held) == self.rows:
            self._held = report._held
        self.operation = self.operation or report.operation
        self.extra |= report.extra
        self.ranks = self.ranks or report.ranks

    def sizes(self) -> set[int]:
        """Give the distinct sizes of the rows (the first 5,000 of each sweep)."""
        return {size for sweep in self._sweeps.values() for size in sweep.seen}

    def hand_out(self, with_run: bool) -> list[Reading]:
        """Give the readings of the rows that wait. `with_run` puts the run's number into their coordinates."""
        held, self._held = self._held, []
        return row_readings([(row, repeat, self._plan_of(row)) for row, repeat in held], self._common(with_run))

    def _common(self, with_run: bool) -> dict[str, Any]:
        common: dict[str, Any] = {"operation": name} if (name := self.name()) else {}
        return common | ({"run": self.index} if with_run else {})

    def name(self) -> str | None:
        """Give the operation: as the output names it, else as the columns and bandwidths prove it, else None."""
        if self.operation is None and self.largest is not None and self.rank_count and self.layout is not None:
            self.operation = _proven_operation(self.layout, self.largest, self.rank_count)
        return self.operation

    def expected_rows(self) -> int | None:
        """Give how many rows each sweep must have by the banner, or None where it does not tell."""
        said = self.settings
        if "step" not in said:
            return None
        most = said["max_bytes"] if self.memory_limit is None else min(said["max_bytes"], self.memory_limit)
        return announced_rows(min(said["min_bytes"], most), most, said["step"], bool(said["by_factor"]))

    def problems(self) -> list[tuple[Status, str]]:
        """Give every reason why this run is not complete and right; empty when it is."""
        found: list[tuple[Status, str]] = []
        if self.wrong_rows:
            found.append((Status.FAILED, f"{self.wrong_rows} rows with wrong results, first at {self.first_wrong}"))
        if self.oob_status == "FAILED" or self.out_of_bounds:
            found.append((Status.FAILED, f"out of bounds values: {self.out_of_bounds} {self.oob_status}"))
        if self.average_status == "FAILED":
            found.append((Status.FAILED, f"average bus bandwidth {self.average} below NCCL_TESTS_MIN_BW"))
        if not self.begun and self.has_footer:
            ended = self.out_of_bounds is not None or self.average_seen
            status = Status.INCOMPLETE if ended else Status.NOT_STARTED
            return [*found, (status, "closing lines without a table" if ended else "no result table was begun")]
        return found + [(Status.INCOMPLETE, text) for text in self._gaps()] + self._row_problems()

    def _gaps(self) -> Iterator[str]:
        if not self.rows:
            yield "the table has no rows"
        if self.torn is not None:
            yield f"a row is damaged or cut: {self.torn}"
        if self.cut is not None:
            yield self.cut
        twice = sum(sweep.twice for sweep in self._sweeps.values())
        if twice and self.settings.get("by_factor", True):
            yield f"{twice} rows are there twice, one after the other"
        if self.average_seen and self.average is None and self.rows:
            yield "the average bus bandwidth is not a number"
        if self.elided:
            yield "rows were left out of the table by hand ('...')"
        if self.has_footer and not self.ended:
            missing = "'Out of bounds values'" if self.out_of_bounds is None else "'Avg bus bandwidth'"
            yield f"the output ends before its line {missing}"

    def _row_problems(self) -> list[tuple[Status, str]]:
        wanted = self.expected_rows()
        if wanted is None:
            return self._average_problem()
        for (dtype, redop, root), sweep in self._sweeps.items():
            if sweep.rows % wanted or not sweep.rows:
                what = " ".join(str(part) for part in (dtype, redop, root) if part is not None)
                return [(Status.INCOMPLETE, f"{sweep.rows} rows of {what}, but the banner announces {wanted} sizes")]
        return []

    def _average_problem(self) -> list[tuple[Status, str]]:
        """Compare the printed average with the rows: the only witness of missing rows when the banner is gone."""
        mean = self.mean_bandwidth
        if mean is None or self.average is None or self.extra.get("approximate_average"):
            return []
        if abs(mean - self.average) <= 0.006 + 0.05 * max(mean, self.average):
            return []
        return [(Status.INCOMPLETE, f"the printed average {self.average:g} is not the mean {mean:g} of the rows")]

    def facts(self) -> Mapping[str, Any]:
        """Give the facts of this run; what nothing was said of is left out."""
        ranks = self.rank_count
        found: dict[str, Any] = {
            "operation": self.name(),
            "nranks": ranks if ranks is not None else (None if self.rows else 0),
            "rows": self.rows,
            "min_size": self.smallest,
            "max_size": self.largest.size if self.largest else None,
            "max_busbw": self.best[0] if self.best else None,
            "max_busbw_size": self.best[1] if self.best else None,
            "busbw_at_max_size": self._at_largest("bus_bandwidth"),
            "algbw_at_max_size": self._at_largest("algorithm_bandwidth"),
            "avg_busbw_reported": self.average,
            "avg_busbw_from_rows": None if self.mean_bandwidth is None else round(self.mean_bandwidth, 4),
            "average_status": self.average_status,
            "out_of_bounds": self.out_of_bounds,
            "oob_status": self.oob_status,
            "dtypes": list(self.dtypes) or None,
            "redops": list(self.operators) if self.rows else None,
            "settings": dict(self.settings) or None,
            "hosts": list(dict.fromkeys(rank["host"] for rank in self.ranks if "host" in rank)) or None,
            "device_models": list(dict.fromkeys(rank["model"] for rank in self.ranks if "model" in rank)) or None,
            "ranks": self.ranks or None,
            "single_rank": True if ranks == 1 else None,
            **self.extra,
        }
        found = {name: value for name, value in found.items() if value is not None}
        if self.rows:
            found["wrong_NA_cells"] = self.not_checked
            found["wrong_or_error_max"] = self.worst_error
        return found

    def _at_largest(self, column: str) -> dict[str, float] | None:
        if self.largest is None:
            return None
        found: dict[str, float] = {}
        at = 0
        for in_place, names in self.largest.groups:
            value = self.largest.values[at + names.index(column)] if column in names else None
            at += len(names)
            if value is not None:
                found["in_place" if in_place else "out_of_place"] = value
        return found or None


def _proven_operation(layout: Layout, row: Row, ranks: int) -> str | None:
    """Tell the operation by its columns and by bus ÷ algorithm bandwidth, where only one can be meant.

    Source: doc/PERFORMANCE.md and the print_header functions of nccl-tests before 2.12.
    """
    names = row.groups[0][1]
    if ranks < 2 or not {"algorithm_bandwidth", "bus_bandwidth"} <= set(names):
        return None
    slow, bus = row.values[names.index("algorithm_bandwidth")], row.values[names.index("bus_bandwidth")]
    if slow is None or bus is None or slow < _RATIO_GBPS:
        return None
    share = (ranks - 1) / ranks
    columns = ("redop" in layout.head, "root" in layout.head, row.redop is not None, row.root is not None)
    # '' stands for scatter and gather, which nothing here tells apart.
    candidates = {
        (True, True, True, True): {"reduce": 1.0},
        (True, True, True, False): {"reduce_scatter": share, "all_reduce": 2 * share, "sendrecv": 1.0},
        (True, False, True, False): {"reduce_scatter": share, "all_reduce": 2 * share},
        (True, True, False, True): {"broadcast": 1.0, "": share},
        (False, True, False, True): {"broadcast": 1.0, "": share},
        (True, False, False, False): {"alltoall": share, "hypercube": 1.0},
        (False, False, False, False): {"all_gather": share, "sendrecv": 1.0},
    }.get(columns, {})
    near = [name for name, factor in candidates.items() if abs(bus / slow - factor) <= _RATIO_TOLERANCE * factor]
    return near[0] or None if len(near) == 1 else None
