"""What every shipped objective keeps to, alone and under each modifier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import TaskState, is_static
from bftrainer.objectives import get_objective
from tests.examples import examples
from tests.objectives.support import at, tuned, tuned_tasks

SUMS = ("as-given", "throughput", "scaling-efficiency", "energy", "energy-delay", "deadline")
NAMES = (
    *SUMS,
    *(f"priority:{name}" for name in SUMS),
    *("quota:user=3:energy", "quota:group=50%:priority:deadline"),
    *("fair-share:user:energy", "priority:fair-share:deadline"),
)


@pytest.mark.parametrize("name", NAMES)
@examples(40)
@given(data=st.data())
def test_credit_is_usable(name, data):
    """Credit is finite, never negative, 0 on 0 nodes, and each count's own whatever else is asked for."""
    spec = data.draw(tuned_tasks())
    other = tuned(rates=(0.5 * spec.rates).tolist(), node_w=20.0, min_nodes=spec.min_nodes)
    state = TaskState(
        spec,
        data.draw(st.integers(0, spec.max_nodes)),
        data.draw(st.floats(0.0, 110.0)),
        0.0,
        modes=data.draw(st.sampled_from([(), (spec, other)])),
    )
    now_s = data.draw(st.floats(0.0, 300.0))
    counts = np.arange(spec.max_nodes + 1)
    credit = get_objective(name)(state, counts, now_s)
    assert credit.shape == counts.shape
    assert np.isfinite(credit).all()
    assert (credit >= 0.0).all()
    assert credit[0] == 0.0
    some = np.array(data.draw(st.lists(st.sampled_from(counts.tolist()), unique=True)), dtype=np.int64)
    assert get_objective(name)(state, some, now_s).tolist() == credit[some].tolist()


@pytest.mark.parametrize("name", [name for name in NAMES if "deadline" not in name])
def test_static_ones_ignore_time_and_progress(name):
    """Those that are computed once a task say the same at any time and progress; with deadlines it is not so."""
    objective, counts = get_objective(name), np.arange(3)
    assert is_static(objective)
    fresh, later = at(tuned()), at(tuned(), nodes=1, progress=50.0)
    assert objective(fresh, counts, 0.0).tolist() == objective(later, counts, 1e4).tolist()


@pytest.mark.parametrize("name", [name for name in NAMES if "deadline" in name])
def test_deadlines_are_not_static(name):
    """Credit that moves with time and progress is computed at every event."""
    objective, counts = get_objective(name), np.arange(3)
    assert not is_static(objective)
    spec = tuned(deadline_s=100.0)
    assert objective(at(spec), counts, 0.0).tolist() != objective(at(spec), counts, 60.0).tolist()
