"""What decisions maximise: the formulas of sums over tasks that need nothing but the task set, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bftrainer.errors import InvalidTaskError, ObjectiveError
from bftrainer.model import ScalingCurve, TaskSpec, TaskState
from bftrainer.objectives import Priority, as_given, scaling_efficiency, throughput
from tests.objectives.support import decide, plain

COUNTS = np.arange(5)


def state(**changes: Any) -> TaskState:
    """A task of weight 3 with throughput 0, 2, 4, 5, 6 and credit 0, 1, 1.5, 2, 2.5."""
    curve = ScalingCurve((0, 1, 2, 4), (0.0, 2.0, 4.0, 6.0), (0.0, 1.0, 1.5, 2.5))
    fields = {"min_nodes": 1, "max_nodes": 4, "work": 10.0, "scaling": curve, "weight": 3.0}
    return TaskState(TaskSpec("J0", **(fields | changes)), 0, 0.0, 0.0)


def test_as_given():
    """The file's credit, linear between its points; where there is none, the throughput."""
    assert as_given(state(), COUNTS, 0.0).tolist() == [0.0, 1.0, 1.5, 2.0, 2.5]
    unrated = state(scaling=ScalingCurve((0, 1, 2, 4), (0.0, 2.0, 4.0, 6.0)))
    assert as_given(unrated, COUNTS, 0.0).tolist() == [0.0, 2.0, 4.0, 5.0, 6.0]


def test_throughput():
    """Work per second, whatever the credit."""
    assert throughput(state(), COUNTS, 0.0).tolist() == [0.0, 2.0, 4.0, 5.0, 6.0]


def test_scaling_efficiency():
    """Speed-up over one node."""
    assert scaling_efficiency(state(), COUNTS, 0.0).tolist() == [0.0, 1.0, 2.0, 2.5, 3.0]


def test_scaling_efficiency_needs_one_node():
    """A task that does nothing on one node has no speed-up over it: told by name."""
    lame = state(scaling=ScalingCurve((0, 1, 4), (0.0, 0.0, 6.0)))
    with pytest.raises(ObjectiveError, match=r"task J0: Expected throughput > 0 on one node, got 0\.0"):
        scaling_efficiency(lame, COUNTS, 0.0)


def test_priority():
    """The task's weight times its credit, or times any other objective's; a weight must be positive."""
    assert Priority()(state(), COUNTS, 0.0).tolist() == [0.0, 3.0, 4.5, 6.0, 7.5]
    assert Priority(scaling_efficiency)(state(), COUNTS, 0.0).tolist() == [0.0, 3.0, 6.0, 7.5, 9.0]
    with pytest.raises(InvalidTaskError, match=r"weight > 0, got 0\.0"):
        state(weight=0.0)


def test_priority_decides():
    """With equal curves, nodes go to the task that weighs more."""
    tasks = [plain("light", weight=1.0), plain("heavy", weight=2.0)]
    for objective, after in ((as_given, (2, 0)), (Priority(), (0, 2)), (Priority(scaling_efficiency), (0, 2))):
        assert decide(objective, tasks, 2).after == after


def test_priority_takes_what_an_objective_answers():
    """A list will do, as it does without priority."""

    def listed(task, counts, now_s):  # noqa: ARG001
        return counts.tolist()

    assert Priority(listed)(state(), COUNTS, 0.0).tolist() == [0.0, 3.0, 6.0, 9.0, 12.0]
