"""How far a replay of what happened in a harvest is from what its tasks really did."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bftrainer.errors import OutputError
from bftrainer.files.directories import result_directory
from bftrainer.harvest.harvest_directory import MEASURED, NODE_LOG, read_status
from bftrainer.harvest.live_allocator import LEAST_WORK
from bftrainer.harvest.session import SETTINGS
from bftrainer.runs import ReplayConfig, run_replay, write_run
from bftrainer.runs.run_files import read_run, read_summary

_FIGURES = ("work_done", "used_node_s", "rescales", "preemptions", "decisions", "tasks_completed", "makespan_s")
_TASK_FIGURES = ("work_done", "node_s", "rescales", "preemptions", "completed_s")
_LABELS = {
    "used_node_s": "node-seconds",
    "node_s": "node-seconds",
    "tasks_completed": "tasks ended",
    "completed_s": "ended after (s)",
    "makespan_s": "makespan (s)",
}


class PredictedFigure(NamedTuple):
    """A figure of a task, or of all where none is named: what was predicted, and what was measured."""

    task: str
    figure: str
    predicted: float | None
    measured: float | None

    @property
    def distance(self) -> float | None:
        """How far the prediction is from what was measured, as a share of that."""
        return None if self.predicted is None or not self.measured else self.predicted / self.measured - 1.0

    def row(self) -> list[str]:
        """Cells of a table's row: figure, predicted, measured, apart."""
        label = _LABELS.get(self.figure, self.figure.replace("_", " "))
        before, after = ("-" if value is None else f"{value:,.6g}" for value in (self.predicted, self.measured))
        apart = "-" if self.distance is None else f"{100 * self.distance:+.1f} %"
        return [f"{self.task}: {label}" if self.task else label, before, after, apart]


def harvest_inputs(directory: Path) -> dict[str, Any]:
    """Fields of `ReplayConfig` by which a harvest is replayed: its events and settings, and what was measured.

    An `OutputError` if the directory has no finished harvest, or one that never had a node.
    """
    summary = read_summary(directory)
    if not summary["nodes_total"]:
        raise OutputError(f"{directory}: Expected a harvest that held nodes to replay, found one that held none.")
    settings = summary["settings"]
    options = {name: settings[name] for name in SETTINGS if settings.get(name) is not None and name != "profile_noise"}
    return options | {"node_log": directory / NODE_LOG, "tasks": directory / MEASURED}


def predict(harvest: Path) -> Path:
    """Replay a harvest, into a directory of its own within it; the place.

    An `OutputError` if the directory has no finished harvest, or the results cannot be written.
    """
    config = ReplayConfig(**harvest_inputs(harvest), baseline=False)
    with result_directory(harvest / "prediction", force=True) as directory:
        write_run(run_replay(config=config, command=f"bftrainer replay --from-harvest {harvest}"), directory.working)
    return directory.path


def fidelity(harvest: Path, replayed: Path) -> list[PredictedFigure]:
    """Set what a replay predicts beside what a harvest did; tasks whose rate is an average are marked.

    An `OutputError` if one of the directories cannot be read.
    """
    real, predicted = read_run(harvest), read_run(replayed)
    averaged = {task["task"] for task in read_status(harvest)["tasks"] if not task["is_measured"]}
    pairs = [("", name, predicted.summary.get(name), real.summary.get(name)) for name in _FIGURES]
    rows = {name: row for row, name in enumerate(predicted.tasks["name"])}
    for row, name in enumerate(real.tasks["name"]):
        if name in rows:  # else it never had a node
            task = f"{name} (not measured)" if name in averaged else name
            for column in _TASK_FIGURES:
                pairs.append((task, column, predicted.tasks[column][rows[name]], real.tasks[column][row]))
    return [PredictedFigure(task, name, _number(before), _number(after)) for task, name, before, after in pairs]


def _number(value: Any) -> float | None:
    """A figure; work of a task that has done none is none."""
    return None if value is None or np.isnan(value) else 0.0 if 0 < value <= 2 * LEAST_WORK else float(value)
