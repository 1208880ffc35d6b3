"""A configuration answers for itself before anything is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from bftrainer.errors import SettingsError
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
