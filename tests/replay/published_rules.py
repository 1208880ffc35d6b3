"""The published replayer, written down from its rules alone: no code of ours, lists and loops.

One event at a time: progress, departures, completions, arrivals, admissions, the decision, in this order; rows of the
log alone are events. A task below its minimum pays for changes what its curve gives there, which decisions leave out.
Nodes go in the order in which they came into the pool; the last row is decided; of tasks that lost nodes those count
that paid for it. At the window's start tasks are let in and get the nodes that are idle there, but that is no row of
the step log: events count from 1, the first row after it. The row at which all tasks are done repeats the last rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

Row = tuple[float, list[str], list[str]]
"""Time of a row, and nodes that join and leave, each in node order."""


@dataclass
class Job:
    """A task: what is given of it, and where it stands."""

    curve: Sequence[float]
    least: int
    most: int
    work: float
    up_s: float
    down_s: float
    submit_s: float
    progress: float = 0.0
    rate: float = 0.0
    pending: float = 0.0
    nodes: list[str] = field(default_factory=list)

    def cost(self, count: int) -> float:
        """What it costs, in work, to go from its present count to another one."""
        now = len(self.nodes)
        seconds = self.up_s if count > now else self.down_s if count < now else 0.0
        return self.curve[now] * seconds


Decide = Callable[[list[Job], int], list[int]]


def heuristic(jobs: list[Job], pool: int) -> list[int]:
    """Equal shares in task order; a share that is just the minimum is none."""
    share = pool // len(jobs)
    counts = [min(share, job.most) if share > job.least else 0 for job in jobs]
    for number, job in enumerate(jobs):
        more = min(job.most, counts[number] + pool - sum(counts))
        if more >= job.least:
            counts[number] = more
    return counts


def best(forward_s: float) -> Decide:
    """The node-level model's optimum, by trying all counts."""

    def decide(jobs: list[Job], pool: int) -> list[int]:
        """The counts of the greatest value."""
        allowed = [[0, *range(job.least, job.most + 1)] for job in jobs]
        fitting = (counts for counts in product(*allowed) if sum(counts) <= pool)
        return list(
            max(
                fitting,
                key=lambda counts: sum(
                    forward_s * job.curve[count] - (job.cost(count) if len(job.nodes) >= job.least else 0.0)
                    for job, count in zip(jobs, counts, strict=True)
                ),
            )
        )

    return decide


def replayed(rows: Sequence[Row], queue: Sequence[Job], most_jobs: int, decide: Decide) -> list[dict[str, float]]:
    """The step log."""
    waiting, active, pool, log = list(queue), [], [], []
    then = 0.0
    _admit(waiting, active, most_jobs, 0.0)
    if rows and rows[0][0] == 0.0:
        pool, rows = list(rows[0][1]), rows[1:]
    _run(active, pool, decide)
    for number, (time_s, joined, left) in enumerate(rows, start=1):
        last_rate = sum(job.rate for job in active)
        before = [(job, job.progress) for job in active]
        paid = []
        for job in active:
            job.progress += (time_s - then) * job.rate - job.pending
            job.pending = 0.0
            if set(left) & set(job.nodes):
                paid.append(job.down_s * job.rate)
                job.progress -= paid[-1]
                job.nodes = [node for node in job.nodes if node not in left]
        pool = [node for node in pool if node not in left]
        for job in [each for each in active if each.progress >= each.work]:
            job.progress, job.nodes = job.work, []
            active.remove(job)
        pool += joined
        _admit(waiting, active, most_jobs, time_s)
        _run(active, pool, decide)
        log.append(
            {
                "evtTime": time_s,
                "Thr": sum(job.progress - done for job, done in before),
                "Rate": sum(job.rate for job in active) if active or waiting else last_rate,
                "ReScost": sum(job.pending for job in active),
                "evt": number,
                "Nleft": len(left),
                "Npre": sum(cost > 0.0 for cost in paid),
                "Njoin": len(joined),
                "nJob": len(active),
                "nNd": len(pool),
                "nJrun": sum(job.rate > 0.0 for job in active),
                "nNrun": sum(len(job.nodes) for job in active),
                "PreCost": sum(paid),
            }
        )
        then = time_s
        if not active and not waiting:
            break
    return log


def _admit(waiting: list[Job], active: list[Job], most_jobs: int, time_s: float) -> None:
    """Let submitted tasks in, in file order."""
    for job in list(waiting):
        if len(active) < most_jobs and job.submit_s <= time_s:
            waiting.remove(job)
            active.append(job)


def _run(active: list[Job], pool: list[str], decide: Decide) -> None:
    """Decide, and let tasks run at the rates of what they have got."""
    if active and pool:
        _allot(active, pool, decide(active, len(pool)))
    for job in active:
        count = len(job.nodes)
        job.rate = job.curve[count] if count >= job.least else 0.0


def _allot(active: list[Job], pool: list[str], counts: list[int]) -> None:
    """Tasks that shrink give up the nodes that came first; those that grow then take such ones."""
    for job, count in zip(active, counts, strict=True):
        job.pending = job.cost(count)
    for job, count in zip(active, counts, strict=True):
        if count < len(job.nodes):
            in_order = [node for node in pool if node in job.nodes]
            job.nodes = in_order[len(in_order) - count :]
    for job, count in zip(active, counts, strict=True):
        held = {node for each in active for node in each.nodes}
        free = [node for node in pool if node not in held]
        job.nodes = job.nodes + free[: max(0, count - len(job.nodes))]
