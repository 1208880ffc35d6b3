"""Read times in logs: epoch seconds, or local times in a zone, where clock changes repeat or skip an hour."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bftrainer.errors import SettingsError, suggestion
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.nodelogs.node_spans import OPEN_END_NS
from bftrainer.schedulers.busy_records import as_texts, number_texts

UNSET = np.iinfo(np.int64).min
"""Stands for a time that the log leaves open."""
BAD = UNSET + 1
"""Stands for a text that is not a time, or a time out of range."""
UNSET_TEXTS = frozenset({"", "Unknown", "None", "NONE", "(null)", "NULL", "null", "NaT", "nan", "NaN"})
"""Texts in place of a time, or another value, that is not set."""

_EPOCH_SECONDS = re.compile(r"\d{9,11}", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e\+?\d+)?", re.ASCII)
_DURATION = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?", re.ASCII)
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)", re.ASCII)
_LOCAL = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
_DAY_NS = 86_400 * NS_PER_S


def is_instant(text: str) -> bool:
    """Whether a time in settings needs no zone: epoch seconds, or a time with its offset from UTC."""
    has_offset = len(text) > 10 and re.search(r"(Z|[+-]\d\d:?\d\d)$", text) is not None
    return has_offset or _EPOCH_SECONDS.fullmatch(text) is not None


def read_stamps(texts: Sequence[str]) -> pd.DataFrame:
    """Read texts such as `1788251400` (seconds, or finer) or `2026-09-01T08:30:00`, or `UNSET_TEXTS`.

    Columns are `ns`, nanoseconds since 1970, `UNSET` or `BAD`, and `local`, whether that is in some zone.
    """
    column, last_s = as_texts(texts), OPEN_END_NS // NS_PER_S
    numbers = whole_numbers(column, 10)  # seconds, as most logs have them
    is_number = numbers >= 0
    ns = np.where(is_number & (numbers <= last_s), np.minimum(numbers, last_s) * NS_PER_S, BAD)
    local = np.zeros(len(column), dtype=np.bool_)
    local[~is_number] = column[~is_number].str.fullmatch(_LOCAL).to_numpy(np.bool_)
    shown = column[local]
    dates = pd.to_datetime(shown, format="ISO8601", errors="coerce").to_numpy().astype("M8[s]")
    is_odd = np.isnat(dates)  # among them leap seconds
    again = pd.to_datetime(shown[is_odd].str.replace("T", " "), format="%Y-%m-%d %H:%M:%S", errors="coerce")
    dates[is_odd] = again.to_numpy().astype("M8[s]")
    seconds = dates.astype(np.int64)
    # The epoch in zones behind UTC is of the last day of 1969.
    is_possible = (seconds >= -86_400) & (seconds < last_s)
    ns[local] = np.where(is_possible, np.clip(seconds, 0, last_s) * NS_PER_S, BAD)
    # Other forms of that length exist, with a zone.
    is_other = ~local & ~is_number
    ns[is_other] = number_texts(column[is_other], _read_stamp)
    local[is_other] = number_texts(column[is_other], lambda text: not _NUMBER.fullmatch(text) and not is_instant(text))
    return pd.DataFrame({"ns": ns, "local": local & (ns > BAD)})


def _read_stamp(text: str) -> int:
    if text in UNSET_TEXTS:
        return UNSET
    if _NUMBER.fullmatch(text):
        # No log is older than 1973: larger numbers than its seconds are milliseconds, or finer still.
        fine = next((step for step, least in ((9, 1e17), (6, 1e14), (3, 1e11)) if float(text) >= least), 0)
        count = exact_ns(f"{text}e-{fine}" if "e" not in text else str(float(text) / 10**fine))
        return BAD if count is None or count < 0 else count
    try:
        count = instant_ns(text)
    except (ValueError, OverflowError):
        return BAD
    return max(count, 0) if -_DAY_NS <= count < OPEN_END_NS else BAD


def set_unset(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> None:
    """Take a time of 0, or of about 1970, for one that is not set, where the other time of a row is one of today."""
    no_start = (np.abs(start_ns) <= _DAY_NS) & (end_ns > 365 * _DAY_NS)
    end_ns[(np.abs(end_ns) <= _DAY_NS) & (start_ns > 365 * _DAY_NS)] = UNSET
    start_ns[no_start] = UNSET


class Clock:
    """Local time of a zone; whether it `has_skipped` a time that it was asked for."""

    def __init__(self, zone: str | None = None) -> None:
        self.zone, self.has_skipped, fixed = zone, False, _OFFSET.fullmatch("+00:00" if zone is None else zone)
        size = timedelta(hours=int(fixed[2]), minutes=int(fixed[3])) if fixed else timedelta(days=1)
        try:
            self._info: tzinfo = timezone(-size if fixed[1] == "-" else size) if fixed else ZoneInfo(str(zone))
        except (ValueError, OSError, LookupError):
            hint = suggestion(str(zone), available_timezones())
            raise SettingsError(f"Expected a time zone such as Europe/Berlin, got {zone!r}.{hint}") from None

    def instant_ns(self, text: str) -> int:
        """Nanoseconds since 1970 of a time in settings: epoch seconds, or ISO, in this zone unless it names one."""
        if _EPOCH_SECONDS.fullmatch(text):
            return int(text) * NS_PER_S
        try:
            count = instant_ns(text)
            if is_instant(text):
                return count
            moment = datetime.fromisoformat(text[:19]).replace(tzinfo=self._info)
        except (ValueError, OverflowError):
            raise SettingsError(f"Expected a time such as 2026-09-01T08:00, got {text!r}.") from None
        offset = moment.utcoffset() or timedelta(0)
        return count - round(offset.total_seconds()) * NS_PER_S

    def run_ns(
        self,
        runs: tuple[Sequence[str], Sequence[str]],
        place: Callable[[int], str],
        lengths_s: Sequence[NDArray[np.int64]] = (),
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts and ends of runs since the epoch, `UNSET` or `BAD`.

        Of an hour that comes twice, those passes count that give one of a run's lengths, if it is 0 or more; else both:
        better busy too long than wrongly idle.
        """
        begins, overs = map(read_stamps, runs)
        first, late = (self.utc_ns(begins, second_pass=is_second, place=place) for is_second in (False, True))
        early, last = (self.utc_ns(overs, second_pass=is_second, place=place) for is_second in (False, True))
        set_unset(first, last)
        start_ns, end_ns = first, last
        for begin, over in ((late, early), (late, last), (first, early), (first, last)) if lengths_s else ():
            fits = np.any(
                [(length_s >= 0) & ((over - begin) // NS_PER_S == length_s) for length_s in lengths_s], axis=0
            )
            start_ns, end_ns = np.where(fits, begin, start_ns), np.where(fits, over, end_ns)
        return start_ns, end_ns

    def utc_ns(
        self, stamps: pd.DataFrame, *, second_pass: bool, place: Callable[[int], str] = lambda _: ""
    ) -> NDArray[np.int64]:
        """Nanoseconds since the epoch; in a repeated hour, those of its second pass if `second_pass`.

        `UNSET` and `BAD` stay what they are. `place` is where a stamp stands, for what is said of it.
        """
        ns, is_local = stamps["ns"].to_numpy(), stamps["local"].to_numpy()
        count = np.where(ns > BAD, ns, 0)
        if is_local.any():
            if self.zone is None:
                first = int(is_local.argmax())
                shown = np.datetime64(int(count[first]) // NS_PER_S, "s")
                where = f"{place(first)}: ".removeprefix(": ")
                raise SettingsError(f"{where}Missing --tz: times such as {shown} are local, in an unknown time zone.")
            # A time in a repeated hour has two offsets; a skipped time has none, and gets one of those beside it.
            local_s = count[is_local] // NS_PER_S
            shown, first_pass = pd.DatetimeIndex(local_s.astype("M8[s]")), np.full(local_s.size, not second_pass)
            skipped = timedelta(hours=1 if second_pass else -1)
            instants = shown.tz_localize(self._info, ambiguous=first_pass, nonexistent=skipped)
            if not second_pass:
                self.has_skipped |= bool((instants.tz_localize(None) != shown).any())
            count[is_local] -= (local_s - instants.as_unit("s").asi8) * NS_PER_S
        return np.where(ns > BAD, count, ns)


def whole_numbers(texts: pd.Series[str], digits: int) -> NDArray[np.int64]:
    """Whole numbers of up to so many digits, at most 18, that texts are; -1 for others."""
    column, numbers = pa.array(texts), np.full(len(texts), -1, dtype=np.int64)
    is_number = np.asarray(pc.and_(pc.ascii_is_decimal(column), pc.less_equal(pc.binary_length(column), digits)))
    numbers[is_number] = np.asarray(column.filter(pa.array(is_number)).cast(pa.int64()))
    return numbers


def natural_number(text: str) -> int | None:
    """Read a whole number of up to 18 digits; None if the text is anything else."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 18 else None


def exact_ns(seconds: str) -> int | None:
    """Read seconds as nanoseconds; None if the text is not a number, or the time is out of range."""
    if seconds.isdecimal() and seconds.isascii() and len(seconds) <= 12:
        count = int(seconds) * NS_PER_S
        return count if count < OPEN_END_NS else None
    try:
        exact = Decimal(seconds.strip()) * NS_PER_S
    except ArithmeticError:
        return None
    return round(exact) if exact.is_finite() and abs(exact) < OPEN_END_NS else None


def duration_s(text: str) -> int | None:
    """Seconds of a duration such as `1-02:03:04`, `10:00:00` or `03:04`; None if the text is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(digits or 0) for digits in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
