"""How far replays are from harvests: ``python -m benchmarks.harvest.predictions [SECONDS]``.

Five harvests on this machine, each of other hours of eight nodes of the sample log at 60 times their speed. Three tasks
train in earnest; each rank is held to its pace, so that few processors do. Curves and costs that two harvests have
measured predict the other three: work done and node-seconds, of all tasks together and of each.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bftrainer.files.directories import LOCK
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.files.writing import lock_file
from bftrainer.harvest.controller import HarvestLimits
from bftrainer.harvest.fidelity import fidelity, harvest_inputs
from bftrainer.harvest.harvest_directory import EventJournal
from bftrainer.harvest.live_tasks import LiveTask, live_task, read_live_tasks
from bftrainer.harvest.local_engine import LocalCarriers, LogPool
from bftrainer.harvest.session import open_session
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.nodelogs import read_node_log
from bftrainer.runs import ReplayConfig, run_replay, write_run
from bftrainer.tasksets import read_task_set
from bftrainer.tasksets.native_tasks import toml_text

SPEED, NODES = 60.0, 8
# First node and hour of the log.
PLACES = ((488, 48), (464, 48), (480, 48), (248, 38), (200, 48))
CONFIG = {"solver": "dp", "objective": "scaling-efficiency", "forward_time_s": 120.0, "startup_cost": "full"}


def written_tasks(place: Path) -> Path:
    """Three tasks that would take hours."""
    module, tasks = [sys.executable, "-P", "-m", "bftrainer.harvest.sample_classifier"], []
    for seed, (pace_s, most) in enumerate(((0.001, 3), (0.002, 4), (0.004, 6)), start=1):
        command = [*module, str(seed), str(pace_s)]
        tasks.append({"name": f"t{seed}", "min_nodes": 1, "max_nodes": most, "work": 1e8, "command": command})
    (place / "live.toml").write_text(toml_text({"schema": 1, "task": tasks}))
    return place / "live.toml"


def with_measured(task: LiveTask, spec: TaskSpec) -> LiveTask:
    """A task with the curve and the costs that were measured, where these are no average: a straight line, without."""
    if len(spec.scaling.nodes) <= 2 and not spec.grow_cost_s:
        return task
    curve = {"nodes": list(spec.scaling.nodes), "throughput": list(spec.scaling.throughput)}
    costs = {name: getattr(spec, name) for name in ("grow_cost_s", "shrink_cost_s")}
    return live_task(Path(task.workdir, "measured.toml"), 1, {**task.table, **costs, "scaling": curve})


def harvested(place: Path, file: Path, log: NodeLog, measured: Path | None) -> Path:
    """Harvest the nodes of a log, with what was measured before, if anything was."""
    place.mkdir()
    tasks = read_live_tasks(file)
    if measured is not None:
        specs = {spec.name: spec for spec in read_task_set(measured).tasks}
        tasks = tuple(with_measured(task, specs[task.name]) if task.name in specs else task for task in tasks)
    config = ReplayConfig(**CONFIG, baseline=False)
    with lock_file(place / LOCK, place):
        journal = EventJournal(place)
        session = open_session(place, journal, tasks, file, config, HarvestLimits(), say=print)
        session.run(LocalCarriers(place, LogPool(log, SPEED), grace_s=5.0))
    return place


def main(arguments: Sequence[str]) -> None:
    """Print what was predicted and what was measured."""
    seconds = float(arguments[0]) if arguments else 120.0
    place = Path(tempfile.mkdtemp())
    file, whole = written_tasks(place), read_node_log(sample_path(SAMPLE_NODE_LOG), 0, print)
    measured: Path | None = None
    print(f"{'run':>4}", *(f"{cell:>22}" for cell in ("figure", "predicted", "measured", "apart")))
    for number, (first, hour) in enumerate(PLACES, start=1):
        begin_ns = whole.start_ns + hour * 3_600_000_000_000
        log = whole.select_nodes(first, NODES).since(begin_ns).ending(begin_ns + int(seconds * SPEED * 1e9))
        run = harvested(place / str(number), file, log, measured)
        if number <= 2:
            measured = run / "measured.toml"
            continue
        assert measured is not None
        replayed = place / f"{number}-replayed"
        replayed.mkdir()
        write_run(run_replay(**harvest_inputs(run) | {"tasks": measured, "baseline": False}), replayed)
        for pair in fidelity(run, replayed):
            if pair.figure in ("work_done", "node_s", "used_node_s", "decisions") or not pair.task:
                print(f"{number:4}", *(f"{cell:>22}" for cell in pair.row()))


if __name__ == "__main__":
    main(sys.argv[1:])
