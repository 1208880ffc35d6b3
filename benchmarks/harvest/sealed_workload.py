"""What a harvest costs those whose machine it is: ``python -m benchmarks.harvest.sealed_workload [--minutes 20]``.

The same jobs are submitted at the same instants to a Slurm of eight nodes, without a harvest and with one. Starts are
compared job by job; one that is earlier with the harvest counts as no delay. How much of what was idle was held is
sampled twice a second. If a job was later than promised, those before it are played once more without a harvest, on the
nodes that they had with it: what it waits then is for backfill, which promises nodes by name. The rest is for carriers.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

import click
import numpy as np
import pandas as pd

from benchmarks.harvest.live_harvest import PARTITION, RATE, LiveHarvest, harvest_slurm
from bftrainer.harvest.scheduler_polls import SINFO_FIELDS, SQUEUE_FIELDS, nodes_of_carriers, slurm_pool
from tests.harvest.slurm import GRACE_S, Slurm, running_slurm
from tests.waiting import until

MEDIAN_S, WORST_S, SHARE = 2.0, GRACE_S + 5.0, 0.8
_AT_ONCE_S = 5.0
"""A job that starts within that has waited for no other one."""


def draw_jobs(count: int, over_s: float, seed: int) -> pd.DataFrame:
    """When each job is submitted, its nodes, and for how long it sleeps: about 40 % of eight nodes' time."""
    rng = np.random.default_rng(seed)
    at_s = np.sort(rng.uniform(0.0, over_s, count))
    nodes = rng.choice([1, 2, 3, 4, 5, 6], count, p=[0.3, 0.25, 0.15, 0.1, 0.15, 0.05])
    return pd.DataFrame({"at_s": at_s, "nodes": nodes, "lasts_s": rng.uniform(0.25, 2.0, count) * over_s / count})


def space_jobs(count: int, over_s: float, nodes: int) -> pd.DataFrame:
    """Jobs of so many nodes at equal intervals, with time between them."""
    return pd.DataFrame({"at_s": over_s * np.arange(count) / count, "nodes": nodes, "lasts_s": 0.25 * over_s / count})


def play(
    slurm: Slurm, jobs: pd.DataFrame, folder: Path, places: Mapping[int, str] = MappingProxyType({})
) -> pd.DataFrame:
    """Submit jobs at their times, some of them to certain nodes, and wait until all have ended.

    Of each the seconds from its submission to its first command, how it ended, and the nodes that it had.
    """
    folder.mkdir()
    numbers, rows, begun_s = dict[int, float](), [], time.time()
    for job in jobs.itertuples():
        time.sleep(max(0.0, begun_s + job.at_s - time.time()))
        script = f"date +%s.%N > {folder}/{job.Index} && sleep {job.lasts_s:.2f}"
        on = [f"--nodelist={places[job.Index]}"] if job.Index in places else []
        submitted_s = time.time()
        numbers[slurm.submit(script, f"-N{job.nodes}", "-p", "batch", "-t", "10", *on)] = submitted_s
    until(lambda: not numbers.keys() & slurm.jobs().keys(), within_s=600.0)
    ended = re.findall(r"JobId=(\d+) .*?JobState=(\w+) .*?NodeList=(\S+)", (slurm.folder / "jobs.txt").read_text())
    states = {int(number): (state, nodes) for number, state, nodes in ended}
    for place, (number, submitted_s) in enumerate(numbers.items()):
        path, (state, nodes) = folder / str(place), states.get(number, ("lost", ""))
        rows.append((float(path.read_text()) - submitted_s if path.exists() else float("nan"), state, nodes))
    return pd.DataFrame(rows, columns=["start_s", "state", "on"])


def sample_share(slurm: Slurm, over: Event) -> float:
    """Of the node-seconds that are idle for carriers, those that they hold; sampled twice a second until it is over."""
    held_s, idle_s, last_s = 0.0, 0.0, time.monotonic()
    while not over.wait(0.5):
        jobs = slurm.run("squeue", "-h", "-t", "R,CG", "-o", SQUEUE_FIELDS).stdout
        nodes = slurm.run("sinfo", "-h", "-N", "-p", "batch", "-O", SINFO_FIELDS).stdout
        held = nodes_of_carriers(jobs, lambda _, partition: partition == PARTITION)
        idle = sum(cause is None for cause in slurm_pool(nodes, held).values())
        passed_s, last_s = time.monotonic() - last_s, time.monotonic()
        held_s, idle_s = held_s + len(held) * passed_s, idle_s + idle * passed_s
    return held_s / idle_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """Jobs without and with a harvest, which has ended, and how much of what was idle it held.

    `jobs` has what each was and what `play` says of it, by columns that end in `_without` and `_with`, and the seconds
    by which it started later, `extra_s`; `laid_out_s` is for those that `replay_on_same_nodes` tells.
    """

    jobs: pd.DataFrame
    harvest: LiveHarvest
    share: float

    def list_faults(self) -> list[str]:
        """What was promised and is not so."""
        jobs, median_s = self.jobs, self.jobs.extra_s.median()
        worst_s, states = (jobs.extra_s - jobs.laid_out_s).max(), pd.concat([jobs.state_without, jobs.state_with])
        faults = [f"job {job}: {state}" for job, state in states.items() if state != "COMPLETED"]
        faults += [f"median {median_s:.2f} s > {MEDIAN_S} s"] if median_s > MEDIAN_S else []
        faults += [f"worst {worst_s:.2f} s > {WORST_S:g} s"] if worst_s > WORST_S else []
        return faults + ([f"held {self.share:.1%} < {SHARE:.0%}"] if self.share < SHARE else [])

    def __str__(self) -> str:
        shown = self.jobs[["at_s", "nodes", "lasts_s", "start_s_without", "start_s_with", "extra_s"]]
        held_s = json.loads((self.harvest.directory / "summary.json").read_text())["idle_node_s"]
        trained_s = sum(self.harvest.saved().values()) / RATE
        return (
            f"{shown.round(2).to_string()}\n{self.jobs.extra_s.describe(percentiles=[0.5, 0.9]).to_string()}\n"
            f"held {self.share:.1%} of what was idle: {held_s:.0f} node-seconds, trained {trained_s:.0f} of them "
            f"({trained_s / held_s:.1%})\n{self.harvest.output.read_text()}"
        )


def compare(slurm: Slurm, jobs: pd.DataFrame, folder: Path, **options: Any) -> Comparison:
    """Play jobs without a harvest and with one of these options, see `harvest_slurm`."""
    without, over = play(slurm, jobs, folder / "without"), Event()
    harvest = harvest_slurm(slurm, folder, **options)
    harvest.wait_until_held()
    with ThreadPoolExecutor(1) as pool:
        sampling = pool.submit(sample_share, slurm, over)
        try:
            harvested = play(slurm, jobs, folder / "with")
        finally:
            over.set()
    assert harvest.stop() == 0, harvest.output.read_text()
    both = jobs.join(without.add_suffix("_without")).join(harvested.add_suffix("_with"))
    extra_s = (both.start_s_with - both.start_s_without).clip(lower=0.0)
    return Comparison(both.assign(extra_s=extra_s, laid_out_s=0.0), harvest, sampling.result())


def replay_on_same_nodes(slurm: Slurm, jobs: pd.DataFrame, job: int, folder: Path) -> float:
    """How much later than without a harvest a job starts that has none either, when others have the nodes of one.

    Jobs that had to wait take what Slurm gives them, as then.
    """
    at_once = jobs.on_with[:job][jobs.start_s_with[:job] <= _AT_ONCE_S]
    again = play(slurm, jobs[: job + 1], folder / f"same-{job}", at_once)
    assert set(again.state) == {"COMPLETED"}, again
    return float(again.start_s[job] - jobs.start_s_without[job])


@click.command()
@click.option("--minutes", type=float, default=20.0, show_default=True)
@click.option("--jobs", "count", type=int, default=60, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--nodes", type=int, help="All jobs are of so many nodes, at equal intervals.")
@click.option("--save", "save_s", type=float, default=0.0, show_default=True, help="What checkpoints of tasks take.")
@click.option("--tasks", default="4,4", show_default=True, help="The most nodes of each task.")
@click.option("--give-way", type=click.Choice(["named", "chosen"]), default="named", show_default=True)
def main(minutes: float, count: int, seed: int, nodes: int | None, save_s: float, tasks: str, give_way: str) -> None:
    """Measure, print all jobs, and fail if something that is promised is not so."""
    over_s, sizes = 60 * minutes, [*map(int, tasks.split(","))]
    drawn = draw_jobs(count, over_s, seed) if nodes is None else space_jobs(count, over_s, nodes)
    mode = "CANCEL" if give_way == "named" else "OFF"
    with running_slurm(GRACE_S + round(save_s), mode) as slurm, tempfile.TemporaryDirectory() as folder:
        comparison = compare(slurm, drawn, Path(folder), sizes=sizes, save_s=save_s, give_way=give_way)
        print(comparison)
        jobs = comparison.jobs
        for job in jobs.index[jobs.extra_s > WORST_S]:
            jobs.loc[job, "laid_out_s"] = replay_on_same_nodes(slurm, jobs, job, Path(folder))
            print(f"job {job}: {jobs.laid_out_s[job]:.2f} s later without a harvest, on the same nodes as with it")
    sys.exit("\n".join(comparison.list_faults()) or 0)


if __name__ == "__main__":
    main()
