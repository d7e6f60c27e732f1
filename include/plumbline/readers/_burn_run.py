"""One run of gpu-burn as it is being read, and the lines that it is read from."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from plumbline.readers._burn_progress import MOST_GPUS, Shown, progress
from plumbline.readers.framing import strip_prefix
from plumbline.readers.source import Source, strip_ansi

_LISTED = re.compile(r"GPU (\d{1,4}): (?P<name>.{1,200}?) \(UUID: (?P<uuid>[\w-]{1,80})\)")
TESTED = re.compile(r"Tested (\d{1,4}) GPUs?:")
VERDICT = re.compile(r"GPU (\d{1,4}): (OK|FAULTY)")
USING = re.compile(r"Initialized device (\d{1,4}) with .*, using (FLOATS|DOUBLES)(, using Tensor Cores)?")
_DURATION = re.compile(r"Burning for (\d{1,9}) seconds")
_COMPARING = "Using compare file"
_FAULTS = (
    "Couldn't init", "Failure during compute", "No CUDA devices", "No clients are alive", "Could not invoke",
    "cuInit returned", "terminate called", "Segmentation fault", "error while loading shared libraries",
)  # fmt: skip
_MOST_MESSAGES = 50
_MOST_BEGUN = 1000
"""Runs without a verdict beyond so many are one: two programs that print at once look like many that stop."""


@dataclass(slots=True)
class Gpu:
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
        """Take what one progress line shows of its work."""
        if iterations < 0:
            self.died = True
            return
        is_new = iterations != self.iterations  # every line shows the last rate of every GPU again
        self.iterations = iterations
        if rate > 0 and is_new:
            self.rates[rate] += 1
            self.last_rate = rate

    def see_temperature(self, value: int) -> None:
        """Take a temperature in degrees Celsius."""
        self.temperature = value
        self.hottest = value if self.hottest is None else max(value, self.hottest)

    def wrong(self) -> int:
        """Give how many wrong elements were found in the whole run."""
        return self.errors + self.since_summary


@dataclass(slots=True)
class Burn:
    """One run."""

    gpus: dict[int, Gpu] = field(default_factory=dict)
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
        """Say whether anything of it was read."""
        return bool(self.updates or self.tested is not None or self.messages or self.begun())

    def begun(self) -> bool:
        """Say whether the program was started, but for listing GPUs, which others do too."""
        return bool(self.comparing or self.precision or self.duration_s)

    def works(self) -> bool:
        """Say whether a GPU was made ready, or worked."""
        return bool(self.updates or self.initialized)


def gather(source: Source) -> tuple[list[Burn], str]:
    """Give the runs in a source, in order, and its first line that says anything."""
    burns = [Burn()]
    first_line = ""
    for block in source.blocks():
        for raw in block.decode("latin-1").split("\n"):  # str is searched several times faster than bytes
            if _is_of_interest(raw):
                line = strip_ansi(raw.encode("latin-1").decode("utf-8", "replace"))
                first_line = first_line or line.strip()
                if source.ends_whole or VERDICT.fullmatch(line.strip()):
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


def _take(burns: list[Burn], line: str) -> None:
    text = strip_prefix(line).strip()
    burn = burns[-1]
    if "proc'd" in text:
        _take_progress(burns, text)
    elif match := VERDICT.fullmatch(text):
        if burn.tested is not None and len(burn.verdicts) < MOST_GPUS:
            burn.verdicts.setdefault(int(match[1]), match[2])
    elif match := TESTED.fullmatch(text):
        burn.tested = int(match[1])
    elif text.startswith("Summary at"):
        for gpu in burn.gpus.values():
            gpu.errors += gpu.since_summary
            gpu.since_summary = 0
    else:
        _take_setting(burns, text)


def _take_setting(burns: list[Burn], text: str) -> None:
    if match := _LISTED.fullmatch(text):
        _list_gpu(burns, match)
    elif match := USING.search(text):
        device = int(match[1])
        burn = _unfinished(burns, begun_again=device in burns[-1].initialized)
        burn.precision, burn.tensor_cores = match[2], bool(match[3])
        if len(burn.initialized) < MOST_GPUS:
            burn.initialized.add(device)
    elif (match := _DURATION.search(text)) or text.startswith(_COMPARING):
        _take_start(burns, None if match is None else int(match[1]), comparing=_COMPARING in text)
    elif any(word in text for word in _FAULTS) and len(burns[-1].messages) < _MOST_MESSAGES:
        burns[-1].messages.append(text[:300])


def _take_start(burns: list[Burn], duration_s: int | None, *, comparing: bool) -> None:
    """Take a line that the program begins with. One that comes again with nothing between begins another run."""
    burn = burns[-1]
    again = burn.duration_s is not None or (burn.comparing and comparing)
    burn = _unfinished(burns, begun_again=again and not burn.listed and not burn.works())
    if burn.duration_s is not None:
        burn.asked_again_s = duration_s or burn.asked_again_s
    else:
        burn.duration_s = duration_s
    burn.comparing |= comparing


def _list_gpu(burns: list[Burn], match: re.Match[str]) -> None:
    """Take a GPU of the list, which a run shows once; somebody may have listed them before the program, too."""
    burn = burns[-1]
    listed = any(gpu["index"] == match[1] for gpu in burn.listed)
    earlier = burn
    burn = _unfinished(burns, begun_again=listed and (burn.asked_first or burn.works()))
    if burn is not earlier and earlier.tested is None:
        burn.duration_s = earlier.asked_again_s
    if not burn.listed:
        burn.asked_first = burn.begun()
    if len(burn.listed) < MOST_GPUS:
        burn.listed.append({"index": match[1], "name": match["name"], "uuid": match["uuid"]})


def _unfinished(burns: list[Burn], *, begun_again: bool = False) -> Burn:
    """Give the last run, or a new one when that has its verdict or another began."""
    if burns[-1].tested is not None or (begun_again and len(burns) < _MOST_BEGUN):
        burns.append(Burn())
    return burns[-1]


def _take_progress(burns: list[Burn], text: str) -> None:
    found = progress(text)
    burn = _unfinished(burns, begun_again=found is not None and _begins_again(burns[-1], *found))
    burn.updates += 1
    if found is None:
        return
    burn.percent, gpus = found
    for index, (iterations, rate, count, died, temperature) in enumerate(gpus):
        gpu = burn.gpus.get(index)
        if gpu is None:
            gpu = burn.gpus[index] = Gpu()
        gpu.see(iterations, rate)
        gpu.since_summary = count
        gpu.died |= died
        if temperature is not None:
            gpu.see_temperature(temperature)


def _begins_again(burn: Burn, percent: float, gpus: list[Shown]) -> bool:
    """Say whether progress went back: neither time nor work does so within a run."""
    if burn.percent is None or percent >= burn.percent:
        return False
    return sum(max(shown[0], 0) for shown in gpus) <= sum(gpu.iterations for gpu in burn.gpus.values())
