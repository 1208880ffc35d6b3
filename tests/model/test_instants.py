from datetime import UTC, date, datetime

import pytest
from hypothesis import given

from bftrainer.model import instant_ns, iso
from tests.strategies import EPOCH_NS, instants_ns


@pytest.mark.long
@given(instants_ns)
def test_instants(time_ns):
    """An instant printed and read again is the same to the nanosecond, with few digits or all."""
    assert instant_ns(iso(time_ns)) == instant_ns(iso(time_ns, "ns")) == time_ns


@pytest.mark.parametrize(
    ("moment", "time_ns"),
    [
        ("2021-02-10", EPOCH_NS),
        ("2021-02-10 00:00", EPOCH_NS),
        ("2021-02-10T01:00:00.5+01:00", EPOCH_NS + 500_000_000),
        (date(2021, 2, 10), EPOCH_NS),
        (datetime(2021, 2, 10), EPOCH_NS),
        (datetime(2021, 2, 10, microsecond=1, tzinfo=UTC), EPOCH_NS + 1_000),
    ],
)
def test_moments(moment, time_ns):
    """A date is its midnight, and what has no zone is UTC."""
    assert instant_ns(moment) == time_ns


NONE = ("now", "today", "", "2021", "2021-02", "2021-02-30", "2021-02-10T25:00", "NaT")  # some of which numpy knows
FAR = ("1600-01-01", "2263-01-01", "0001-01-01T00:00+23:00", datetime.max)


@pytest.mark.parametrize(("moments", "error"), [(NONE, ValueError), (FAR, OverflowError)], ids=["none", "far"])
def test_no_instants(moments, error):
    """What is no ISO date is refused, as is what 64 bits of nanoseconds cannot hold."""
    for moment in moments:
        with pytest.raises(error):
            instant_ns(moment)
