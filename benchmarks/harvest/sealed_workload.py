"""What a harvest costs those whose machine it is: ``python -m benchmarks.harvest.sealed_workload [--minutes 20]``.

The same jobs are submitted at the same instants to a Slurm of eight nodes, without a harvest and with one. Starts are
compared job by job; one that is earlier with the harvest counts as no delay. How much of what was idle was held is
sampled twice a second. If a job was later than promised, those before it are played once more without a harvest, on the
nodes that they had with it: what it waits then is for backfill, which promises nodes by name. The rest is for carriers.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType

import click
import numpy as np

from benchmarks.harvest.live_harvest import PARTITION, LiveHarvest
from bftrainer.harvest.scheduler_polls import SINFO_FIELDS, SQUEUE_FIELDS, nodes_of_carriers, slurm_pool
from tests.harvest.slurm import GRACE_S, NODES, Slurm, running_slurm
from tests.waiting import until

MEDIAN_S, WORST_S, SHARE = 2.0, GRACE_S + 5.0, 0.8
_SAMPLE_S = 0.5
_AT_ONCE_S = 5.0
"""A job that starts within that has waited for no other one."""


@dataclass(frozen=True, slots=True)
class OrdinaryJob:
    """A job: when it is submitted, its nodes, and for how long it sleeps."""

    at_s: float
    nodes: int
    lasts_s: float


def drawn_jobs(count: int, over_s: float, seed: int) -> list[OrdinaryJob]:
    """Jobs of one to six nodes that need about 40 % of eight nodes' time."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.uniform(0.0, over_s, count))
    nodes = rng.choice([1, 2, 3, 4, 5, 6], count, p=[0.3, 0.25, 0.15, 0.1, 0.15, 0.05])
    lasts = rng.uniform(0.25, 2.0, count) * over_s / count
    return [OrdinaryJob(*row) for row in zip(at.tolist(), nodes.tolist(), lasts.tolist(), strict=True)]


def equal_jobs(count: int, over_s: float, nodes: int) -> list[OrdinaryJob]:
    """Jobs of so many nodes at equal intervals, with time between them."""
    return [OrdinaryJob(over_s * number / count, nodes, 0.25 * over_s / count) for number in range(count)]


@dataclass(slots=True)
class PlayedWorkload:
    """How jobs fared, and what was idle and held meanwhile.

    Attributes
    ----------
    delays_s : list of float
        From the submission of each to its first command.
    failures : list of str
        Of jobs that did not complete.
    places : list of str
        Nodes that each had.
    held, idle, unused : float
        Node-seconds that carriers held, that were idle for them (as many as tasks can use), and that no ordinary job
        used, promised to one or not.
    """

    delays_s: list[float]
    failures: list[str]
    places: list[str]
    held: float = 0.0
    idle: float = 0.0
    unused: float = 0.0


def play(
    slurm: Slurm,
    jobs: Sequence[OrdinaryJob],
    folder: Path,
    most: int = 0,
    places: Mapping[int, str] = MappingProxyType({}),
) -> PlayedWorkload:
    """Submit jobs at their times, some of them to certain nodes, and wait until all have ended."""
    folder.mkdir()
    played, over = PlayedWorkload([], [], []), Event()
    sampler = Thread(target=_sample, args=(slurm, played, most, over))
    sampler.start()
    numbers, submitted, begun_s = [], [], time.time()
    for place, job in enumerate(jobs):
        time.sleep(max(0.0, begun_s + job.at_s - time.time()))
        submitted.append(time.time())
        script = f"date +%s.%N > {folder}/{place}; sleep {job.lasts_s:.2f}; echo done >> {folder}/{place}"
        on = [f"--nodelist={places[place]}"] if place in places else []
        numbers.append(slurm.submit(script, f"-N{job.nodes}", "-p", "batch", "-t", "10", *on))
    until(lambda: not set(numbers) & set(slurm.jobs()), within_s=600.0)
    over.set()
    sampler.join()
    rows = re.findall(r"JobId=(\d+) .*?JobState=(\w+) .*?NodeList=(\S+)", (slurm.folder / "jobs.txt").read_text())
    ended, had = ({row[0]: row[column] for row in rows} for column in (1, 2))
    for place, number in enumerate(numbers):
        path = folder / str(place)
        said = path.read_text().split() if path.exists() else []
        if said[1:] != ["done"] or ended.get(str(number)) != "COMPLETED":
            played.failures.append(f"job {place}: {ended.get(str(number), 'lost')}")
        played.delays_s.append(float(said[0]) - submitted[place] if said else float("nan"))
        played.places.append(had.get(str(number), ""))
    return played


def _sample(slurm: Slurm, played: PlayedWorkload, most: int, over: Event) -> None:
    last_s = time.monotonic()
    while not over.wait(_SAMPLE_S):
        rows = slurm.run("squeue", "-h", "-t", "R,CG", "-o", SQUEUE_FIELDS).stdout
        nodes = slurm.run("sinfo", "-h", "-N", "-p", "batch", "-O", SINFO_FIELDS).stdout
        held = nodes_of_carriers(rows, lambda _, partition: partition == PARTITION)
        used = nodes_of_carriers(rows, lambda _, partition: partition != PARTITION)
        idle = sum(cause is None for cause in slurm_pool(nodes, held).values())
        now_s = time.monotonic()
        played.held += len(held) * (now_s - last_s)
        played.idle += min(idle, most) * (now_s - last_s)
        played.unused += min(len(NODES) - len(used), most) * (now_s - last_s)
        last_s = now_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two, side by side; and by how much jobs start later without a harvest, on the nodes that they had with it."""

    jobs: Sequence[OrdinaryJob]
    without: PlayedWorkload
    harvested: PlayedWorkload
    laid_out_s: dict[int, float] = field(default_factory=dict)

    @property
    def extra_s(self) -> list[float]:
        """By how much each job started later."""
        pairs = zip(self.without.delays_s, self.harvested.delays_s, strict=True)
        return [max(0.0, after - before) for before, after in pairs]

    @property
    def share(self) -> float:
        """Of what was idle, what carriers held."""
        return self.harvested.held / self.harvested.idle

    def faults(self) -> list[str]:
        """What was promised and is not so."""
        late = {job: extra_s - self.laid_out_s.get(job, 0.0) for job, extra_s in enumerate(self.extra_s)}
        worst, middle = max(late.values()), statistics.median(self.extra_s)
        found = [*self.without.failures, *self.harvested.failures]
        found += [f"median {middle:.2f} s > {MEDIAN_S} s"] if middle > MEDIAN_S else []
        found += [f"worst {worst:.2f} s > {WORST_S:g} s"] if not worst <= WORST_S else []
        return found + ([f"held {self.share:.1%} < {SHARE:.0%}"] if self.share < SHARE else [])

    def __str__(self) -> str:
        rows = ["  job   at (s)  nodes  lasts (s)  start without (s)  start with (s)  extra (s)"]
        delays = zip(self.jobs, self.without.delays_s, self.harvested.delays_s, self.extra_s, strict=True)
        for number, (job, before, after, extra) in enumerate(delays):
            rows.append(
                f"{number:5}{job.at_s:9.1f}{job.nodes:7}{job.lasts_s:11.1f}{before:19.2f}{after:16.2f}{extra:11.2f}"
            )
        extra_s, seen = self.extra_s, self.harvested
        return "\n".join(
            [
                *rows,
                f"extra start delay: median {statistics.median(extra_s):.2f} s, mean {statistics.mean(extra_s):.2f} s, "
                f"90 % {np.quantile(extra_s, 0.9):.2f} s, worst {max(extra_s):.2f} s",
                f"held {seen.held:.0f} of {seen.idle:.0f} idle node-seconds: {self.share:.1%} "
                f"({seen.held / seen.unused:.1%} of those that no job used, promised to one or not)",
            ]
        )


def compare(
    slurm: Slurm,
    jobs: Sequence[OrdinaryJob],
    folder: Path,
    save_s: float = 0.0,
    tasks: tuple[int, ...] = (4, 4),
    give_way: str = "named",
) -> tuple[Comparison, LiveHarvest]:
    """Play jobs without a harvest and with one, which has ended."""
    without = play(slurm, jobs, folder / "without")
    harvest = LiveHarvest(slurm, folder, tasks, save_s, give_way)
    harvest.wait_until_held()
    harvested = play(slurm, jobs, folder / "with", harvest.most)
    assert harvest.stop() == 0, harvest.output.read_text()
    return Comparison(jobs, without, harvested), harvest


def on_same_nodes(slurm: Slurm, seen: Comparison, job: int, folder: Path) -> float:
    """How much later than without a harvest a job starts that has none either, when others have the nodes of one.

    Jobs that had to wait take what Slurm gives them, as then.
    """
    had, jobs = seen.harvested, seen.jobs[: job + 1]
    at_once = {place: had.places[place] for place in range(job) if had.delays_s[place] <= _AT_ONCE_S}
    again = play(slurm, jobs, folder / f"same-{job}", places=at_once)
    assert not again.failures, again.failures
    return again.delays_s[job] - seen.without.delays_s[job]


@click.command()
@click.option("--minutes", type=float, default=20.0, show_default=True)
@click.option("--jobs", type=int, default=60, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--nodes", type=int, help="All jobs are of so many nodes, at equal intervals.")
@click.option("--save", "save_s", type=float, default=0.0, show_default=True, help="What checkpoints of tasks take.")
@click.option("--tasks", default="4,4", show_default=True, help="The most nodes of each task.")
@click.option("--give-way", type=click.Choice(["named", "chosen"]), default="named", show_default=True)
def main(minutes: float, jobs: int, seed: int, nodes: int | None, save_s: float, tasks: str, give_way: str) -> None:
    """Measure, print all jobs, and fail if something that is promised is not so."""
    over_s = 60 * minutes
    made = drawn_jobs(jobs, over_s, seed) if nodes is None else equal_jobs(jobs, over_s, nodes)
    sizes, grace_s = tuple(map(int, tasks.split(","))), GRACE_S + round(save_s)
    mode = "CANCEL" if give_way == "named" else "OFF"
    with running_slurm(grace_s, mode) as slurm, tempfile.TemporaryDirectory() as folder:
        comparison, harvest = compare(slurm, made, Path(folder), save_s, sizes, give_way)
        print(comparison)
        print(harvest.describe_losses())
        print(harvest.output.read_text())
        for job, extra_s in enumerate(comparison.extra_s):
            if extra_s > WORST_S:
                comparison.laid_out_s[job] = on_same_nodes(slurm, comparison, job, Path(folder))
                without = f"{comparison.laid_out_s[job]:.2f} s without a harvest, on the nodes that jobs had with it"
                print(f"job {job}: {extra_s:.2f} s later; {without}")
    sys.exit("\n".join(comparison.faults()) or 0)


if __name__ == "__main__":
    main()
