"""Machines with known idle time and faulty logs: it is right to a point, refused, or the fault is named."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import fold_hostlist
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.schedulers.machines import DAY, ORIGIN, export, machine

HEADER = "JobIDRaw|JobName|State|Start|End|Elapsed|Timelimit|NNodes|NodeList"
SEEDS = [pytest.param(seed, marks=pytest.mark.long if seed == 0 else pytest.mark.slow) for seed in range(20)]


def row(job, now, *, name="a job", names=None, limit="", forgotten=False):
    """A job as sacct prints it at some time."""
    is_over = job.end <= now and not forgotten
    state, end = ("COMPLETED", job.end) if is_over else ("RUNNING", "Unknown")
    nodes = fold_hostlist(names or [f"n{node:03}" for node in job.nodes])
    elapsed_s = (job.end if is_over else now) - job.start
    elapsed = f"{elapsed_s // DAY}-{elapsed_s % DAY // 3600:02}:{elapsed_s % 3600 // 60:02}:{elapsed_s % 60:02}"
    return f"{job.number}|{name}|{state}|{job.start}|{end}|{elapsed}|{limit}|{len(job.nodes)}|{nodes}"


def rename(made, rng, low, high):
    """From some day on half of the nodes have other names."""
    moment = rng.randrange(low + (high - low) // 3, high - (high - low) // 3)
    half = made.nodes // 2
    old = [f"n{node:03}" for node in range(made.nodes)]
    new = [f"m{node:03}" if node < half else name for node, name in enumerate(old)]
    jobs = export(made, "overlap", low, high)
    return [[row(job, high, names=[(new if job.start >= moment else old)[at] for at in job.nodes]) for job in jobs]]


def tell_twice(made, rng, low, high):
    """Two exports, the first of which tells of jobs that run still and have ended in the second."""
    moment = rng.randrange(low + (high - low) // 3, high)
    first = [row(job, moment, limit="30-00:00:00") for job in export(made, "overlap", low, moment)]
    return [first, [row(job, high) for job in export(made, "overlap", moment - DAY, high)]]


def run_past_limits(made, _, low, high):
    """Jobs that run still have been running for longer than their limits."""
    return [[row(job, high, limit="00:01:00") for job in export(made, "overlap", low, high)]]


def forget(made, rng, low, high):
    """The ends of some jobs were never written down."""
    share = rng.choice([0.001, 0.01, 0.03])
    return [[row(job, high, forgotten=rng.random() < share) for job in export(made, "overlap", low, high)]]


def shift(made, rng, low, high):
    """Names of some jobs hold the sign that separates columns."""
    jobs = export(made, "overlap", low, high)
    return [[row(job, high, name="lr|wd" if rng.random() < 0.05 else "a job") for job in jobs]]


@pytest.mark.parametrize("plant", [rename, tell_twice, run_past_limits, forget, shift])
@pytest.mark.parametrize("seed", SEEDS)
def test_faults_are_never_silent(tmp_path, plant, seed):
    """The idle share is within a point of what is true, or the log is refused, or the account names what is wrong."""
    made, rng = machine(seed), Random(seed)
    low, high = ORIGIN, ORIGIN + made.days * DAY
    paths = []
    for number, rows in enumerate(plant(made, rng, low, high)):
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text("\n".join([HEADER, *rows, ""]))
    try:
        quality = import_log("slurm", paths, ImportSettings(max_bad=1.0)).quality
    except LogError:
        return
    start, end = (datetime.fromisoformat(text).astimezone(UTC) for text in (quality.window_start, quality.window_end))
    first, last = round(start.timestamp()), round(end.timestamp())
    busy_s = sum(len(job.nodes) * max(min(job.end, last) - max(job.start, first), 0) for job in made.jobs)
    true_share = 1 - busy_s / (made.nodes * (last - first))
    is_named = quality.bad or any("named in no record" in note or "runaways" in note for note in quality.notes)
    assert is_named or quality.idle_share == pytest.approx(true_share, abs=0.01)
