"""Times of a training run at any world size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InvalidTaskError
from bftrainer.tasksets.measurements import TrainingProfile

PROFILE = TrainingProfile((16, 32, 64), (20.0, 12.0, 8.0), 90.0, 80.0)


def test_profiled_sizes_are_as_measured():
    """At a measured size the measured time counts."""
    assert [PROFILE.iteration_time_s(size) for size in (16, 32, 64)] == [20.0, 12.0, 8.0]


def test_between_sizes_it_is_linear_in_one_over_the_size():
    """1/48 lies two thirds of the way from 1/32 to 1/64: 12 - 2/3 * 4 s."""
    assert PROFILE.iteration_time_s(48) == pytest.approx(12.0 - 4.0 * 2 / 3)


def test_beyond_the_sizes_efficiency_is_that_of_the_nearest():
    """Node-seconds an iteration are 320 below 16 nodes, and 512 above 64."""
    assert PROFILE.iteration_time_s(8) == pytest.approx(40.0)
    assert PROFILE.iteration_time_s(128) == pytest.approx(4.0)


@given(st.integers(1, 5000))
def test_every_size_has_a_time(size):
    """No world size is out of reach, and more nodes are never slower for a profile that improves."""
    assert 0 < PROFILE.iteration_time_s(size + 1) <= PROFILE.iteration_time_s(size)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (((), ()), "at least one world size, got none"),
        (((16,), ()), "as many iteration times as world sizes, got 0 for 1"),
        (((0,), (1.0,)), r"world sizes that increase from 1 or more to at most 1e\+09, got \(0,\)"),
        (((16, 16), (1.0, 1.0)), r"world sizes that increase .* got \(16, 16\)"),
        (((16,), (0.0,)), r"1e-06 <= iteration_s at world size 16 < 1e9, got 0\.0"),
        (((16,), (float("nan"),)), "got nan"),
        (((16,), (1e300,)), r"iteration_s at world size 16 < 1e9, got 1e\+300"),
        (((16, 10**10), (2.0, 1.0)), "world sizes that increase .* to at most 1e"),
    ],
)
def test_bad_profiles(fields, said):
    """A profile without sizes, with sizes of 0 or with times out of range is refused."""
    with pytest.raises(InvalidTaskError, match=said):
        TrainingProfile(*fields, 1.0, 1.0)


def test_times_are_not_negative():
    """Reconfigurations, checkpoints and loads may take no time, but not less; samples are over 0."""
    for field in ("reconfiguration_s", "checkpoint_s", "load_s"):
        with pytest.raises(InvalidTaskError, match=rf"Expected 0 <= {field} < 1e9, got -1\.0"):
            TrainingProfile((1,), (1.0,), **({"reconfiguration_s": 0.0, "checkpoint_s": 0.0} | {field: -1.0}))
    with pytest.raises(InvalidTaskError, match="0 < samples_per_iteration <= 1e15"):
        TrainingProfile((1,), (1.0,), 0.0, 0.0, samples_per_iteration=0.0)
