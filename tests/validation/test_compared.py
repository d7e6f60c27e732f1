from __future__ import annotations

import numpy as np
import pandas as pd
from tests.test_model import a_spec
from tests.validation.test_judgement import limit

from plumbline.execution.plan import Plan
from plumbline.model import Better
from plumbline.validation.bounds import Bounds
from plumbline.validation.compared import compared, left_out


def bounds(**fields: object) -> Bounds:
    return Bounds(**{"unit": "GB/s", "better": Better.HIGHER, "judged": True, **fields})


HISTORY = bounds(baseline_lower=90.0, has_expectation=True, lower=50.0)
REFERENCE = bounds(lower=50.0, has_expectation=True)
NOTHING, SHOWN = bounds(), bounds(judged=False)


def test_every_measured_row_is_counted_once_by_what_it_is_compared_with() -> None:
    values = [95.0, 80.0, 60.0, 1.0, 2.0, np.nan]
    kinds = np.array([0, 0, 1, 2, 3, 0])
    found = compared(pd.DataFrame({"value": values}), kinds, [HISTORY, REFERENCE, NOTHING, SHOWN])
    assert found == {"history": 2, "beyond": 1, "references": 1, "nothing": 1, "shown": 1}


def test_a_night_that_plans_nothing_compares_nothing() -> None:
    found = compared(pd.DataFrame({"value": np.array([], dtype=float)}), np.array([], dtype=int), [])
    assert set(found.values()) == {0}


def test_what_history_knows_and_the_plan_has_not_is_left_out() -> None:
    spec = a_spec()
    plan = Plan(run_id="r", cluster="c", suite="s", seed=1, inventory=(), launches=(spec,), batches=())
    known = [limit(benchmark=spec.benchmark, node_count=spec.node_count), limit(node_count=8), limit(node_count=4)]
    assert left_out(known, plan) == [
        {"benchmark": "collective", "node_count": 4},
        {"benchmark": "collective", "node_count": 8},
    ]
