"""Times in logs: local ones on days on which clocks change, and texts that are numbers, times or neither."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.schedulers.clock import BAD, UNSET, Clock, exact_ns, natural_number, read_stamps

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "Asia/Kolkata"]
CLOCKS = {zone: Clock(zone) for zone in ZONES}
NS = 10**9


def epoch(text):
    """Epoch seconds of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@given(st.sampled_from(ZONES), st.integers(200_000, 4_000_000_000))
def test_agrees_with_zoneinfo(zone, instant):
    """What a zone's clocks show at an instant is read back as that instant, in one of its two passes at least."""
    shown = datetime.fromtimestamp(instant, ZoneInfo(zone))
    stamps = read_stamps([f"{shown:%Y-%m-%dT%H:%M:%S}"])
    passes = [int(CLOCKS[zone].utc_ns(stamps, second_pass=second_pass)[0]) // NS for second_pass in (False, True)]
    assert passes[shown.fold] == instant
    assert passes[0] <= passes[1]


def test_hour_that_is_skipped():
    """A time that no clock showed may be before or after the change."""
    stamps = read_stamps(["2026-03-29T02:30:00"])
    passes = [CLOCKS["Europe/Berlin"].utc_ns(stamps, second_pass=is_second).tolist() for is_second in (False, True)]
    assert passes == [[epoch("2026-03-29T00:30:00") * NS], [epoch("2026-03-29T01:30:00") * NS]]


def test_stamps():
    """Epoch seconds, finer ones and local times are told apart; the unset and the impossible are marked."""
    local = ["2015-06-26T16:56:49", "2015-06-26 16:56:49", "2015-06-26T16:56", "2015-06-26T16:56:49.5"]
    bad = ["2015-02-30T00:00:00", "yesterday", "2015-06-26T25:00:00", "2015-06-26x16:56:49", "-5", "²", "9" * 30]
    stamps = read_stamps(["1435337809", "1435337809250", "2015", *local, "Unknown", "", *bad])
    numbers = [1435337809 * NS, 1435337809 * NS + NS // 4, 2015 * NS]
    times = [1435337809 * NS, 1435337809 * NS, 1435337760 * NS, 1435337809 * NS + NS // 2]
    assert stamps.ns.tolist() == [*numbers, *times, UNSET, UNSET, *[BAD] * len(bad)]
    assert np.flatnonzero(stamps.local).tolist() == [3, 4, 5, 6]
    assert Clock("UTC").utc_ns(stamps, second_pass=False).tolist() == stamps.ns.tolist()
    # A leap second is read as the next second; what is no text at all is not set.
    leap = read_stamps(["2016-12-31T23:59:60", "2016-12-31 23:59:60", None, "2016-12-31T23:60:00", "2015"])
    assert leap.ns.tolist() == [epoch("2017-01-01T00:00:00") * NS] * 2 + [UNSET, BAD, 2015 * NS]
    assert leap.local.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("zone", "message"),
    [
        ("Europe/Berln", r"got 'Europe/Berln'\. Did you mean 'Europe/Berlin'\?"),
        *((zone, "Expected a time zone such as Europe/B") for zone in ("Europe", "../../etc/x", "", "+99:00")),
    ],
)
def test_unknown_zones(zone, message):
    """A zone that is not known is refused, with the nearest one."""
    with pytest.raises(SettingsError, match=message):
        Clock(zone)


@pytest.mark.parametrize(
    ("zone", "text", "wanted_ns"),
    [
        (None, "2026-09-01", epoch("2026-09-01T00:00:00") * NS),
        ("Europe/Berlin", "2026-09-01T08:30", epoch("2026-09-01T06:30:00") * NS),
        ("Europe/Berlin", "2026-09-01T08:30:00Z", epoch("2026-09-01T08:30:00") * NS),
        ("Europe/Berlin", "2026-09-01T08:30:00-04:00", epoch("2026-09-01T12:30:00") * NS),
        ("+02:00", "2026-09-01 08:30:00.25", epoch("2026-09-01T06:30:00") * NS + NS // 4),
        ("Europe/Berlin", "1000000000", NS * NS),
    ],
)
def test_moments_of_settings(zone, text, wanted_ns):
    """A moment that names no zone is one of the log's zone, else of UTC."""
    assert Clock(zone).instant_ns(text) == wanted_ns


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01", "2026-02-30", "12", "2026-09-01T08:30:00+"])
def test_moments_that_are_none(text):
    """Anything else is refused."""
    with pytest.raises(SettingsError, match=r"Expected a time such as 2026-09-01T08:00, got"):
        Clock().instant_ns(text)


@given(st.decimals(0, 4 * 10**9, places=9))
def test_times_are_exact(seconds):
    """No nanosecond is lost on the way, as it would be in a float."""
    assert exact_ns(str(seconds)) == int(seconds * NS)


@pytest.mark.parametrize(
    ("read", "text", "wanted"),
    [
        # A number within the time of any log, in any notation; nothing else, however large.
        *((exact_ns, text, ns) for text, ns in (("0", 0), (" 1.5 ", NS * 3 // 2), ("1.7e9", 17 * 10**17), ("-1", -NS))),
        *((exact_ns, text, None) for text in ("", "x", "nan", "inf", "1e99", "1e999999999", "9" * 5000)),
        # Up to 18 digits; what Python would call a digit elsewhere is none in a log.
        *((natural_number, text, None) for text in ("", "1.0", "²", "٣", "9" * 19)),
        (natural_number, "007", 7),
    ],
)
def test_numbers(read, text, wanted):
    """What is a number of seconds, or a whole number, and what is none."""
    assert read(text) == wanted
