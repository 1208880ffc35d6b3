"""A harvest whose tasks count: its controller, its processes and its checkpoints, seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harvest import counting_task
from bftrainer.supervisor import die_with_parent
from bftrainer.tasksets.task_files import toml_text
from tests.harvest.slurm import NODES, Slurm
from tests.waiting import until

BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
PARTITION = "scavenge"
RATE = 1.0 / counting_task.STEP_S
"""Work per second and node, see `counting_task`."""
_STATUS_S = 3.0
"""It says how it is more often than that."""
_MARK = "COUNTING_HARVEST"
"""Variable of all processes of a harvest: which one it is."""
_SIGNS = {"supervisor": b"supervisor.py", "carrier": b"bftrainer.harvest.agent", "rank": b"counting_task.py"}
"""What commands of its processes contain; a supervisor's has that of its rank, too."""


class LiveHarvest:
    """A harvest of tasks `t0`, `t1`, ... in a folder, started with the options of where its nodes are from.

    `tables` are what the tasks differ in, as in a task file. `slurm` is where it runs, if it does not run here alone.
    """

    def __init__(
        self, folder: Path, tables: Sequence[Mapping[str, Any]], options: Sequence[str], slurm: Slurm | None = None
    ) -> None:
        self.slurm, self.directory, self.output = slurm, folder / "harvest", folder / "controller.log"
        self._most = sum(table["max_nodes"] for table in tables)
        self._places = {f"t{number}": folder / f"t{number}" for number in range(len(tables))}
        common = {"min_nodes": 1, "work": 1e9, "command": [sys.executable, counting_task.__file__]}
        tasks = []
        for (name, place), table in zip(self._places.items(), tables, strict=True):
            place.mkdir()
            tasks.append({"name": name, "checkpoint_dir": str(place), **common, **table})
        file = folder / "tasks.toml"
        file.write_text(toml_text({"schema": 1, "task": tasks}))
        self._command = [*BFTRAINER, "harvest", "run", str(file), "-o", str(self.directory), *options]
        self._environ = {**(slurm.environ if slurm else os.environ), _MARK: str(self.directory)}
        self.start()

    def start(self) -> None:
        """Start a controller, or another one where the first was killed."""
        die = partial(die_with_parent, os.getpid())
        with self.output.open("ab") as stream:
            self.process = subprocess.Popen(
                self._command, env=self._environ, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, preexec_fn=die
            )

    def stop(self) -> int:
        """Have it end, and give all nodes back; its exit status."""
        subprocess.run([*BFTRAINER, "harvest", "stop", self.directory], check=True, capture_output=True)
        return self.process.wait(120)

    def finish(self) -> int:
        """Let all tasks be done, with which it ends; its exit status."""
        for place in self._places.values():
            (place / "enough").touch()
        return self.process.wait(120)

    def status(self) -> dict[str, Any]:
        """What it last said of itself; nothing if it has not."""
        with suppress(OSError):
            status: dict[str, Any] = json.loads((self.directory / "status.json").read_text())
            return status
        return {"time_s": 0.0}

    def wait_until_held(self) -> None:
        """Wait until it says anew that it holds all the nodes of a Slurm that it can use."""
        since_s = self.status()["time_s"] + _STATUS_S

        def holds_all() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            status = self.status()
            is_new = status.get("process") == self.process.pid and status["time_s"] > since_s
            return is_new and status["held"] == min(self._most, len(NODES))

        until(holds_all)

    def wait_until_training(self) -> None:
        """Wait until a rank is there; on a Slurm until all nodes are held, and then each task has saved more work."""
        if self.slurm is None:
            until(lambda: "rank" in self.processes().values())
            return
        self.wait_until_held()
        before = self.saved()
        until(lambda: all(work > before[name] for name, work in self.saved().items()))

    def saved(self) -> dict[str, float]:
        """Work in the newest checkpoint of each task."""
        files = {name: sorted(place.glob("save-*/done")) for name, place in self._places.items()}
        try:
            return {name: float(done[-1].read_text().split()[1]) if done else 0.0 for name, done in files.items()}
        except FileNotFoundError:  # a newer one has taken its place
            return self.saved()

    def histories(self) -> dict[str, list[str]]:
        """What each task has written of itself."""
        files = {name: place / "history" for name, place in self._places.items()}
        return {name: file.read_text().splitlines() if file.exists() else [] for name, file in files.items()}

    def processes(self) -> dict[int, str]:
        """Living processes of it but for its controller, and what each is: a carrier, a supervisor or a rank."""
        mark, kinds = f"{_MARK}={self.directory}".encode(), {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    command = (place / "cmdline").read_bytes()
                    kind = next((kind for kind, sign in _SIGNS.items() if sign in command), "")
                    kinds |= {int(place.name): kind} if kind else {}
        return kinds


def harvest_slurm(
    slurm: Slurm, folder: Path, sizes: Sequence[int] = (4, 4), save_s: float = 0.0, give_way: str = "named"
) -> LiveHarvest:
    """Harvest the idle nodes of a Slurm, for tasks of so many nodes at most, whose checkpoints take a time.

    `give_way` is ``named``, if Slurm names the nodes that leave, or ``chosen``.
    """
    options = ["--engine", "slurm", "--partition", PARTITION, "--poll-every", "2s", "--give-way", give_way, "--i-know"]
    costs = dict.fromkeys(("grow_cost_s", "shrink_cost_s"), 1.0 + save_s)
    common = {**costs, "grace_s": 10.0 + save_s, "env": {"COUNTING_SAVE_S": str(save_s)}}
    curves = {most: {"nodes": [0, most], "throughput": [0.0, RATE * most]} for most in sizes}
    tables = [{"max_nodes": most, "scaling": curves[most], **common} for most in sizes]
    return LiveHarvest(folder, tables, options, slurm)
