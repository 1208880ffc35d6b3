"""What survives when parts of a harvest are killed: ``python -m benchmarks.harvest.slurm_kills [--instants 20]``.

At random instants the controller, a carrier, a rank or the daemon of a node is killed by ``kill -9``, or Slurm's own
controller is killed and started again. Each task has to go on from its newest checkpoint, and at the end nothing may be
left.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks.harvest.live_harvest import LiveHarvest
from bftrainer.harvest.controller import Controller, HarvestLimits
from bftrainer.harvest.harvest_directory import EventJournal
from bftrainer.objectives import scaling_efficiency
from bftrainer.replay import Settings
from tests.harvest.slurm import NODES, running_slurm
from tests.waiting import until

KINDS = ("controller", "carrier", "rank", "slurmd", "slurmctld")
_LONGEST_WAIT_S = 3.0
_NODE_IS_DOWN_S = 15.0
"""After so long Slurm has given a node up whose daemon is dead, and its jobs."""


@dataclass(frozen=True, slots=True)
class SlurmKill:
    """What was killed, when, how long it took until all nodes were held and all tasks went on, and what was wrong."""

    kind: str
    at_s: float
    took_s: float
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.at_s:7.1f} s  {self.kind:10} went on after {self.took_s:5.1f} s  {'; '.join(self.faults)}"


def kill(harvest: LiveHarvest, kind: str, rng: np.random.Generator) -> None:
    """Kill something, and start again what does not come back by itself."""
    slurm = harvest.slurm
    if kind == "controller":
        harvest.process.kill()
        harvest.process.wait()
        harvest.start()
    elif kind == "slurmctld":
        slurm.kill("slurmctld")
        slurm.start_controller()
    elif kind == "slurmd":
        node = str(rng.choice(NODES))
        slurm.kill(node)
        time.sleep(float(rng.choice([0.0, _NODE_IS_DOWN_S])))
        slurm.start_node(node)
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    else:
        word = {"carrier": "harvest.agent", "rank": "_task"}[kind]
        os.kill(int(rng.choice(until(lambda: harvest.processes(word)))), signal.SIGKILL)


def torment(harvest: LiveHarvest, kinds: list[str], rng: np.random.Generator) -> list[SlurmKill]:
    """Kill one after the other, at random instants, and see each time how tasks go on."""
    begun_s, found = time.monotonic(), []
    for kind in kinds:
        harvest.wait_until_whole()
        time.sleep(rng.uniform(0.0, _LONGEST_WAIT_S))
        starts = {name: len(harvest.history(name)) for name in harvest.names}
        before, at_s = harvest.saved(), time.monotonic()
        kill(harvest, kind, rng)
        harvest.wait_until_whole()
        took_s, faults = time.monotonic() - at_s, []
        for name in harvest.names:
            for line in harvest.history(name)[starts[name] :]:
                word, _, work = line.partition(" ")
                if word != "from" or float(work) < before[name]:
                    faults.append(f"{name}: {line}, after {before[name]:g} was saved")
        found.append(SlurmKill(kind, at_s - begun_s, took_s, tuple(faults)))
    return found


def remains(harvest: LiveHarvest) -> list[str]:
    """What is wrong after the harvest has ended: jobs, processes, a journal that leads to something else."""
    found = [f"job {number} is {state}" for number, state in harvest.slurm.jobs().items()]
    found += [f"process {each} is left" for word in ("harvest.agent", "_task") for each in harvest.processes(word)]
    said = harvest.status()
    journal = EventJournal(harvest.directory)
    settings = Settings(objective=scaling_efficiency, solver="dp", forward_time_s=120.0, startup_cost="full")
    again = Controller(settings, journal.header["start_ns"], HarvestLimits())
    reason = journal.replay(again)
    replayed = {life.name: (life.generations, life.work) for life in again.tasks.values()}
    seen = {each["task"]: (each["generation"], each["work"]) for each in said["tasks"]}
    if replayed != seen or reason != "interrupted":
        found.append(f"the journal replays to {replayed}, {reason}, and status said {seen}")
    return found + [note for note in said["notes"] if "before its last checkpoint" in note or "parked" in note]


@click.command()
@click.option("--instants", type=int, default=20, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(instants: int, seed: int) -> None:
    """Kill, print what happened, and fail if something was lost or is left."""
    rng = np.random.default_rng(seed)
    kinds = [KINDS[number % len(KINDS)] for number in range(instants)]
    rng.shuffle(kinds)
    with running_slurm() as slurm, tempfile.TemporaryDirectory() as folder:
        harvest = LiveHarvest(slurm, Path(folder))
        kills = torment(harvest, kinds, rng)
        print(*kills, sep="\n")
        status = harvest.stop()
        faults = [*remains(harvest), *(fault for each in kills for fault in each.faults)]
        faults += [f"exit status {status}"] if status else []
        print(harvest.output.read_text())
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
