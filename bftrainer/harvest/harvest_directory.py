"""The directory of a harvest: its journal, what people ask of it, and at the end the files of a run."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import OutputError
from bftrainer.files.directories import LOCK, list_written
from bftrainer.files.text_files import json_file
from bftrainer.files.writing import LineJournal, file_source, is_locked, replacing, report_os_errors
from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.controller import Controller
from bftrainer.harvest.harvest_events import event_row, read_event
from bftrainer.harvest.live_allocator import RESULTS
from bftrainer.harvest.task_life import TaskLife
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs import write_node_log
from bftrainer.replay.allocator_settings import Status
from bftrainer.runs import Inputs, ReplayConfig, RunResult, write_run
from bftrainer.tasksets import write_task_set

JOURNAL, STATUS, REQUESTS = "journal", "status.json", "requests"
NODE_LOG, TASKS, MEASURED = "idle.parquet", "tasks.toml", "measured.toml"
_VERSION = 3
_HEADINGS = ("task", "status", "nodes", "work", "done", "work/s", "generation", "failures")
_SCALES = 1.01
"""A curve that rises by less is flat, to say why nodes are not used."""


def refuse_other_files(directory: Path) -> None:
    """Refuse a directory of something else, whose files a harvest might replace: an `OutputError` naming one."""
    if directory.is_dir() and not (directory / JOURNAL).exists():
        names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
        if names:
            raise OutputError(f"{directory}: Expected no directory, an empty one or a harvest, found {names[0]}.")
    elif os.path.lexists(directory) and not directory.is_dir():
        raise OutputError(f"{directory}: Expected a directory, found something else.")


class EventJournal:
    """All that has happened to a harvest, a line of JSON for each step, on the disk before anything is done about it.

    An `OutputError` if it is another user's, or of another version.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._journal = LineJournal(directory / JOURNAL)
        self._frames = self._read_frames()
        self.header = next(self._frames, {})
        if self.header.get("version", _VERSION) != _VERSION:
            raise OutputError(f"{self._journal.path}: Expected a journal of version {_VERSION}, got another one.")

    def _read_frames(self) -> Iterator[dict[str, Any]]:
        """Read what was written; an `OutputError` naming the line, if one is damaged."""
        for number, line in enumerate(self._journal.read(), start=1):
            try:
                yield json.loads(zlib.decompress(b64decode(line)))
            except (ValueError, zlib.error):
                where = f"{self._journal.path}:{number}"
                raise OutputError(f"{where}: Expected a step of a harvest, got something else.") from None

    def begin(self, header: Mapping[str, Any]) -> None:
        """Write what the harvest is begun with."""
        self.append({"version": _VERSION, **header})

    def add(
        self,
        controller: Controller,
        reports: Sequence[ev.HarvestEvent],
        events: Sequence[ev.HarvestEvent] | None,
        effects: Sequence[ev.Effect] = (),
    ) -> None:
        """Write a step of the controller, after it: what it took in, what was decided, and carriers asked for.

        Reports were taken in before, by steps that changed nothing and were not written; without events there are only
        these.
        """
        frame: dict[str, Any] = {"reports": list(map(event_row, reports))}
        if events is not None:
            answer = controller.allocator.result
            requested = [node for effect in effects if isinstance(effect, ev.Request) for node in effect.nodes]
            frame |= {"time_s": controller.time_s, "events": list(map(event_row, events)), "asked": requested}
            frame |= {"answer": None if answer is None else RESULTS.dump_python(answer, mode="json")}
            controller.allocator.result = None
        self.append(frame)

    def replay(self, controller: Controller) -> str | None:
        """Bring a controller to where the journal ends; why the harvest is over, None if it is not."""
        controller.replaying, reason = True, None
        for frame in self._frames:
            if frame.get("reports"):
                controller.step(controller.time_s, list(map(read_event, frame["reports"])))
            if "events" in frame:
                if frame["answer"] is not None:
                    controller.allocator.answers.append(RESULTS.validate_python(frame["answer"]))
                controller.step(frame["time_s"], list(map(read_event, frame["events"])))
                controller.pool.expect(frame["asked"], controller.time_s)
            reason = frame.get("end")
        controller.allocator.result = None
        controller.replaying = False
        return reason

    def append(self, frame: Mapping[str, Any]) -> None:
        """Write a step, or that the harvest is over."""
        # Tables of tasks and nodes repeat their keys: a ninth of the size.
        self._journal.append([b64encode(zlib.compress(json.dumps(frame).encode()))])


def ask(directory: Path, event: ev.Submitted | ev.Asked) -> None:
    """Ask something of a harvest: an `OutputError` if there is none, or none that runs and could be ended."""
    if not (directory / JOURNAL).is_file():
        raise OutputError(f"{directory}: Expected the directory of a harvest, found no {JOURNAL} in it.")
    if isinstance(event, ev.Asked) and not is_locked(directory / LOCK):
        raise OutputError(f"{directory}: Expected a harvest that runs, found one that does not.")
    place = directory / REQUESTS
    place.mkdir(mode=0o700, exist_ok=True)
    with replacing(place / f"{time.time_ns():020}-{os.getpid()}.json") as stream:
        stream.write(json.dumps(event_row(event)).encode())


def requests(directory: Path) -> Iterator[tuple[Path, ev.HarvestEvent | str]]:
    """What was asked, and where that stands: files of this user's alone; of others, why they are refused."""
    place = directory / REQUESTS
    for path in sorted(place.glob("*.json")) if place.is_dir() else ():
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
                about = os.fstat(stream.fileno())
                if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode) or about.st_mode & 0o022:
                    raise OSError(0, "Expected a file that only this user may write")
                event = read_event(json.loads(stream.read()))
            yield path, event if isinstance(event, ev.Submitted | ev.Asked) else "Expected a request."
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OutputError) as fault:
            yield path, f"{path}: Refused: {getattr(fault, 'strerror', None) or fault}."


def harvest_result(controller: Controller, config: ReplayConfig, directory: Path, command: str) -> RunResult:
    """The harvest as a run: what was recorded while it went on, after writing the inputs that it stands for."""
    allocator = controller.allocator
    recording = allocator.recorder.recording
    end_ns = controller.start_ns + round(recording.end_s * NS_PER_S)
    times, nodes, idle = zip(*allocator.transitions, strict=True) if allocator.transitions else ((), (), ())
    # Tasks that ended with less work than they were to do, as far as they have reported it.
    lives = [life for life in controller.tasks.values() if life.is_over and life.work < life.task.spec.work]
    ended = sorted(f"{life.name} ({life.status})" for life in lives)
    notes = ["nodes are idle here while carriers held them."]
    if ended:
        notes.append(f"tasks completed include those that ended with the work that they had done: {', '.join(ended)}.")
    log = NodeLog(
        tuple(allocator.node_names),
        controller.start_ns,
        end_ns,
        controller.start_ns + np.round(np.array(times, dtype=np.float64) * NS_PER_S).astype(np.int64),
        np.array(nodes, dtype=np.int32),
        np.array(idle, dtype=np.bool_),
        {"source": "harvest", "notes": notes},
    )
    write_node_log(directory / NODE_LOG, log)
    tasks, measured = allocator.cluster.tasks, controller.measured_specs()
    write_task_set(directory / TASKS, [task.spec for task in tasks])
    # Of a task that never had a node nothing is known: in a replay it would take nodes from those that had them.
    specs = [task.spec for task in tasks if task.status != Status.FAILED and task.node_s > 0]
    specs = [replace(measured[spec.name], work=spec.work, submit_s=spec.submit_s) for spec in specs]
    write_task_set(directory / MEASURED, specs)
    curves = allocator.curves
    count = sum(bool(learner.measured) for learner in curves.learners.values())
    learned = {"learned_tasks": count, "learned_probes": curves.probes, "learned_error": None}
    if count < len(curves.learners):
        learned["return_on_investment"] = None  # of promises by curves of which nobody knew anything
    paths: dict[str, Any] = {"node_log": directory / NODE_LOG, "tasks": directory / TASKS}
    return RunResult(
        inputs=Inputs(
            config=replace(config, **paths),
            log=log,
            tasks=tuple(task.spec for task in tasks),
            settings=allocator.settings,
            sources={name: file_source(path) for name, path in paths.items()} | {"scalability": None},
        ),
        command=command,
        engine="live",
        recording=recording,
        timings={"load_s": 0.0, "replay_s": recording.end_s, "baseline_s": 0.0, "wall_s": recording.end_s},
        is_partial=recording.reason == "interrupted",
        learned=learned | {"learned_error_used": None} if curves.learners else {},
    )


def write_harvest(result: RunResult, directory: Path) -> None:
    """Write the files of a run beside the journal, the manifest last; an `OutputError` if one cannot be written."""
    new = directory / ".run"
    with report_os_errors(directory):
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        write_run(result, new)
        names = [path.name for path in new.iterdir()]
        for name in names:
            (new / name).replace(directory / name)
        new.rmdir()
        list_written(directory, [*names, NODE_LOG, TASKS, MEASURED])


def read_status(directory: Path) -> dict[str, Any]:
    """What a harvest last said of itself; an `OutputError` if it has said nothing yet."""
    if not (directory / STATUS).exists():
        raise OutputError(f"{directory}: Expected the directory of a harvest, found no {STATUS}.")
    status = json_file(directory / STATUS, OutputError)
    if not isinstance(status, dict):
        raise OutputError(f"{directory / STATUS}: Expected a harvest's status, got something else.")
    return status


def describe_status(controller: Controller) -> dict[str, Any]:
    """Where a harvest stands, as plain values."""
    pool, lives = controller.pool, controller.tasks.values()
    return {
        "time_s": controller.time_s,
        "idle": len(pool.idle),
        "held": sum(not carrier.leaving for carrier in pool.carriers.values()),
        "leaving": sum(carrier.leaving for carrier in pool.carriers.values()),
        "requested": len(pool.requested),
        "closed": pool.closed,
        "unused": min(len(pool.free_nodes(controller.time_s)), pool.limits.max_nodes - len(pool.carriers)),
        "tasks": [
            {
                "task": life.name,
                "status": str(life.status),
                "nodes": len(life.nodes),
                "work": life.work,
                "total": life.task.spec.work,
                "rate": life.rate if life.current is not None else 0.0,
                "generation": life.generations,
                "failures": life.failures,
                "is_measured": life.is_measured,
                "is_flat": _is_flat(controller, life),
            }
            for life in lives
        ],
    }


def _is_flat(controller: Controller, life: TaskLife) -> bool:
    """Whether a task whose curve is learnt could have more nodes, and is believed to gain nothing by them."""
    count, spec = len(life.nodes), controller.allocator.task(life.name).believed if life.nodes else None
    return spec is not None and bool(count < spec.max_nodes and spec.rates[count:].max() <= _SCALES * spec.rates[count])


def describe_unused(status: Mapping[str, Any]) -> str:
    """Why nodes are not used that are idle, as far as beliefs of curves tell; empty if they don't."""
    flat = [
        f"`{task['task']}` is believed not to scale beyond {task['nodes']}"
        for task in status["tasks"]
        if task["is_flat"]
    ]
    if status["over"] or status["unused"] <= 0 or not flat:
        return ""
    return f"{status['unused']} node{'s' * (status['unused'] > 1)} not used: {', '.join(flat)}"


def status_text(status: Mapping[str, Any], *, runs: bool) -> str:
    """One line: whether it runs, and how many nodes it has."""
    state = f"over ({status['over']})" if status["over"] else "running" if runs else "not running; to be started again"
    nodes = f"{status['held']} nodes held, {status['leaving']} leaving, {status['requested']} asked for"
    nodes += f", of {status['idle']} idle"
    nodes += ", and no more are taken" if status["closed"] and not status["over"] else ""
    if not runs and not status["over"]:
        nodes = f"the {status['held'] + status['leaving']} nodes that it held are given back without it"
    return f"{state}, {status['time_s']:,.0f} s after it was begun; {nodes}"


def status_rows(status: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows: a task each."""
    rows: list[tuple[str, ...]] = []
    for task in status["tasks"]:
        done = f"{100 * min(1.0, task['work'] / task['total']):.1f} %"
        rate = f"{task['rate']:,.0f}" if task["rate"] >= 1000 else f"{task['rate']:.4g}"
        figures = str(task["nodes"]), f"{task['work']:,.0f}", done, rate
        rows.append((task["task"], task["status"], *figures, str(task["generation"]), str(task["failures"])))
    return _HEADINGS, rows
