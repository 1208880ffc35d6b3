"""Which part of a log is trusted, on machines whose truth is known; and that planted faults are never silent."""

from datetime import UTC, datetime
from functools import lru_cache
from random import Random

import numpy as np
import pytest

from bftrainer.errors import LogError
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, Window
from bftrainer.schedulers.coverage import (
    find_empty_days,
    find_lost_days,
    judge_coverage,
    list_dates,
    missing_ids,
)
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of, import_text
from tests.schedulers.machines import DAY, FORMS, HOUR, ORIGIN, SELECTED, export, format_job, machine, written

NS = 10**9
SEEDS = range(20)
POINT = 0.01
known = lru_cache(maxsize=4)(machine)


def cut(seed, days=(28, 80)):
    """A machine and a stretch of its time, cut at random; in whole hours."""
    made, rng = known(seed), np.random.default_rng(1000 + seed)
    hours = min(int(rng.uniform(*days) * 24), made.days * 24)
    low = ORIGIN + int(rng.integers(0, made.days * DAY - hours * HOUR + 1)) // 60 * 60
    return made, low, low + hours * HOUR


def longest(wrong):
    """Hours of the longest stretch over which this error, by the hour, averages to a point at most."""
    total = np.concatenate(([0], np.cumsum(wrong)))
    lengths = range(total.size - 1, 0, -1)
    return next((n for n in lengths if (np.abs(total[n:] - total[:-n]) <= POINT * n).any()), 0)


def iso_s(text):
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def imported(folder, made, kind, low, high, **settings):
    """Import an export of a stretch of time."""
    name, path, own = written(folder, made, kind, low, high)
    return import_log(name, [path], ImportSettings(**(own | settings)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SELECTED)
def test_trusted_windows(tmp_path, kind):
    """In 19 of 20 logs the trusted idle share is true to a point, over 80 % of the longest time that could be so."""
    good, wide, refused = 0, 0, 0
    for seed in SEEDS:
        made, low, high = cut(seed)
        try:
            quality = imported(tmp_path, made, kind, low, high).quality
        except LogError:
            refused += 1
            continue
        first, last = (round(iso_s(at)) for at in (quality.window_start, quality.window_end))
        true = 1 - made.busy(None, first, last).sum() / (made.nodes * ((last - first) // HOUR * HOUR))
        good += abs(quality.idle_share - true) <= POINT
        seen = made.busy(None, low, high) - made.busy(export(made, kind, low, high), low, high)
        held = (min(last, high) - max(first, low)) / HOUR
        wide += held >= 0.8 * longest(seen / (made.nodes * HOUR))
    assert refused <= (0 if kind in ("overlap", "recorded") else 1)
    assert min(good, wide) >= 0.95 * (len(SEEDS) - refused)


@pytest.mark.long
@pytest.mark.parametrize("kind", SELECTED)
def test_what_is_not_trusted_is_named(tmp_path, kind):
    """A window beyond what is trusted is refused with the numbers; who insists gets them with the figures."""
    made, low, high = cut(7)
    asked = {"start": str(low - DAY), "end": str(high + DAY)}
    with pytest.raises(LogError, match=r"h of the window of .* h cannot be trusted: .* idle node-hours .* about .* %"):
        imported(tmp_path, made, kind, low, high, **asked)
    done = imported(tmp_path, made, kind, low, high, **asked, window="asked")
    found, window = done.quality.coverage, (low - DAY, high + DAY)
    first, last = (round(iso_s(at)) for at in found["trusted"])
    assert found["untrusted_s"] == window[1] - window[0] - (last - first)
    held = sum(
        min(b, last) - max(a, first) for some in idle_of(done.log).values() for a, b in some if a < last and b > first
    )
    assert found["untrusted_idle_node_s"] == pytest.approx(done.quality.idle_node_s - held)
    seen = made.busy(export(made, kind, low, high), *window).sum()
    true = 1 - seen / made.busy(None, *window).sum()
    assert found["missing_busy_share"] == pytest.approx(true, abs=0.03)
    assert any("cannot be trusted" in note for note in done.log.provenance["notes"])
    inner = imported(tmp_path, made, kind, low, high, start=str(first + HOUR), end=str(last - HOUR))
    assert inner.quality.coverage["untrusted_s"] == 0.0
    assert done.log.provenance["coverage"] == found


def test_logs_that_tell_nothing():
    """Jobs that ended in three days, some of which ran for ten, tell nothing of those days; nor do jobs without end."""
    ones = np.ones(100, dtype=np.int64)
    end = np.arange(100) * 2592 * NS
    start = end - np.where(np.arange(100) % 10, 1, 240) * HOUR * NS
    found = judge_coverage(start, end, ones, ones * OPEN_START_NS)
    assert (found.trusted, found.missing_share(Window(0, 3 * DAY * NS))) == (None, None)
    found = judge_coverage(start, ones * OPEN_END_NS, ones, start)
    assert (found.trusted, found.reason) == (None, "no job has ended")


def test_short_accounting_files():
    """Where jobs run for 50 hours, files of the starts and ends of 40 do not tell who ran all through; a list does."""
    ended = np.arange(1, 400, dtype=np.int64) * 360 * NS
    start = np.concatenate((ended - 50 * HOUR * NS, ended))
    end = np.concatenate((ended, np.full(399, OPEN_END_NS)))
    rows = (start, end, np.ones(798, dtype=np.int64), np.full(798, OPEN_START_NS))
    found = judge_coverage(*rows, tells_changes=True)
    assert (found.trusted, found.reason[:31]) == (None, "it is shorter than the 50 h tha"), found.reason
    assert judge_coverage(*rows).trusted is not None


def test_days_whose_ends_are_missing():
    """Without what ended in two days they are lost; an outage of two days is none, nor are jobs that fill a machine."""
    rng = np.random.default_rng(7)
    start = np.sort(rng.integers(0, 30 * DAY, 9000))
    end = start + rng.integers(600, 14 * HOUR, start.size)
    up = (end < 10 * DAY) | (start >= 12 * DAY)
    filled = np.append(start[up], np.full(64, 10 * DAY)), np.append(end[up], np.full(64, 12 * DAY))
    kept = (end < 10 * DAY) | (end >= 12 * DAY)
    for (first, last), days in (
        ((start, end), 0.0),
        ((start[kept], end[kept]), 2.0),
        ((start[up], end[up]), 0.0),
        (filled, 0.0),
    ):
        spans = find_lost_days(first * NS, last * NS, Window(0, 30 * DAY * NS))
        assert spans.node_s / DAY == pytest.approx(days, abs=0.02)
        assert list_dates(spans) == ["1970-01-11", "1970-01-12"][: int(days)]


def test_few_long_jobs_at_the_end(tmp_path):
    """Jobs that still run are the end of a log, also where few are long; forgotten ones, old by then, are not."""
    made, low, high = cut(310)
    found = imported(tmp_path, made, "overlap", low, high).quality
    assert found.coverage["selected_by"][1] == "started"
    assert abs(iso_s(found.window_end) - high) < DAY
    jobs = export(made, "ended", low, high)
    columns = (
        np.array([(job.start, job.end, len(job.nodes), job.submit) for job in jobs]).T * np.array([[NS, NS, 1, NS]]).T
    )
    plain = judge_coverage(*columns)
    lost = [(low * NS + at * 5 * DAY * NS, OPEN_END_NS, 1, low * NS + at * 5 * DAY * NS) for at in range(1, 6)]
    late = judge_coverage(*np.concatenate((columns, np.array(lost).T), axis=1))
    assert late.edges[1] == plain.edges[1] == "ended"


def test_a_day_without_ends(tmp_path):
    """A day's ended jobs are missing, the others began on it: it is said, with the share of idle time that it holds."""
    made, low, high = cut(7)
    name, path, own = written(tmp_path, made, "overlap", low, high)
    rows = path.read_text().splitlines()
    day = low + 10 * DAY
    kept = [row for row in rows if not (row.split("|")[5].isdecimal() and day <= int(row.split("|")[5]) < day + DAY)]
    path.write_text("\n".join(kept) + "\n")
    quality = import_log(name, [path], ImportSettings(**own)).quality
    assert 1 <= quality.coverage["empty_days"] < 1.5
    dates = quality.coverage["lacking_dates"]
    assert datetime.fromtimestamp(day, UTC).date().isoformat() in dates
    wanted = f"days of the window jobs began and none ended: records of them are missing ({', '.join(dates)})."
    assert any(wanted in note for note in quality.notes)
    assert len(kept) < len(rows)


def test_a_gap_longer_than_what_is_told():
    """A year between two weeks of many jobs is found, though most days have none; few jobs tell of no gap."""
    start = np.concatenate((np.arange(0, 7 * DAY, 600), np.arange(372 * DAY, 379 * DAY, 600))) * NS
    end, window = start + 600 * NS, Window(0, 379 * DAY * NS)
    spans = find_empty_days((start, end), window)
    assert spans.node_s / DAY == pytest.approx(365, abs=0.1)
    assert list_dates(spans) == [str(np.datetime64("1970-01-01") + 7 + at) for at in range(365)]
    assert len(find_empty_days((start[::100], end[::100]), window)) == 0


def test_missing_ids(tmp_path):
    """Where job ids are dense, those that no row has tell of missing records; jumps, and few or sparse ids do not."""
    every = np.arange(1000, 5000)
    tenth = every[every % 10 > 0]
    assert missing_ids(every) == 0.0
    assert missing_ids(tenth) == pytest.approx(0.1, abs=0.002)
    assert missing_ids(np.append(every, every + 10**6)) == 0.0
    assert missing_ids(every[:300]) == 0.0
    assert missing_ids(every[::3]) == 0.0
    rows = "".join(
        f"{at}|{1788249600 + 60 * at}|{1788249600 + 60 * at + 3000}|n{at % 50}\n" for at in tenth.tolist() if at % 7
    )
    idle = "".join(f"{at}|Unknown|Unknown|\n" for at in tenth.tolist() if not at % 7)
    done = import_text(tmp_path / "log", "slurm", f"JobIDRaw|Start|End|NodeList\n{rows}{idle}", window="asked")
    assert done.quality.coverage is not None
    assert done.quality.coverage["missing_ids_share"] == pytest.approx(0.1, abs=0.002)
    assert "10 % of the job ids are in no row: records are missing, whose nodes look idle." in done.quality.notes


SEEDS_PLANTED = [pytest.param(seed, marks=pytest.mark.long if seed == 0 else pytest.mark.slow) for seed in range(20)]


def row(job, now, *, names=None, forgotten=False, **more):
    """A job as sacct prints it at some time."""
    end, state = (job.end, "COMPLETED") if job.end <= now and not forgotten else (None, "RUNNING")
    hosts = names or [f"n{node:03}" for node in job.nodes]
    more = {"name": "a job", "elapsed": (end or now) - job.start, "submit": job.submit} | more
    return format_job("slurm", job.number, job.start, end, hosts, state=state, **more)


FAULTS = ("nodes renamed", "jobs told twice", "limits exceeded", "ends forgotten", "names with bars")


def plant(fault, made, rng, low, high):
    """Rows of each export of a log with a fault."""
    third, jobs = (high - low) // 3, export(made, "overlap", low, high)
    if fault == "nodes renamed":  # half of them, from some day on
        moment, old = rng.randrange(low + third, high - third), made.names(range(made.nodes))
        new = [f"m{name[1:]}" if node < made.nodes // 2 else name for node, name in enumerate(old)]
        return [[row(job, high, names=[(new if job.start >= moment else old)[at] for at in job.nodes]) for job in jobs]]
    if fault == "jobs told twice":  # as running, and in the second export as ended
        moment = rng.randrange(low + third, high)
        first = [row(job, moment, limit="30-00:00:00") for job in export(made, "overlap", low, moment)]
        return [first, [row(job, high) for job in export(made, "overlap", moment - DAY, high)]]
    if fault == "limits exceeded":
        return [[row(job, high, limit="00:01:00") for job in jobs]]
    if fault == "ends forgotten":
        share = rng.choice([0.001, 0.01, 0.03])
        return [[row(job, high, forgotten=rng.random() < share) for job in jobs]]
    return [[row(job, high, name="lr|wd" if rng.random() < 0.05 else "a job") for job in jobs]]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", SEEDS_PLANTED)
def test_faults_are_never_silent(tmp_path, fault, seed):
    """The idle share is within a point of what is true, or the log is refused, or the account names what is wrong."""
    made, rng = machine(seed), Random(seed)
    low, high = ORIGIN, ORIGIN + made.days * DAY
    texts = [FORMS["slurm"][0] + "".join(rows) for rows in plant(fault, made, rng, low, high)]
    try:
        quality = import_text(tmp_path / "log", "slurm", *texts, max_bad=1.0).quality
    except LogError:
        return
    first, last = (round(iso_s(at)) for at in (quality.window_start, quality.window_end))
    busy_s = sum(len(job.nodes) * max(min(job.end, last) - max(job.start, first), 0) for job in made.jobs)
    true_share = 1 - busy_s / (made.nodes * (last - first))
    is_named = quality.bad or any("named in no record" in note or "runaways" in note for note in quality.notes)
    assert is_named or quality.idle_share == pytest.approx(true_share, abs=0.01)
