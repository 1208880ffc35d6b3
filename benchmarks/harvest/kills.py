"""Harvests that are killed: ``python -m benchmarks.harvest.kills [SEEDS] [KILLS]``.

Two tasks train on six nodes that come and go. At random instants the controller, a carrier, a rank or the supervisor of
one gets kill -9; a killed controller is started again, at once or when all that it left is gone. In the end both tasks
are done, no process is left, no task went back beyond a checkpoint, and the audit finds nothing wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bftrainer.model import NodeLog
from bftrainer.nodelogs import write_node_log
from bftrainer.tasksets.task_files import toml_text

_BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
KINDS = ("controller", "carrier", "rank", "supervisor")
_NODES, _WINDOW_S, _SPEED, _GRACE_S, _PATIENCE_S = 6, 24_000.0, 60.0, 3.0, 20.0


def list_processes(directory: Path) -> dict[int, str]:
    """Living processes of a harvest but for its controller, and what they are."""
    kinds = {}
    carriers, place = str(directory.resolve() / ".carriers"), f"BFTRAINER_CHECKPOINT_DIR={directory.resolve()}".encode()
    for entry in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        with suppress(OSError):
            if entry.joinpath("stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                continue
            words = entry.joinpath("cmdline").read_bytes().split(b"\0")
            if place in entry.joinpath("environ").read_bytes():
                kinds[int(entry.name)] = "supervisor" if any(b"supervisor.py" in word for word in words) else "rank"
            elif b"bftrainer.harvest.agent" in words and carriers in map(os.readlink, entry.joinpath("fd").iterdir()):
                kinds[int(entry.name)] = "carrier"
    return kinds


def draw_log(rng: random.Random) -> NodeLog:
    """Nodes that are idle for a quarter of a minute to 40 s in real time, and away for 2 to 15 s."""
    changes = []
    for node in range(_NODES):
        time_s, idle = (0.0 if node < _NODES // 2 else rng.uniform(0, 600)), True
        while time_s < _WINDOW_S:
            changes.append((int(time_s * 1e9), node, idle))
            time_s, idle = time_s + (rng.uniform(900, 2400) if idle else rng.uniform(120, 900)), not idle
    times, nodes, states = zip(*sorted(changes), strict=True)
    start = 1_700_000_000 * 10**9
    names = tuple(f"n{number}" for number in range(1, _NODES + 1))
    window = start, start + int(_WINDOW_S * 1e9)
    return NodeLog(names, *window, start + np.array(times), np.array(nodes, dtype=np.int32), np.array(states))


def write_inputs(place: Path, rng: random.Random, work: float, kills: int) -> list[str]:
    """Write log and tasks, which bear so many kills before anything is saved, as on a busy machine; the command."""
    module, tasks = [sys.executable, "-P", "-m", "bftrainer.harvest.sample_classifier"], []
    for seed, name in enumerate(("a", "b"), start=1):
        task = {"name": name, "min_nodes": 1, "max_nodes": 4, "work": work / seed, "max_failures": kills + 1}
        tasks.append(task | {"command": [*module, str(seed), str(0.002 * seed)]})
    (place / "live.toml").write_text(toml_text({"schema": 1, "task": tasks}))
    write_node_log(place / "idle.parquet", draw_log(rng))
    pool = ["--pool", str(place / "idle.parquet"), "--speed", str(_SPEED), "--grace", f"{_GRACE_S}s"]
    return [*_BFTRAINER, "harvest", "run", str(place / "live.toml"), *pool, "-o", str(place / "h")]


def harvest_and_kill(
    place: Path, seed: int, kills: int, work: float = 40_000.0, kinds: Sequence[str] = KINDS
) -> list[str]:
    """Harvest in an empty directory, with so many kills; what was killed. Fails if something went wrong."""
    rng, harvest, output, victims = random.Random(seed), place / "h", place / "output", list[str]()
    command = write_inputs(place, rng, work, kills)
    with output.open("ab") as stream:
        controller = subprocess.Popen(command, stdout=stream, stderr=stream)
        while controller.poll() is None and len(victims) < kills:
            time.sleep(rng.uniform(1.0, 6.0))
            kind = rng.choice(kinds)
            if kind == "controller":
                controller.kill()
                controller.wait()
                if rng.random() < 0.5:
                    wait_until_gone(harvest)
                controller = subprocess.Popen(command, stdout=stream, stderr=stream)
            else:
                targets = sorted(pid for pid, other in list_processes(harvest).items() if other == kind)
                if not targets:
                    continue
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(targets), signal.SIGKILL)
            victims.append(kind)
        status = controller.wait()
    text = output.read_text()
    assert status == 0, text
    assert "before its last checkpoint" not in text, text
    tasks = json.loads((harvest / "status.json").read_text())["tasks"]
    assert all(task["status"] == "done" for task in tasks), tasks
    wait_until_gone(harvest)
    audit = subprocess.run([*_BFTRAINER, "audit", str(harvest)], capture_output=True, text=True, check=False)
    assert audit.returncode == 0, audit.stdout
    return victims


def wait_until_gone(harvest: Path) -> None:
    """Wait until no process of a harvest is there."""
    until_s = time.monotonic() + _PATIENCE_S
    while processes := list_processes(harvest):
        assert time.monotonic() < until_s, f"Expected no process, got {processes}."
        time.sleep(0.05)


def main(arguments: Sequence[str]) -> None:
    """Print what was killed."""
    seeds, kills = map(int, (*arguments, 3, 20)[:2])
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory() as place:
            victims = harvest_and_kill(Path(place), seed, kills)
        print(f"seed {seed}: " + ", ".join(f"{victims.count(kind)} {kind}s" for kind in KINDS) + " killed, all went on")


if __name__ == "__main__":
    main(sys.argv[1:])
