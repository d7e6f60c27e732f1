"""`dcgmi diag -r 2 -j` of DCGM 4. Shape: NVIDIA/DCGM, dcgmi/Diag.cpp."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

TESTS = ("software", "memory", "pcie")


def report(driver: str, gpus: Sequence[int], failures: Mapping[tuple[str, int], str], missing: Sequence[int]) -> str:
    """Print a level 2 diagnosis; `failures` maps (test, gpu) to the warning, `missing` GPUs are not listed at all."""
    present = [gpu for gpu in gpus if gpu not in missing]
    tests = []
    for name in TESTS:
        results = []
        for gpu in present:
            result: dict[str, object] = {
                "entity_group": "GPU",
                "entity_group_id": 1,
                "entity_id": gpu,
                "status": "Pass",
            }
            if warning := failures.get((name, gpu)):
                result |= {"status": "Fail", "warnings": [{"error_id": 1, "warning": warning}]}
            results.append(result)
        worst = "Fail" if any(r["status"] == "Fail" for r in results) else "Pass"
        tests.append({"name": name, "results": results, "test_summary": {"status": worst}})
    return json.dumps(
        {
            "simulated_by": "plumbline",
            "DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]},
            "entity_groups": [
                {"entity_group": "GPU", "entity_group_id": 1,
                 "entities": [{"entity_id": gpu, "device_id": "2330"} for gpu in present]}
            ],
            "metadata": {"version": "4.2.3", "Driver Version Detected": driver},
        },
        indent=1,
    )  # fmt: skip
