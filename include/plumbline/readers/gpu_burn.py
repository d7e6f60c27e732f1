"""Reads what gpu-burn prints: progress that overwrites itself, and at the end one verdict a GPU.

Its exit code is 0 whatever it found, a GPU whose process died is still called OK, and so is one that computed nothing:
the verdict lines alone are never enough.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from plumbline.amounts import node_list
from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source, strip_ansi

NAME = "gpu_burn"
TOOL = "gpu-burn (wilicc/gpu-burn and its ports), stdout and stderr"
INDICATORS = {
    "gflops": ("GFLOPS", "rate that the last progress line with one shows, param gpu"),
    "gflops_median": ("GFLOPS", "median of the rates of all progress lines, without the zeros before the first"),
    "gflops_min": ("GFLOPS", "lowest of those rates"),
    "gflops_max": ("GFLOPS", "highest of those rates"),
    "iterations": ("count", "matrix products done, param gpu"),
    "errors": ("count", "wrong elements found in the whole run, param gpu"),
    "temperature": ("degC", "last temperature, param gpu"),
    "temperature_max": ("degC", "highest temperature, param gpu"),
}
FACTS = {
    "tested": "number of GPUs that the verdict speaks of",
    "ok": "verdict lines that say OK",
    "faulty": "verdict lines that say FAULTY",
    "died": "GPUs whose process died",
    "verdicts": "GPU index → OK or FAULTY",
    "gpus": "names and UUIDs that nvidia-smi -L listed",
    "precision": "FLOATS or DOUBLES",
    "tensor_cores": "whether tensor cores were used",
    "duration_s": "seconds that were asked for",
    "progress_percent": "last percentage shown",
    "progress_updates": "progress lines",
    "carriage_returns": "carriage returns in the output",
    "messages": "errors that the program printed",
}
EXPECTATIONS = {
    "gpus": "number of GPUs to be tested",
    "duration_s": "seconds that were asked for",
    "precision": "FLOATS or DOUBLES",
    "errors": "number of errors (0)",
}

_PERCENT = re.compile(r"(?:^|\s)(\d{1,3}\.\d)%\s*$")
_DONE = re.compile(r"(-?\d{1,18}) \((\d{1,12}) Gflop/s\)")
_SLASH = re.compile(r" ?/ ")
"""What stands between GPUs to version 0.7; those without a rate are older still."""
_ERRORS = re.compile(r"(-?\d{1,18})(?: +\((WARNING|DIED)!\))?")
_TEMPERATURE = re.compile(r"(\d{1,4}) C|--")
_ALL_DONE, _ALL_ERRORS, _ALL_TEMPERATURES = (
    re.compile(rf"\s*(?:{cell.pattern})\s*(?:- (?:{cell.pattern})\s*)*+") for cell in (_DONE, _ERRORS, _TEMPERATURE)
)
_LISTED = re.compile(r"GPU (\d{1,4}): (?P<name>.{1,200}?) \(UUID: (?P<uuid>[\w-]{1,80})\)")
_TESTED = re.compile(r"Tested (\d{1,4}) GPUs?:")
_VERDICT = re.compile(r"GPU (\d{1,4}): (OK|FAULTY)")
_USING = re.compile(r"Initialized device (\d{1,4}) with .*, using (FLOATS|DOUBLES)(, using Tensor Cores)?")
_DURATION = re.compile(r"Burning for (\d{1,9}) seconds")
_COMPARING = "Using compare file"
_FAULTS = (
    "Couldn't init", "Failure during compute", "No CUDA devices", "No clients are alive", "Could not invoke",
    "cuInit returned", "terminate called", "Segmentation fault", "error while loading shared libraries",
)  # fmt: skip
_HARMLESS = "Could not invoke"
"""Only the temperatures are missing then."""
_MOST_MESSAGES = 50
_MOST_GPUS = 1024
_MOST_BEGUN = 1000
"""Runs without a verdict beyond so many are one: two programs that print at once look like many that stop."""


@dataclass(slots=True)
class _Gpu:
    """What the progress lines say of one GPU."""

    rates: Counter[int] = field(default_factory=Counter)
    last_rate: int | None = None
    iterations: int = 0
    errors: int = 0
    since_summary: int = 0
    died: bool = False
    temperature: int | None = None
    hottest: int | None = None

    def see(self, iterations: int, rate: int) -> None:
        if iterations < 0:
            self.died = True
            return
        is_new = iterations != self.iterations  # every line shows the last rate of every GPU again
        self.iterations = iterations
        if rate > 0 and is_new:
            self.rates[rate] += 1
            self.last_rate = rate

    def see_temperature(self, value: int) -> None:
        self.temperature = value
        self.hottest = value if self.hottest is None else max(value, self.hottest)


@dataclass(slots=True)
class _Burn:
    """One run."""

    gpus: dict[int, _Gpu] = field(default_factory=dict)
    listed: list[dict[str, str]] = field(default_factory=list)
    comparing: bool = False
    asked_first: bool = False
    """Whether the program had said something when the GPUs were listed, so that the list is its own."""
    asked_again_s: int | None = None
    """Duration that was told again: each process of a run may print what was in its buffer when it was started."""
    initialized: set[int] = field(default_factory=set)
    tested: int | None = None
    verdicts: dict[int, str] = field(default_factory=dict)
    precision: str | None = None
    tensor_cores: bool = False
    duration_s: int | None = None
    percent: float | None = None
    updates: int = 0
    messages: list[str] = field(default_factory=list)

    def seen(self) -> bool:
        return bool(self.updates or self.tested is not None or self.messages or self.begun())

    def begun(self) -> bool:
        """Say whether the program was started, but for listing GPUs, which others do too."""
        return bool(self.comparing or self.precision or self.duration_s)

    def works(self) -> bool:
        return bool(self.updates or self.initialized)


def sniff(head: str) -> float:
    """Say how sure this is gpu-burn's output."""
    if "proc'd: " in head and " errors: " in head:
        return 0.99
    if _TESTED.search(head) and _VERDICT.search(head):
        return 0.95
    if re.search(r"^Burning for \d+ seconds\.", head, re.MULTILINE):
        return 0.8
    return 0.5 if "Couldn't init a GPU test" in head or _USING.search(head) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the numbers of every run in the source. Raises OutputError when there is none."""
    burns, first_line = _gather(source)
    if not burns:
        raise OutputError("no gpu-burn output in it", source=source.name, excerpt=first_line)
    for number, burn in enumerate(burns):
        yield from _readings(burn, {"run": number} if len(burns) > 1 else {})
    yield from _facts(burns, source.carriage_returns)
    yield _statement(burns, expect)


# -- lines


def _gather(source: Source) -> tuple[list[_Burn], str]:
    burns = [_Burn()]
    first_line = ""
    for block in source.blocks():
        for raw in block.decode("latin-1").split("\n"):  # str is searched several times faster than bytes
            if _is_of_interest(raw):
                line = strip_ansi(raw.encode("latin-1").decode("utf-8", "replace"))
                first_line = first_line or line.strip()
                if source.ends_whole or _VERDICT.fullmatch(line.strip()):
                    _take(burns, line)
            elif not first_line and raw.strip():
                first_line = raw.encode("latin-1").decode("utf-8", "replace").strip()
    return [burn for burn in burns if burn.seen()], first_line


def _is_of_interest(text: str) -> bool:
    """Say whether a line may be gpu-burn's; one chain of tests, for it runs on every line of long logs."""
    return (
        "proc'd" in text or "GPU" in text or "Burning" in text or "Summary" in text or "using" in text
        or "Could" in text or "No C" in text or "No c" in text or "Failure" in text or "cuInit" in text
        or "terminate" in text or "fault" in text or "error w" in text or "Using c" in text
    )  # fmt: skip


def _take(burns: list[_Burn], line: str) -> None:
    text = strip_prefix(line).strip()
    burn = burns[-1]
    if "proc'd" in text:
        _take_progress(burns, text)
    elif match := _VERDICT.fullmatch(text):
        if burn.tested is not None and len(burn.verdicts) < _MOST_GPUS:
            burn.verdicts.setdefault(int(match[1]), match[2])
    elif match := _TESTED.fullmatch(text):
        burn.tested = int(match[1])
    elif text.startswith("Summary at"):
        for gpu in burn.gpus.values():
            gpu.errors += gpu.since_summary
            gpu.since_summary = 0
    else:
        _take_setting(burns, text)


def _take_setting(burns: list[_Burn], text: str) -> None:
    if match := _LISTED.fullmatch(text):
        _list_gpu(burns, match)
    elif match := _USING.search(text):
        device = int(match[1])
        burn = _unfinished(burns, begun_again=device in burns[-1].initialized)
        burn.precision, burn.tensor_cores = match[2], bool(match[3])
        if len(burn.initialized) < _MOST_GPUS:
            burn.initialized.add(device)
    elif (match := _DURATION.search(text)) or text.startswith(_COMPARING):
        _take_start(burns, None if match is None else int(match[1]), comparing=_COMPARING in text)
    elif any(word in text for word in _FAULTS) and len(burns[-1].messages) < _MOST_MESSAGES:
        burns[-1].messages.append(text[:300])


def _take_start(burns: list[_Burn], duration_s: int | None, *, comparing: bool) -> None:
    """Take a line that the program begins with. One that comes again with nothing between begins another run."""
    burn = burns[-1]
    again = burn.duration_s is not None or (burn.comparing and comparing)
    burn = _unfinished(burns, begun_again=again and not burn.listed and not burn.works())
    if burn.duration_s is not None:
        burn.asked_again_s = duration_s or burn.asked_again_s
    else:
        burn.duration_s = duration_s
    burn.comparing |= comparing


def _list_gpu(burns: list[_Burn], match: re.Match[str]) -> None:
    """Take a GPU of the list, which a run shows once; somebody may have listed them before the program, too."""
    burn = burns[-1]
    listed = any(gpu["index"] == match[1] for gpu in burn.listed)
    earlier = burn
    burn = _unfinished(burns, begun_again=listed and (burn.asked_first or burn.works()))
    if burn is not earlier and earlier.tested is None:
        burn.duration_s = earlier.asked_again_s
    if not burn.listed:
        burn.asked_first = burn.begun()
    if len(burn.listed) < _MOST_GPUS:
        burn.listed.append({"index": match[1], "name": match["name"], "uuid": match["uuid"]})


def _unfinished(burns: list[_Burn], *, begun_again: bool = False) -> _Burn:
    """Give the last run, or a new one when that has its verdict or another began."""
    if burns[-1].tested is not None or (begun_again and len(burns) < _MOST_BEGUN):
        burns.append(_Burn())
    return burns[-1]


def _take_progress(burns: list[_Burn], text: str) -> None:
    found = _progress(text)
    burn = _unfinished(burns, begun_again=found is not None and _begins_again(burns[-1], *found))
    burn.updates += 1
    if found is None:
        return
    burn.percent, gpus = found
    for index, (iterations, rate, count, died, temperature) in enumerate(gpus):
        gpu = burn.gpus.get(index)
        if gpu is None:
            gpu = burn.gpus[index] = _Gpu()
        gpu.see(iterations, rate)
        gpu.since_summary = count
        gpu.died |= died
        if temperature is not None:
            gpu.see_temperature(temperature)


_Shown = tuple[int, int, int, bool, int | None]
"""Of a GPU: iterations, GFLOPS, errors, whether its process died, temperature."""


def _progress(text: str) -> tuple[float, list[_Shown]] | None:
    """Read the percentage and what is shown of each GPU; None when the line is cut or overwritten by other output."""
    if "/ " in text:
        text = _SLASH.sub(" - ", text)
    before, _, rest = text.rpartition("proc'd: ")
    work, _, rest = rest.partition(" errors: ")
    wrong, _, warm = rest.partition(" temps: ")
    percent = _PERCENT.search(before)
    if percent is None or not warm:
        return None
    warm = warm.lstrip().partition("  ")[0]
    if (done := _work(work)) is None or (errors := _errors(wrong)) is None or (heat := _temperatures(warm)) is None:
        return None
    if not len(done) == len(errors) == len(heat) <= _MOST_GPUS:
        return None
    return float(percent[1]), [(*d, *e, t) for d, e, t in zip(done, errors, heat, strict=True)]


def _begins_again(burn: _Burn, percent: float, gpus: list[_Shown]) -> bool:
    """Say whether progress went back: neither time nor work does so within a run."""
    if burn.percent is None or percent >= burn.percent:
        return False
    return sum(max(shown[0], 0) for shown in gpus) <= sum(gpu.iterations for gpu in burn.gpus.values())


# A line shows most cells of the line before again.


def _work(text: str) -> list[tuple[int, int]] | None:
    """Read (iterations, GFLOPS) of each GPU; None when anything else stands there."""
    found = [_done(cell.rstrip()) for cell in text.strip().split(" - ")]
    if None not in found:
        return [cell for cell in found if cell is not None]
    if "Gflop" not in text and all(re.fullmatch(r"-?\d{1,18}", cell.strip()) for cell in text.split(" - ")):
        return [(int(cell), 0) for cell in text.split(" - ")]
    if not _ALL_DONE.fullmatch(text):
        return None
    return [(int(iterations), int(rate)) for iterations, rate in _DONE.findall(text)]


@lru_cache(maxsize=4096)
def _done(cell: str) -> tuple[int, int] | None:
    match = _DONE.fullmatch(cell)
    return (int(match[1]), int(match[2])) if match else None


@lru_cache(maxsize=1024)
def _errors(text: str) -> list[tuple[int, bool]] | None:
    """Read (errors since the summary, whether the process died) of each GPU.

    The program counts them in 32 bits with a sign, so that many look negative. What it shows of a process that died is
    no count: it goes on adding what was in memory when it could no longer read one.
    """
    if not _ALL_ERRORS.fullmatch(text):
        return None
    return [(0 if mark == "DIED" else int(count) % (1 << 32), mark == "DIED") for count, mark in _ERRORS.findall(text)]


@lru_cache(maxsize=4096)
def _temperatures(text: str) -> list[int | None] | None:
    """Read the temperature of each GPU, None where there is none."""
    if not _ALL_TEMPERATURES.fullmatch(text):
        return None
    return [int(cell) if cell else None for cell in _TEMPERATURE.findall(text)]


# -- what it says


def _readings(burn: _Burn, run: Mapping[str, Scalar]) -> Iterator[Reading]:
    for index, gpu in sorted(burn.gpus.items()):
        params = {"gpu": index, **run}
        if gpu.last_rate is not None:
            yield Reading("gflops", float(gpu.last_rate), "GFLOPS", params)
            yield Reading("gflops_median", _median(gpu.rates), "GFLOPS", params)
            yield Reading("gflops_min", float(min(gpu.rates)), "GFLOPS", params)
            yield Reading("gflops_max", float(max(gpu.rates)), "GFLOPS", params)
        yield Reading("iterations", gpu.iterations, "count", params)
        yield Reading("errors", gpu.errors + gpu.since_summary, "count", params)
        if gpu.temperature is not None and gpu.hottest is not None:
            yield Reading("temperature", gpu.temperature, "degC", params)
            yield Reading("temperature_max", gpu.hottest, "degC", params)


def _median(rates: Counter[int]) -> float:
    total, seen = rates.total(), 0
    middle: list[int] = []
    for rate in sorted(rates):
        seen += rates[rate]
        if len(middle) == 0 and seen * 2 >= total:
            middle.append(rate)
        if len(middle) == 1 and seen * 2 > total:
            middle.append(rate)
    return (middle[0] + middle[-1]) / 2


def _facts(burns: list[_Burn], carriage_returns: int) -> Iterator[Fact]:
    last = burns[-1]
    verdicts = [verdict for burn in burns for verdict in burn.verdicts.values()]
    if any(burn.tested is not None for burn in burns):
        yield Fact("tested", sum(burn.tested or 0 for burn in burns))
    yield Fact("ok", verdicts.count("OK"))
    yield Fact("faulty", verdicts.count("FAULTY"))
    yield Fact("died", sum(gpu.died for burn in burns for gpu in burn.gpus.values()))
    yield Fact("verdicts", {str(index): verdict for index, verdict in sorted(last.verdicts.items())})
    if last.listed:
        yield Fact("gpus", last.listed)
    if last.precision:
        yield Fact("precision", last.precision)
        yield Fact("tensor_cores", last.tensor_cores)
    if last.duration_s is not None:
        yield Fact("duration_s", last.duration_s)
    if last.percent is not None:
        yield Fact("progress_percent", last.percent)
    yield Fact("progress_updates", sum(burn.updates for burn in burns))
    yield Fact("carriage_returns", carriage_returns)
    if messages := [message for burn in burns for message in burn.messages]:
        yield Fact("messages", messages)


def _statement(burns: list[_Burn], expect: Mapping[str, Scalar]) -> Completeness:
    causes = [
        (status, f"run {number}: {text}" if len(burns) > 1 else text)
        for number, burn in enumerate(burns)
        for status, text in _causes(burn)
    ]
    if any(burn.tested is not None for burn in burns):  # beside a whole run, one that only began is something missing
        causes = [(Status.INCOMPLETE if status is Status.NOT_STARTED else status, text) for status, text in causes]
    causes += [(Status.INCOMPLETE if key == "gpus" else Status.FAILED, text) for key, text in _unmet(burns, expect)]
    order = (Status.COMPLETE, Status.INCOMPLETE, Status.NOT_STARTED, Status.FAILED)
    status = max((status for status, _ in causes), key=order.index, default=Status.COMPLETE)
    found = {
        "gpus": sum(len(burn.verdicts) for burn in burns),
        "errors": sum(gpu.errors + gpu.since_summary for burn in burns for gpu in burn.gpus.values()),
    }
    reason = node_list(dict.fromkeys(text for _, text in causes), 8, between="; ")
    return Completeness(reader=NAME, status=status, expected=dict(expect), found=found, reason=reason)


def _causes(burn: _Burn) -> Iterator[tuple[Status, str]]:
    """Give everything that keeps a run from being complete and good."""
    for index, verdict in burn.verdicts.items():
        if verdict != "OK":
            yield Status.FAILED, f"GPU {index} is FAULTY"
    for index, gpu in burn.gpus.items():
        if gpu.died:
            yield Status.FAILED, f"the process of GPU {index} died"
        if wrong := gpu.errors + gpu.since_summary:
            yield Status.FAILED, f"GPU {index} computed {wrong} wrong elements"
    for message in burn.messages:
        if _HARMLESS not in message:
            yield Status.FAILED, message
    if burn.tested is None:
        status = Status.INCOMPLETE if burn.updates else Status.NOT_STARTED
        yield status, "it stops before the verdict" if burn.updates else "it stops before any work was done"
    else:
        yield from _verdict_causes(burn, burn.tested)


def _verdict_causes(burn: _Burn, tested: int) -> Iterator[tuple[Status, str]]:
    if tested == 0:
        yield Status.FAILED, "no GPU was tested"
    if len(burn.verdicts) < tested:
        yield Status.INCOMPLETE, f"{tested} GPUs were tested, {len(burn.verdicts)} verdicts are there"
    if len(burn.gpus) != tested:
        yield Status.INCOMPLETE, f"{tested} GPUs were tested, progress is there of {len(burn.gpus)}"
    for index, gpu in burn.gpus.items():
        if not gpu.died and not gpu.iterations:
            yield Status.INCOMPLETE, f"GPU {index} did no work until the end, whatever its verdict"


def _unmet(burns: list[_Burn], expect: Mapping[str, Scalar]) -> Iterator[tuple[str, str]]:
    last = burns[-1]
    errors = sum(gpu.errors + gpu.since_summary for burn in burns for gpu in burn.gpus.values())
    found = {"gpus": len(last.verdicts), "duration_s": last.duration_s, "precision": last.precision, "errors": errors}
    for key, wanted in expect.items():
        if str(found[key]).upper() != str(wanted).upper():
            yield key, f"{key}: {wanted} expected, {'not told' if found[key] is None else found[key]}"
