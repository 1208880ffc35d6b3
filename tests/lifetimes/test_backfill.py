"""The planned queue: when idle nodes will be needed, and that nothing of the future is used."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.errors import SettingsError, UnusedOptionsError
from bftrainer.lifetimes.backfill import needed_after_s
from bftrainer.model import NS_PER_S
from bftrainer.model.lifetime import JobQueue, KnownJobs
from bftrainer.nodelogs.job_queue import write_queue
from bftrainer.runs import run_inputs, run_replay
from tests.logs import random_log


def known(waiting: list[tuple[int, float]], running: list[tuple[int, float, float]], used: float = 1.0) -> KnownJobs:
    """Waiting jobs of nodes and limit, running ones of nodes, limit and elapsed time."""
    wait, run = np.array(waiting, dtype=float).reshape(-1, 2), np.array(running, dtype=float).reshape(-1, 3)
    sizes = wait[:, 0].astype(np.int64), run[:, 0].astype(np.int64)
    return KnownJobs(sizes[0], wait[:, 1], sizes[1], run[:, 1], run[:, 2], used)


def test_idle_nodes_stay_until_the_first_job_fits():
    """Of 4 idle nodes, a job of 6 takes 1 when a job on 5 ends in 900 s, as it frees 5 of the 6."""
    found = needed_after_s(known([(6, 3600.0)], [(5, 1000.0, 100.0)]), 4)
    assert found.tolist() == [900.0, np.inf, np.inf, np.inf]


def test_a_later_job_is_backfilled_if_it_delays_none():
    """A job of 2 that ends before the first one can start is due at once; a longer one has to wait for it."""
    running = [(5, 1000.0, 100.0)]
    short = needed_after_s(known([(8, 3600.0), (2, 800.0)], running), 4)
    assert short.tolist() == [60.0, 60.0, 900.0, np.inf]
    long = needed_after_s(known([(8, 3600.0), (2, 1800.0)], running), 4)
    assert long.tolist()[0] == 900.0


def test_limits_are_corrected_by_what_jobs_use_of_them():
    """Where jobs have used half of their limits, running ones are expected to end at half of theirs."""
    found = needed_after_s(known([(6, 3600.0)], [(5, 1000.0, 100.0)], used=0.5), 4)
    assert found[0] == 400.0


def queue_of(log, seed):
    """Jobs submitted all through a log's window."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.uniform(0.0, log.window_s, 60)) + log.start_ns / NS_PER_S
    start_s = submit_s + rng.exponential(2_000.0, 60)
    length_s = rng.exponential(3_000.0, 60) + 1.0
    return JobQueue(submit_s, start_s, start_s + length_s, rng.integers(1, 6, 60), 2.0 * length_s)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_plan_sees_only_the_past(tmp_path, seed):
    """With another future of the log and of its queue, all decisions until it begins are the same ones."""
    log = random_log(seed, nodes=12, flips=160)
    cut = len(log.time_ns) * 2 // 3
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(log.time_ns[cut - 1] + 1, log.end_ns, size=len(log.time_ns) - cut))
    other = replace(log, time_ns=np.concatenate((log.time_ns[:cut], times)))
    at_ns = min(int(each.time_ns[cut]) for each in (log, other))
    queue, at_s = queue_of(log, seed), at_ns / NS_PER_S
    seen = queue.submit_s <= at_s
    # Whatever has not happened by then happens otherwise; later submissions are left out.
    start_s = np.where(queue.start_s > at_s, queue.start_s + 500.0, queue.start_s)
    end_s = np.where(queue.end_s > at_s, queue.end_s + 900.0, queue.end_s)
    changed = JobQueue(queue.submit_s[seen], start_s[seen], end_s[seen], queue.nodes[seen], queue.limit_s[seen])
    decided = []
    for number, (some, jobs) in enumerate(((log, queue), (other, changed))):
        path = tmp_path / f"{number}.csv"
        write_queue(path, jobs)
        use = {"foresight": "backfill", "foresight_use": "order,pool,value", "queue": path}
        table = run_replay(some, solver="dp", forward_time_s=300.0, baseline=False, **use).recording
        until_s = (at_ns - log.start_ns) / NS_PER_S
        decided.append([(each.offered, each.after) for each in table.decisions if each.time_s < until_s])
    assert decided[0] == decided[1]
    assert len(decided[0]) > 20


def test_a_queue_is_needed_by_the_plan_and_by_nothing_else(tmp_path):
    """Without a queue backfill is refused, and a queue that no model reads is as well."""
    log = random_log(1)
    with pytest.raises(SettingsError, match="Missing --queue"):
        run_replay(log, solver="dp", foresight="backfill", baseline=False)
    path = tmp_path / "queue.csv"
    write_queue(path, queue_of(log, 1))
    with pytest.raises(UnusedOptionsError, match="foresight age does not read it"):
        run_replay(log, solver="dp", foresight="age", queue=path, baseline=False)


def test_a_run_makes_its_model_and_reads_its_queue_once(tmp_path, monkeypatch):
    """Both may be large; replays that bound it have models of their own, which read no queue."""
    log, path, calls = random_log(1), tmp_path / "queue.csv", Counter[str]()
    write_queue(path, queue_of(log, 1))

    def count(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: calls.update([name]) or function(*given))

    count(run_inputs, "get_lifetimes")
    count(run_inputs, "read_queue")
    options = {"solver": "dp", "foresight": "backfill", "queue": path, "max_events": 5, "baseline": False}
    run_replay(log, **options)
    assert calls == {"get_lifetimes": 1, "read_queue": 1}
    names = [each.name for each in run_replay(log, bounds=True, **options).bounds.bounds]
    assert names == ["cost-free", "clairvoyant pool", "clairvoyant order", "as given", "blind"]
    assert calls["read_queue"] == 2
