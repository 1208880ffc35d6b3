import itertools
import math

import numpy as np
import pytest

from bftrainer.errors import InvalidTaskError
from bftrainer.model import Event, ScalingCurve, TaskSpec, TaskState
from bftrainer.model.task import NodePoints
from bftrainer.tasksets import read_task_set, write_task_set

CURVE = ScalingCurve((0, 2, 8), (0.0, 3.0, 9.0))


def task(**changes):
    """A task with some fields changed."""
    return TaskSpec(**({"name": "J0", "min_nodes": 1, "max_nodes": 4, "work": 5.0, "scaling": CURVE} | changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_nodes": 1.5}, "min_nodes to be whole, got 1.5"),
        ({"deadline_ns": 10**30}, f"deadline_ns between the years 1678 and 2262, got {10**30}"),
        ({"work": 10**400}, "work > 0, got inf"),
        ({"work": math.nan}, "work > 0, got nan"),
        ({"min_nodes": 0}, "min_nodes >= 1, got 0"),
        ({"min_nodes": 5}, "min_nodes <= max_nodes, got 5 > 4"),
        ({"max_nodes": 9}, "max_nodes within the scaling curve (to 8), got 9"),
        ({"shrink_cost_s": -1}, "shrink_cost_s >= 0, got -1.0"),
        ({"grow_cost_s": -1}, "grow_cost_s >= 0, got -1.0"),
        ({"weight": math.nan}, "weight > 0, got nan"),
        ({"submit_s": math.nan}, "a finite submission time, got nan"),
        ({"deadline_s": math.inf}, "a finite deadline, got inf"),
        ({"user": "\udcff"}, r"user to be text, got '\udcff'"),
        ({"checkpoint_s": -1.0}, "checkpoint_s to be finite and >= 0, got -1.0"),
        ({"checkpoint_s": NodePoints((1, 2), (3.0, math.inf))}, "checkpoint_s to be finite and >= 0, got inf"),
        ({"checkpoint_s": 5.0, "restart_s": math.nan}, "restart_s to be finite and >= 0, got nan"),
        ({"checkpoint_s": 5.0, "restart_s": "fast"}, "restart_s to be a number, got 'fast'"),
        ({"restart_s": 7.0}, "checkpoint_s with restart_s, got none"),
        ({"checkpoint_s": 5.0, "checkpoint_interval_s": 0.5}, "checkpoint_interval_s to be finite and >= 1, got 0.5"),
        ({"scaling": None}, "scaling to be a ScalingCurve, got None"),
        ({"name": ""}, "a name, got ''"),
    ],
)
def test_bad_fields(change, message):
    """A field of another type or out of range is refused when the task is made."""
    with pytest.raises(InvalidTaskError) as caught:
        task(**change)
    assert str(caught.value) == f"Expected {message} (task {change.get('name', 'J0')})."


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (((0, "2"), (0, 1)), "nodes to be whole, got '2'"),
        (((0,), (0,)), "at least two node counts, got [0]"),
        (((1, 2), (0, 1)), "node counts to start at 0, got 1"),
        (((0, 2, 2), (0, 1, 2)), "node counts to increase strictly, got [0, 2, 2]"),
        (((0, 2), (0,)), "2 values of throughput, one per node count, got 1"),
        (((0, 2), (0, math.nan)), "throughput to be finite and >= 0, got nan"),
        (((0, 2), (0, 1), (0,)), "2 values of credit, one per node count, got 1"),
        (((0, 2), (0, 1), (1, 1)), "credit 0 on 0 nodes, got 1.0"),
    ],
)
def test_bad_curves(points, message):
    """A curve is of node counts that ascend from 0, and of as many numbers."""
    with pytest.raises(InvalidTaskError) as caught:
        ScalingCurve(*points)
    assert str(caught.value) == f"Expected {message}."


def test_renaming_shares_tables():
    """A renamed task differs by its name alone, and its tables are those of the other."""
    renamed = task().rename("J1")
    assert renamed == task(name="J1")
    assert renamed.rates is renamed.rename("J2").rates


def test_numbers_of_numpy(tmp_path):
    """Tasks made of numpy's numbers equal those made of Python's, and are written and read alike."""
    curve = ScalingCurve(tuple(np.array([0, 2, 8])), tuple(np.array([0, 3, 9], dtype=np.float32)))
    made = task(min_nodes=np.int64(1), max_nodes=np.int32(4), work=np.float64(5), weight=np.float32(1), scaling=curve)
    assert made == task()
    write_task_set(tmp_path / "t.toml", [made])
    assert read_task_set(tmp_path / "t.toml").tasks == (task(),)


def test_deadlines_count_from_the_start():
    """By date or in seconds, a deadline is seconds after the window's start, and infinitely far where there is none."""
    start_ns = 10**18
    for changes, due_s in (
        ({"deadline_s": 40.0}, 40.0),
        ({"deadline_ns": start_ns + 1_500_000_000}, 1.5),
        ({"deadline_ns": start_ns - 10**9, "deadline_s": 40.0}, -1.0),
        ({}, math.inf),
    ):
        assert TaskState(task(**changes), 0, 0.0, 0.0, start_ns).deadline_s == due_s
    assert TaskState(task(), 0, 0.0, 0.0).modes == (task(),)  # on no other power limits


def test_events_are_ordered_whatever_they_carry():
    """Time and kind order events; what they carry, which may have no order, does not."""
    one, other = (TaskSpec(name, 1, 2, 1.0, ScalingCurve.linear(1.0, 2)) for name in ("J0", "J1"))
    first, second = Event.submission(1.0, one), Event.submission(1.0, other)
    assert not first < second
    assert not second < first
    assert first <= second <= first
    assert first != second
    later = Event.power_cap(1.0, 5.0)
    events = [Event.completion(1.0, "J0"), Event.leave(1.0, "b"), Event.join(1.0, "a"), first, later, Event.leave(2.0)]
    for shuffled in itertools.permutations(events):
        assert sorted(shuffled) == events
    assert max(events) >= later > first
