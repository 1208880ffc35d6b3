import itertools

import pytest

from bftrainer.model import Event, ScalingCurve, TaskSpec


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


def test_events_do_not_compare_with_anything_else():
    """An event has no place in the order of other things."""
    with pytest.raises(TypeError):
        assert Event.join(0.0, "a") < 1.0
