"""Statistics of rewards have the bits of two passes."""

from __future__ import annotations

from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.zeus.policies.bandit import statistics

finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=60), st.integers(0, 70))
def test_statistics_have_numpys_bits(rewards, window):
    """Number, sum, mean and variance of all, or of the latest, as NumPy gives them."""
    latest = rewards[-window:]
    expected = (len(latest), np.sum(latest), np.mean(latest), np.var(latest))
    assert statistics(rewards, window) == expected
    assert statistics(array("d", rewards), window) == expected
