"""What the controller of a harvest costs: ``python -m benchmarks.harvest.controller_cost [MINUTES]``.

1,000 nodes and 100 tasks whose carriers are none; each minute a few nodes go and others come. Ranks report every five
seconds. Time is simulated: processor time per simulated second is the share of a core that a controller takes.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bftrainer.harvest.controller import Controller, HarvestLimits
from bftrainer.harvest.harvest_directory import EventJournal
from bftrainer.harvest.harvest_events import (
    CarrierLeaving,
    CarrierLost,
    CarrierUp,
    HarvestEvent,
    PoolChanged,
    Progressed,
    RankExited,
    StartRank,
    StopRank,
    Submitted,
)
from bftrainer.harvest.session import HarvestSession
from bftrainer.objectives import scaling_efficiency
from bftrainer.replay import Settings
from bftrainer.runs import ReplayConfig

NODES, TASKS, REPORT_S, _WARM_S = 1_000, 100, 5.0, 60.0
START_NS = 1_700_000_000 * 10**9


def table(number: int) -> dict[str, object]:
    """A task that does not say how it scales."""
    most = int(np.random.default_rng(number).integers(4, 33))
    return {"name": f"t{number}", "min_nodes": 1, "max_nodes": most, "work": 1e9, "command": ["true"]}


class Cluster:
    """Carriers that are none, and come at once, with tasks that report their work."""

    is_over = False

    def __init__(self) -> None:
        self.works: dict[str, float] = {}
        self.carriers: dict[str, str] = {}
        self.ranks: dict[tuple[str, int, str], StartRank] = {}
        self.events: list[HarvestEvent] = []

    def poll(self, timeout_s: float) -> list[HarvestEvent]:
        """What has happened."""
        del timeout_s
        events, self.events = self.events, []
        return events

    def change_pool(self, idle: Sequence[str], busy: Sequence[str]) -> list[HarvestEvent]:
        """Take nodes back, and leave others idle; what has happened."""
        self.events.append(PoolChanged(tuple(idle), tuple(busy)))
        for node in sorted(self.carriers.keys() & set(busy)):
            self.release(node, self.carriers[node])
        return self.poll(0.0)

    def request(self, nodes: tuple[str, ...]) -> None:
        """Have carriers come."""
        for node in nodes:
            self.carriers[node] = f"{node}.{len(self.events)}"
            self.events.append(CarrierUp(node, self.carriers[node]))

    def release(self, node: str, carrier: str) -> None:
        """Have a carrier go, with its rank."""
        del self.carriers[node]
        self.events += [CarrierLeaving(node, carrier), CarrierLost(node, carrier)]
        self.ranks = {key: rank for key, rank in self.ranks.items() if rank.node != node}

    def start(self, rank: StartRank) -> None:
        """Have a rank be there."""
        self.ranks[rank.task.name, rank.generation, rank.node] = rank

    def stop(self, rank: StopRank) -> None:
        """Have a rank end."""
        if self.ranks.pop((rank.task, rank.generation, rank.node), None) is not None:
            self.events.append(RankExited(rank.task, rank.generation, rank.node, 0))

    def close(self) -> None:
        """Do nothing: nothing is there."""

    def reports(self, time_s: float) -> list[HarvestEvent]:
        """What first ranks say."""
        found: list[HarvestEvent] = []
        for rank in self.ranks.values():
            if rank.rank == 0:
                name = rank.task.name
                self.works[name] = self.works.get(name, 0.0) + 50.0 * REPORT_S * rank.world_size**0.9
                done = self.works[name]
                found.append(Progressed(name, rank.generation, done, done, START_NS / 1e9 + time_s))
        return found


def measured(minutes: int, directory: Path) -> dict[str, float]:
    """Simulate some minutes; seconds of processor time, and the longest that a decision took."""
    settings = Settings(objective=scaling_efficiency, solver="dp", forward_time_s=120.0, max_tasks=TASKS)
    controller = Controller(settings, START_NS, HarvestLimits())
    cluster, journal = Cluster(), EventJournal(directory)
    session = HarvestSession(directory, journal, controller, ReplayConfig(baseline=False), say=lambda _: None)
    journal.begin({"start_ns": START_NS, "settings": {}})
    rng, slowest_s, begun_s = np.random.default_rng(1), list[float](), time.process_time()
    names = [f"n{number:04}" for number in range(NODES)]

    def step(time_s: float, events: Sequence[HarvestEvent]) -> None:
        """One step of the session, timed."""
        before = time.process_time()
        session.take_in(cluster, time_s, events)
        if time_s >= _WARM_S and any(isinstance(event, PoolChanged) for event in events):
            slowest_s.append(time.process_time() - before)

    step(0.0, [Submitted("tasks.toml", table(number)) for number in range(TASKS)])
    idle = set(names[: NODES // 2])
    step(0.5, [PoolChanged(tuple(sorted(idle)))])
    for second in range(1, 60 * minutes):
        events: list[HarvestEvent] = []
        if second % 60 == 0:
            gone = rng.choice(sorted(idle), 5, replace=False).tolist()
            come = rng.choice(sorted(set(names) - idle), 5, replace=False).tolist()
            idle = (idle - set(gone)) | set(come)
            events = cluster.change_pool(come, gone)
        else:
            events = cluster.poll(0.0)
        if second % REPORT_S == 0:
            events += cluster.reports(float(second))
        for part in (0.0, 0.5):  # a session ticks twice a second
            step(second + part, events if not part else [])
    used_s = time.process_time() - begun_s
    steady = sorted(slowest_s)
    return {
        "core_share": used_s / (60 * minutes),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "decision_s_median": steady[len(steady) // 2],
        "decision_s_max": steady[-1],
        "journal_mb_a_day": (directory / "journal").stat().st_size / 1e6 / minutes * 1440,
    }


def main(arguments: Sequence[str]) -> None:
    """Print what was measured."""
    with tempfile.TemporaryDirectory() as place:
        for name, figure in measured(int(arguments[0]) if arguments else 30, Path(place)).items():
            print(f"{name:20} {figure:.4g}")


if __name__ == "__main__":
    main(sys.argv[1:])
