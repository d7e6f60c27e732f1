import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from plumbline.tracking.significance import LEAST_PAIRS, paired, unpaired

values = st.lists(st.floats(-100, 100).map(lambda x: round(x, 2)), min_size=3, max_size=20)


@given(values, values)
def test_unpaired_is_welchs_test(left: list[float], right: list[float]):
    found = unpaired(left, right)
    if len(set(left)) == 1 == len(set(right)):
        assert found == (1.0 if left[0] == right[0] else 0.0)
    else:
        assert found == pytest.approx(stats.ttest_ind(left, right, equal_var=False).pvalue, abs=1e-6, nan_ok=True)


@given(st.lists(st.integers(-50, 50).map(float), min_size=LEAST_PAIRS, max_size=60))
def test_paired_is_wilcoxons_test(steps: list[float]):
    found = paired(steps)
    if not any(steps):
        assert found == 1.0
    else:
        expected = stats.wilcoxon(steps, correction=True, method="approx").pvalue
        assert found == pytest.approx(expected, abs=1e-9)


def test_too_few_values_allow_no_statement():
    assert paired([1.0] * (LEAST_PAIRS - 1)) is None
    assert unpaired([1.0, 2.0], [3.0, 4.0, 5.0]) is None


@pytest.mark.parametrize("seed", range(5))
def test_scatter_is_seldom_called_a_change(seed: int):
    rng = random.Random(seed)
    found = [paired([rng.gauss(0, 1) for _ in range(16)]) or 0.0 for _ in range(200)]
    assert sum(p < 0.01 for p in found) <= 8
