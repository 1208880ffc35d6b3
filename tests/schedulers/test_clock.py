"""Local times: both hours of a day on which clocks are put back, the missing one when they are put forward."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.schedulers.clock import BAD, UNSET, Clock, read_stamps

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "Asia/Kolkata"]
CLOCKS = {zone: Clock(zone) for zone in ZONES}


def seconds(zone, text, *, second_pass=False):
    """Epoch seconds of one local time."""
    return int(Clock(zone).utc_ns(read_stamps([text]), second_pass=second_pass)[0]) // 10**9


def epoch(text):
    """Epoch seconds of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@given(st.sampled_from(ZONES), st.integers(200_000, 4_000_000_000))
def test_agrees_with_zoneinfo(zone, instant):
    """What a zone's clocks show at an instant is read back as that instant, in one of its two passes at least."""
    shown = datetime.fromtimestamp(instant, ZoneInfo(zone))
    stamps = read_stamps([f"{shown:%Y-%m-%dT%H:%M:%S}"])
    passes = [int(CLOCKS[zone].utc_ns(stamps, second_pass=second_pass)[0]) // 10**9 for second_pass in (False, True)]
    assert passes[shown.fold] == instant
    assert passes[0] <= passes[1]


def test_the_repeated_hour():
    """When clocks go back an hour has two passes; the hours around it have one."""
    assert seconds("Europe/Berlin", "2026-10-25T02:30:00") == epoch("2026-10-25T00:30:00")
    assert seconds("Europe/Berlin", "2026-10-25T02:30:00", second_pass=True) == epoch("2026-10-25T01:30:00")
    for second_pass in (False, True):
        assert seconds("Europe/Berlin", "2026-10-25T01:59:59", second_pass=second_pass) == epoch("2026-10-24T23:59:59")
        assert seconds("Europe/Berlin", "2026-10-25T03:00:00", second_pass=second_pass) == epoch("2026-10-25T02:00:00")


def test_the_skipped_hour():
    """A time that no clock showed is known as such, and lies next to the change."""
    stamps = read_stamps(["2026-03-29T01:59:59", "2026-03-29T02:30:00", "2026-03-29T03:00:00"])
    clock = Clock("Europe/Berlin")
    first, second = (clock.utc_ns(stamps, second_pass=is_second) for is_second in (False, True))
    assert (second < first).tolist() == [False, True, False]
    instants = clock.utc_ns(stamps, second_pass=False) // 10**9
    assert instants[[0, 2]].tolist() == [epoch("2026-03-29T00:59:59"), epoch("2026-03-29T01:00:00")]
    assert abs(instants[1] - instants[2]) <= 3600


def test_stamps():
    """Epoch seconds and local times are told apart; the unset and the impossible are marked."""
    texts = ["1435337809", "2015-06-26T16:56:49", "2015-06-26 16:56:49", "Unknown", "2015-02-30T00:00:00", "yesterday"]
    texts += ["", "2015", "2015-06-26T16:56", "99999999999", "2015-06-26T25:00:00", "2015-06-26x16:56:49", "-5", "²"]
    stamps = read_stamps(texts, frozenset({"Unknown", ""}))
    wanted = [1435337809, 1435337809, 1435337809, UNSET, BAD, BAD, UNSET, 2015, BAD, BAD, BAD, BAD, BAD, BAD]
    assert stamps.seconds.tolist() == wanted
    assert np.flatnonzero(stamps.local).tolist() == [1, 2]
    assert Clock("UTC").utc_ns(stamps, second_pass=False)[[0, 3, 4]].tolist() == [1435337809 * 10**9, UNSET, BAD]


def test_local_times_need_a_zone():
    """Without a zone local times are refused, and epoch seconds are not."""
    assert Clock().utc_ns(read_stamps(["5"]), second_pass=False).tolist() == [5 * 10**9]
    with pytest.raises(SettingsError, match=r"--tz: times such as 2015-06-26T16:56:49 are local"):
        Clock().utc_ns(read_stamps(["5", "2015-06-26T16:56:49"]), second_pass=False)


@pytest.mark.parametrize(
    ("zone", "message"),
    [
        ("Europe/Berln", r"got 'Europe/Berln'\. Did you mean 'Europe/Berlin'\?"),
        ("Europe", r"Expected a time zone such as Europe/Berlin, got 'Europe'"),
        ("../../etc/passwd", r"Expected a time zone"),
        ("", r"Expected a time zone"),
        ("+99:00", r"Expected a time zone"),
    ],
)
def test_unknown_zones(zone, message):
    """A zone that is not known is refused, with the nearest one."""
    with pytest.raises(SettingsError, match=message):
        Clock(zone)


@pytest.mark.parametrize(
    ("zone", "text", "wanted"),
    [
        (None, "2026-09-01", "2026-09-01T00:00:00"),
        ("Europe/Berlin", "2026-09-01", "2026-08-31T22:00:00"),
        ("Europe/Berlin", "2026-09-01T08:30", "2026-09-01T06:30:00"),
        ("Europe/Berlin", "2026-09-01T08:30:00Z", "2026-09-01T08:30:00"),
        ("Europe/Berlin", "2026-09-01T08:30:00-04:00", "2026-09-01T12:30:00"),
        ("+02:00", "2026-09-01 08:30:00.25", "2026-09-01T06:30:00"),
        ("Europe/Berlin", "1000000000", "2001-09-09T01:46:40"),
    ],
)
def test_moments_of_settings(zone, text, wanted):
    """A moment that names no zone is one of the log's zone, else of UTC."""
    wanted_ns = epoch(wanted) * 10**9 + (250_000_000 if text.endswith(".25") else 0)
    assert Clock(zone).instant_ns(text) == wanted_ns


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01", "2026-02-30", "12", "2026-09-01T08:30:00+"])
def test_moments_that_are_none(text):
    """Anything else is refused."""
    with pytest.raises(SettingsError, match=r"Expected a time such as 2026-09-01T08:00, got"):
        Clock().instant_ns(text)


def test_the_table_is_complete():
    """No change of the years with logs is missed, seen hour by hour."""
    zone = ZoneInfo("Africa/Casablanca")
    start = datetime(2019, 1, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=hour) for hour in range(24 * 400)]
    shown = [f"{hour.astimezone(zone):%Y-%m-%dT%H:%M:%S}" for hour in hours]
    folds = np.array([hour.astimezone(zone).fold for hour in hours])
    early, late = (
        CLOCKS["Africa/Casablanca"].utc_ns(read_stamps(shown), second_pass=second_pass) for second_pass in (False, True)
    )
    wanted = np.array([int(hour.timestamp()) * 10**9 for hour in hours])
    np.testing.assert_array_equal(np.where(folds == 1, late, early), wanted)
