"""What survives when parts of a harvest are killed: ``python -m benchmarks.harvest.kills [--slurm]``.

Tasks train on six nodes that come and go, or on a Slurm. At random instants ``kill -9`` ends the controller, a carrier,
a rank, its supervisor, the daemon of a node or Slurm's own controller. What does not come back by itself is started
again. Each task has to continue from its newest checkpoint, and at the end nothing may be left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import click
import numpy as np

from benchmarks.harvest.live_harvest import BFTRAINER, LiveHarvest, harvest_slurm
from bftrainer.cli.harvest import DEFAULTS
from bftrainer.harvest.controller import HarvestLimits
from bftrainer.harvest.harvest_directory import EventJournal
from bftrainer.harvest.session import make_controller
from bftrainer.nodelogs import write_node_log
from bftrainer.runs import ReplayConfig
from bftrainer.spot import MinuteModel
from tests.harvest.slurm import NODES, running_slurm
from tests.waiting import until

KINDS = ("controller", "carrier", "rank", "supervisor")
KINDS_ON_SLURM = ("controller", "carrier", "rank", "slurmd", "slurmctld")
_NODE_IS_DOWN_S = 15.0
"""After so long Slurm has given a node up whose daemon is dead, and its jobs."""


def harvest_here(folder: Path, rng: np.random.Generator, minutes: int = 3600) -> LiveHarvest:
    """Harvest six nodes that are idle for some 15 s, for two tasks that do not say how they scale.

    They bear so many kills before anything is saved, as on a busy machine.
    """
    model = MinuteModel(preemption_mean=1.0, addition_chance=0.3, initial_nodes=3, max_nodes=6)
    write_node_log(folder / "idle.parquet", model.generate(rng, model.draw(rng, minutes)))
    options = ["--pool", str(folder / "idle.parquet"), "--speed", "60", "--grace", "3s"]
    return LiveHarvest(folder, [{"max_nodes": 4, "max_failures": minutes}] * 2, options)


def kill(harvest: LiveHarvest, kind: str, rng: np.random.Generator) -> None:
    """Kill something, and start again what does not come back by itself."""
    slurm = harvest.slurm
    if kind == "controller":
        harvest.process.kill()
        harvest.process.wait()
        if rng.random() < 0.5:
            until(lambda: not harvest.processes())
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
        targets = until(lambda: [process for process, other in harvest.processes().items() if other == kind])
        with suppress(ProcessLookupError):
            os.kill(int(rng.choice(targets)), signal.SIGKILL)


def disturb(harvest: LiveHarvest, kinds: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Kill one after the other, at random instants, see how tasks go on, and end the harvest; what was wrong."""
    begun_s, faults = time.monotonic(), []
    for kind in kinds:
        harvest.wait_until_training()
        time.sleep(rng.uniform(0.0, 3.0))
        saved, histories, at_s = harvest.saved(), harvest.histories(), time.monotonic()
        kill(harvest, kind, rng)
        harvest.wait_until_training()
        print(f"{at_s - begun_s:7.1f} s  {kind:10} trained again after {time.monotonic() - at_s:5.1f} s", flush=True)
        for name, lines in harvest.histories().items():
            for line in lines[len(histories[name]) :]:
                word, _, work = line.partition(" ")
                if word != "from" or float(work) < saved[name]:
                    faults.append(f"{kind} killed: {name} {line}, after {saved[name]:g} was saved")
    status = harvest.stop() if harvest.slurm else harvest.finish()
    return faults + ([f"exit status {status}"] if status else []) + list_faults(harvest)


def list_faults(harvest: LiveHarvest) -> list[str]:
    """What is wrong after a harvest has ended: jobs, processes, its notes, its journal or its audit."""
    faults = [f"job {number} is {state}" for number, state in harvest.slurm.jobs().items()] if harvest.slurm else []
    faults += [f"{kind} {process} is left" for process, kind in harvest.processes().items()]
    notes = harvest.output.read_text().splitlines()
    faults += [note for note in notes if "before its last checkpoint" in note or "is parked" in note]
    journal, status = EventJournal(harvest.directory), harvest.status()
    again = make_controller(ReplayConfig(**DEFAULTS), journal.header["start_ns"], HarvestLimits())
    reason = journal.replay(again)
    replayed = {life.name: (life.generations, life.work) for life in again.tasks.values()}
    shown = {task["task"]: (task["generation"], task["work"]) for task in status["tasks"]}
    if replayed != shown or {reason, status["over"]} != {"interrupted" if harvest.slurm else "finished"}:
        faults.append(f"the journal replays to {replayed}, {reason}, and status said {shown}, {status['over']}")
    audit = subprocess.run([*BFTRAINER, "audit", harvest.directory], capture_output=True, text=True, check=False)
    return faults + ([audit.stdout] if audit.returncode else [])


@click.command()
@click.option("--slurm", "on_slurm", is_flag=True, help="On a Slurm of eight nodes, whose daemons are killed, too.")
@click.option("--instants", type=int, default=20, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(on_slurm: bool, instants: int, seed: int) -> None:
    """Kill, print what happened, and fail if something was lost or is left."""
    rng = np.random.default_rng(seed)
    kinds = np.resize(KINDS_ON_SLURM if on_slurm else KINDS, instants).tolist()
    rng.shuffle(kinds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        slurm = stack.enter_context(running_slurm()) if on_slurm else None
        harvest = harvest_slurm(slurm, folder) if slurm else harvest_here(folder, rng)
        faults = disturb(harvest, kinds, rng)
        print(harvest.output.read_text())
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
