"""A harvest that runs on a Slurm of its own: its controller, its processes and its tasks, seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bftrainer.supervisor import die_with_parent
from tests.harvest.slurm import NODES, Slurm
from tests.waiting import until

PARTITION = "scavenge"
_RATE = 20.0
"""Work per second and node, see `counting_task`."""
_STATUS_S = 3.0
"""It says how it is more often than that."""
_BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
_TASK = """
[[task]]
name = "{name}"
min_nodes = 1
max_nodes = {most}
work = 1e9
grow_cost_s = {cost_s:g}
shrink_cost_s = {cost_s:g}
grace_s = {grace_s:g}
command = ["{python}", "-m", "benchmarks.harvest.counting_task"]
env = {{ PYTHONPATH = "{root}", COUNTING_SAVE_S = "{save_s:g}" }}

[task.scaling]
nodes = [0, {most}]
throughput = [0.0, {rate}]
"""


class LiveHarvest:
    """A harvest whose tasks count, and never end.

    Parameters
    ----------
    slurm : Slurm
    folder : Path
    tasks : sequence of int
        The most nodes of each.
    save_s : float
        What a checkpoint takes.
    give_way : {"named", "chosen"}
        Whether Slurm names the nodes that leave, or the harvest chooses them.
    """

    def __init__(
        self,
        slurm: Slurm,
        folder: Path,
        tasks: tuple[int, ...] = (4, 4),
        save_s: float = 0.0,
        give_way: str = "named",
    ) -> None:
        self.slurm, self.directory, self.most, self.give_way = slurm, folder / "harvest", sum(tasks), give_way
        sizes = {f"t{number}": most for number, most in enumerate(tasks)}
        self.names = list(sizes)
        self._file = folder / "tasks.toml"
        self.output = folder / "controller.log"
        made = {"python": sys.executable, "root": Path(__file__).parents[2], "save_s": save_s, "cost_s": 1.0 + save_s}
        made["grace_s"] = 10.0 + save_s
        texts = [_TASK.format(name=n, most=most, rate=_RATE * most, **made) for n, most in sizes.items()]
        self._file.write_text("schema = 1\n" + "".join(texts))
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start a controller, or another one where the first was killed."""
        options = ["--engine", "slurm", "--partition", PARTITION, "--poll-every", "2s", "--i-know"]
        options += ["--give-way", self.give_way]
        with self.output.open("ab") as stream:
            self.process = subprocess.Popen(
                [*_BFTRAINER, "harvest", "run", str(self._file), "-o", str(self.directory), *options],
                env=self.slurm.environ,
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        return self.process

    def stop(self) -> int:
        """Have it end, and give all nodes back; its exit status."""
        self.slurm.told(*_BFTRAINER, "harvest", "stop", str(self.directory))
        return self.process.wait(120)

    def status(self) -> dict[str, Any]:
        """What it last said of itself; nothing if it has not."""
        with suppress(OSError):
            found: dict[str, Any] = json.loads((self.directory / "status.json").read_text())
            return found
        return {"held": 0, "tasks": [], "notes": []}

    def wait_until_held(self) -> None:
        """Wait until it says anew that it holds all the nodes that it can use."""
        since_s = self.status().get("time_s", 0.0) + _STATUS_S
        until(lambda: self._holds_all(since_s))

    def wait_until_whole(self) -> None:
        """Wait for that, and then until each task has saved more work."""
        self.wait_until_held()
        before = self.saved()
        until(lambda: all(work > before[name] for name, work in self.saved().items()))

    def _holds_all(self, since_s: float) -> bool:
        assert self.process.poll() is None, self.output.read_text()
        said = self.status()
        is_new = said.get("process") == self.process.pid and said["time_s"] > since_s
        return bool(is_new and said["held"] == min(self.most, len(NODES)))

    def saved(self) -> dict[str, float]:
        """Work in the newest checkpoint of each task."""
        found = {}
        for name in self.names:
            done = sorted((self.directory / "checkpoints" / name).glob("save-*/done"))
            with suppress(OSError):
                found[name] = float(done[-1].read_text().split()[1]) if done else 0.0
        return found

    def describe_losses(self) -> str:
        """For how long it held nodes, and what tasks made of it; after its end."""
        summary = json.loads((self.directory / "summary.json").read_text())
        held_s, trained_s = summary["idle_node_s"], sum(self.saved().values()) / _RATE
        starts = sum(line.startswith("from") for name in self.names for line in self.history(name))
        return (
            f"held {held_s:.0f} node-seconds, trained {trained_s:.0f} of them ({trained_s / held_s:.1%}), "
            f"{starts} starts of tasks, {summary['preemptions']} of them after losses of nodes"
        )

    def history(self, name: str) -> list[str]:
        """What a task has written of itself."""
        return (self.directory / "checkpoints" / name / "history").read_text().splitlines()

    def processes(self, word: str) -> list[int]:
        """Processes of this cluster whose module ends in a word: those of carriers in `agent`, of ranks in `_task`."""
        return sorted(self._having(word, f"SLURM_CONF={self.slurm.environ['SLURM_CONF']}".encode()))

    @staticmethod
    def _having(word: str, setting: bytes) -> Iterator[int]:
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (place / "cmdline").read_bytes().split(b"\0")
                is_it = b"-m" in command and any(part.endswith(word.encode()) for part in command)
                if is_it and setting in (place / "environ").read_bytes() and int(place.name) != os.getpid():
                    yield int(place.name)
