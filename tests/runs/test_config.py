"""A configuration answers for itself before anything is read."""

import math
import re
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from bftrainer.errors import SettingsError
from bftrainer.objectives import throughput
from bftrainer.runs import ReplayConfig

START_NS = 1_612_915_200_123_456_789  # 2021-02-10T00:00:00.123456789Z


@pytest.mark.parametrize(
    "until",
    [
        datetime(2021, 2, 10, 0, 0, 15, 123_457),
        datetime(2021, 2, 10, 0, 0, 15, 123_457, tzinfo=UTC),
        datetime(2021, 2, 10, 1, 0, 15, 123_457, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_until_is_exact(until):
    """The time from a window's odd start to a date is the nearest float there is; a naive date is UTC."""
    assert ReplayConfig(until=until).until_s(START_NS) == 15.000000211


@pytest.mark.parametrize("year", [1, 1677, 2263, 9999])
def test_until_beyond_all_logs(year):
    """A date that no log can name is refused in so many words."""
    with pytest.raises(SettingsError, match="--until: Expected a time between the years 1678 and 2262, got "):
        ReplayConfig(until=datetime(year, 1, 1)).until_s(START_NS)


def test_numbers_of_numpy_are_numbers():
    """Options take numbers and truth values of NumPy, and keep Python's, which files can hold."""
    config = ReplayConfig(max_events=np.int64(10), forward_time_s=np.float32(5), baseline=np.bool_(False))
    assert [type(value) for value in (config.max_events, config.forward_time_s, config.baseline)] == [int, float, bool]


def test_the_effort_is_a_limit_of_decisions():
    """It reaches solvers as they take it: without one nothing is counted. A PUE below 1 is refused there, too."""
    limits = [ReplayConfig(effort=effort).settings(throughput, "dp").limits for effort in (None, 5)]
    assert [each.effort for each in limits] == [math.inf, 5.0]
    with pytest.raises(SettingsError, match="Expected a PUE of 1 or more"):
        ReplayConfig(pue=0.9).settings(throughput, "dp")


FILES = ("node_log", "tasks", "scalability", "scaling", "since", "until", "power_cap", "carbon")
WRONG = (
    *(("first_node", "x"), ("max_events", "5"), ("large_idle", 2.5), ("baseline", None), ("pue", "a"), ("seed", True)),
    *((name, value) for name in FILES for value in ({}, 1j, [1], True, object)),
    *((name, value) for name in ("objective", "solver", "fallback") for value in (3, [1])),
    *((name, object) for name in ("solver", "fallback")),
    *((name, 2**63) for name in ("max_events", "seed", "skip_events", "effort")),  # beyond what summaries hold
)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("power_cap", math.nan, "Expected power_cap >= 0, got nan."),
        ("carbon", -3.0, "Expected carbon >= 0, got -3.0."),
        ("effort", 0, "Expected effort >= 1, got 0."),
        ("power_options", "some", "Expected power_options to be chosen or pareto or all, got 'some'."),
    ],
)
def test_values_out_of_range(name, value, said):
    """Each is refused by name and value."""
    with pytest.raises(SettingsError, match=re.escape(said)):
        ReplayConfig(**{name: value})


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_values_of_another_type(name, value):
    """An option of another type is refused by its name and value, when it is given."""
    shown = re.escape("the class object" if value is object else repr(value))
    with pytest.raises(SettingsError, match=f"^Expected {name} to be .*{shown}"):
        ReplayConfig(**{name: value})
