"""How far a replay of what happened in a harvest is from what its tasks really did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import RunDirectoryError
from bftrainer.files.directories import result_directory
from bftrainer.harvest.harvest_directory import MEASURED, NODE_LOG, read_status
from bftrainer.harvest.live_allocator import LEAST_WORK
from bftrainer.harvest.session import SETTINGS
from bftrainer.runs import ReplayConfig, run_replay, write_run
from bftrainer.runs.run_files import read_run, read_summary

_FIGURES = ("work_done", "used_node_s", "rescales", "preemptions", "decisions", "tasks_completed", "makespan_s")
Pair = tuple[float | None, float | None]
"""What was predicted, and what was measured."""
_AVERAGE = "the replay has it do in each second of a node what it did on average"


def harvest_inputs(directory: Path) -> dict[str, Any]:
    """Fields of `ReplayConfig` by which a harvest is replayed: its events and settings, and what was measured.

    A `RunDirectoryError` if the directory has no finished harvest, or one that never had a node.
    """
    summary = read_summary(directory)
    if not summary["nodes_total"]:
        raise RunDirectoryError(f"{directory}: Expected a harvest that held nodes to replay, found one that held none.")
    settings = summary["settings"]
    given = {name: settings[name] for name in SETTINGS if settings.get(name) is not None and name != "profile_noise"}
    return given | {"node_log": directory / NODE_LOG, "tasks": directory / MEASURED}


def predict(harvest: Path) -> Path:
    """Replay a harvest, into a directory of its own within it; the place.

    A `RunDirectoryError` if the directory has no finished harvest; an `OutputError` if the results cannot be written.
    """
    config = ReplayConfig(**harvest_inputs(harvest), baseline=False)
    with result_directory([harvest / "prediction"], force=True) as directory:
        write_run(run_replay(config=config, command=f"bftrainer replay --from-harvest {harvest}"), directory.working)
    return directory.path


def fidelity(harvest: Path, replayed: Path) -> dict[str, Any]:
    """Set what a replay predicts beside what a harvest did; a `RunDirectoryError` if one cannot be read.

    Parameters
    ----------
    harvest, replayed : Path
        Their result directories.

    Returns
    -------
    dict
        ``figures``: by name, what was predicted and what was measured; ``tasks``: the same of each task's work,
        node-seconds and completion; ``unmeasured``: tasks whose rate is an average; ``reasons``: what happened that a
        replay does not know of.
    """
    real, predicted, status = read_run(harvest), read_run(replayed), read_status(harvest)
    figures = {name: tuple(map(_number, (predicted.summary.get(name), real.summary.get(name)))) for name in _FIGURES}
    if figures["tasks_completed"][0] != figures["tasks_completed"][1]:
        figures["makespan_s"] = None, figures["makespan_s"][1]  # of other tasks
    rows = {name: row for row, name in enumerate(predicted.tasks["name"])}
    tasks = {
        name: {
            column: (_number(predicted.tasks[column][rows[name]]), _number(real.tasks[column][row]))
            for column in ("work_done", "node_s", "rescales", "preemptions", "completed_s")
        }
        for row, name in enumerate(real.tasks["name"])
        if name in rows
    }
    unmeasured = [task["task"] for task in status["tasks"] if task["task"] in rows and not task["is_measured"]]
    reasons = [*_explain(status, tasks, unmeasured)]
    return {"figures": figures, "tasks": tasks, "unmeasured": unmeasured, "reasons": reasons}


def _number(value: Any) -> float | None:
    """A figure; work of a task that has done none is none."""
    return None if value is None or np.isnan(value) else 0.0 if 0 < value <= 2 * LEAST_WORK else float(value)


def _explain(
    status: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Pair]], unmeasured: Sequence[str]
) -> Iterator[str]:
    """What a harvest met that its replay does not."""
    lives = status["tasks"]
    if status["over"] is None:
        yield "the harvest has gone on since these results were written"
    for life in lives:
        if life["task"] not in tasks:
            yield f"{life['task']} never had a node, and is not replayed"
    for name, task in tasks.items():
        # Tasks that were a little slower in the replay, which ends when the harvest gave its last nodes back.
        if task["completed_s"][0] is None and task["completed_s"][1] is not None:
            done, work = ("-" if value is None else f"{value:,.6g}" for value in task["work_done"])
            yield f"{name} had done {done} of {work} in the replay when all nodes were gone, and did not end"
    yield from (f"{name} was not seen to train for long enough to measure it; {_AVERAGE}" for name in unmeasured)
    yield from (f"{life['task']}: {life['why']}" for life in lives if life["failures"])
    yield from (f"{life['task']} is {life['status']}" for life in lives if life["status"] != "done")
    generations = sum(life["generation"] for life in lives)
    yield f"generations of ranks: {generations}; a replay rescales at decisions alone"


def distance(pair: Pair) -> float | None:
    """How far a prediction is from what was measured, as a share of that."""
    predicted, real = pair
    return None if predicted is None or not real else predicted / real - 1.0


# Tasks that are parked end too.
_LABELS = {
    "used_node_s": "node-seconds",
    "node_s": "node-seconds",
    "tasks_completed": "tasks ended",
    "completed_s": "ended after (s)",
    "makespan_s": "makespan (s)",
}


def _words(name: str) -> str:
    """A figure's name as people read it."""
    return _LABELS.get(name, name.replace("_", " "))


def fidelity_rows(found: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows of a table: figure, predicted, measured, apart."""
    named = {_words(name): pair for name, pair in found["figures"].items()}
    for task, figures in found["tasks"].items():
        mark = f"{task} (not measured)" if task in found["unmeasured"] else task
        named |= {f"{mark}: {_words(name)}": pair for name, pair in figures.items()}
    rows = []
    for figure, pair in named.items():
        before, after = ("-" if value is None else f"{value:,.6g}" for value in pair)
        share = distance(pair)
        rows.append((figure, before, after, "-" if share is None else f"{100 * share:+.1f} %"))
    return rows
