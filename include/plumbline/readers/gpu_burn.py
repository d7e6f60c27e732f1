"""Reads what gpu-burn prints: progress that overwrites itself, and at the end one verdict a GPU.

Its exit code is 0 whatever it found, a GPU whose process died is still called OK, and so is one that computed nothing:
the verdict lines alone are never enough.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from plumbline.amounts import node_list
from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._burn_run import TESTED, USING, VERDICT, Burn, gather
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

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

_HARMLESS = "Could not invoke"
"""Only the temperatures are missing then."""


def sniff(head: str) -> float:
    """Say how sure this is gpu-burn's output."""
    if "proc'd: " in head and " errors: " in head:
        return 0.99
    if TESTED.search(head) and VERDICT.search(head):
        return 0.95
    if re.search(r"^Burning for \d+ seconds\.", head, re.MULTILINE):
        return 0.8
    return 0.5 if "Couldn't init a GPU test" in head or USING.search(head) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the numbers of every run in the source. Raises OutputError when there is none."""
    burns, first_line = gather(source)
    if not burns:
        raise OutputError("no gpu-burn output in it", source=source.name, excerpt=first_line)
    for number, burn in enumerate(burns):
        yield from _readings(burn, {"run": number} if len(burns) > 1 else {})
    yield from _facts(burns, source.carriage_returns)
    yield _statement(burns, expect)


def _readings(burn: Burn, run: Mapping[str, Scalar]) -> Iterator[Reading]:
    for index, gpu in sorted(burn.gpus.items()):
        params = {"gpu": index, **run}
        if gpu.last_rate is not None:
            yield Reading("gflops", float(gpu.last_rate), "GFLOPS", params)
            yield Reading("gflops_median", _median(gpu.rates), "GFLOPS", params)
            yield Reading("gflops_min", float(min(gpu.rates)), "GFLOPS", params)
            yield Reading("gflops_max", float(max(gpu.rates)), "GFLOPS", params)
        yield Reading("iterations", gpu.iterations, "count", params)
        yield Reading("errors", gpu.wrong(), "count", params)
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


def _facts(burns: list[Burn], carriage_returns: int) -> Iterator[Fact]:
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


def _statement(burns: list[Burn], expect: Mapping[str, Scalar]) -> Completeness:
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
        "errors": sum(gpu.wrong() for burn in burns for gpu in burn.gpus.values()),
    }
    reason = node_list(dict.fromkeys(text for _, text in causes), 8, between="; ")
    return Completeness(reader=NAME, status=status, expected=dict(expect), found=found, reason=reason)


def _causes(burn: Burn) -> Iterator[tuple[Status, str]]:
    """Give everything that keeps a run from being complete and good."""
    for index, verdict in burn.verdicts.items():
        if verdict != "OK":
            yield Status.FAILED, f"GPU {index} is FAULTY"
    for index, gpu in burn.gpus.items():
        if gpu.died:
            yield Status.FAILED, f"the process of GPU {index} died"
        if wrong := gpu.wrong():
            yield Status.FAILED, f"GPU {index} computed {wrong} wrong elements"
    for message in burn.messages:
        if _HARMLESS not in message:
            yield Status.FAILED, message
    if burn.tested is None:
        status = Status.INCOMPLETE if burn.updates else Status.NOT_STARTED
        yield status, "it stops before the verdict" if burn.updates else "it stops before any work was done"
    else:
        yield from _verdict_causes(burn, burn.tested)


def _verdict_causes(burn: Burn, tested: int) -> Iterator[tuple[Status, str]]:
    if tested == 0:
        yield Status.FAILED, "no GPU was tested"
    if len(burn.verdicts) < tested:
        yield Status.INCOMPLETE, f"{tested} GPUs were tested, {len(burn.verdicts)} verdicts are there"
    if len(burn.gpus) != tested:
        yield Status.INCOMPLETE, f"{tested} GPUs were tested, progress is there of {len(burn.gpus)}"
    for index, gpu in burn.gpus.items():
        if not gpu.died and not gpu.iterations:
            yield Status.INCOMPLETE, f"GPU {index} did no work until the end, whatever its verdict"


def _unmet(burns: list[Burn], expect: Mapping[str, Scalar]) -> Iterator[tuple[str, str]]:
    last = burns[-1]
    errors = sum(gpu.wrong() for burn in burns for gpu in burn.gpus.values())
    found = {"gpus": len(last.verdicts), "duration_s": last.duration_s, "precision": last.precision, "errors": errors}
    for key, wanted in expect.items():
        if str(found[key]).upper() != str(wanted).upper():
            yield key, f"{key}: {wanted} expected, {'not told' if found[key] is None else found[key]}"
