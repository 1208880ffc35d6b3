"""Simulated training on preemptible nodes: from files to figures and files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bftrainer.errors import SettingsError, UnusedOptionsError
from bftrainer.files.directory import file_source
from bftrainer.files.opening import SAMPLE_SPOT_PROFILE, sample_path
from bftrainer.model import NodeLog, iso
from bftrainer.model.availability import MOST_NODES
from bftrainer.model.spot_training import SpotRun, TrainingProfile
from bftrainer.nodelogs.availability import read_availability, read_pair
from bftrainer.spot.accounts import Prices, run_figures
from bftrainer.spot.checkpointing import CheckpointedTraining, simulate
from bftrainer.tasksets.measurements import read_training_profile

SCHEMA = 1
EVENT_COLUMNS = ("ws", "dt", "event", "event-id")
INITIAL_NODES = 32


@dataclass(frozen=True, slots=True, eq=False)
class SpotResult:
    """A simulated run and what it was made of.

    Parameters
    ----------
    run : SpotRun
    log : NodeLog
        The trace.
    settings : CheckpointedTraining
    prices : Prices or None
    sources : mapping
        Inputs: paths as given, SHA-256.
    """

    run: SpotRun
    log: NodeLog
    settings: CheckpointedTraining
    prices: Prices | None
    sources: Mapping[str, Any]

    def figures(self) -> dict[str, Any]:
        """What came of it."""
        return run_figures(self.run, self.settings, self.prices)

    def summary(self) -> dict[str, Any]:
        """All figures of the run, JSON-ready."""
        return {
            "schema": SCHEMA,
            "inputs": dict(self.sources),
            "settings": settings_summary(self.settings, self.prices),
            "window_start": iso(self.run.start_ns),
            "window_end": iso(self.run.start_ns + self.run.span_ns),
            "nodes": len(self.log.nodes),
            **self.figures(),
        }


def settings_summary(settings: CheckpointedTraining, prices: Prices | None) -> dict[str, Any]:
    """Settings that affect the result, besides the trace."""
    profile = settings.profile
    measured = ("reconfiguration_s", "checkpoint_s", "load_s", "samples_per_iteration")
    return {
        **{each.name: getattr(settings, each.name) for each in fields(settings) if each.name != "profile"},
        "world_size": list(profile.world_size),
        "iteration_s": list(profile.iteration_s),
        **{key: getattr(profile, key) for key in measured},
        "price": None if prices is None else prices.spot,
        "on_demand_price": None if prices is None else prices.on_demand,
    }


def load_profile(path: Path | None) -> tuple[TrainingProfile, dict[str, str] | None]:
    """A profile and where it came from; without a path the embedded one. Raw measurements have no checksum."""
    place = sample_path(SAMPLE_SPOT_PROFILE) if path is None else path
    profile = read_training_profile(place)
    if place.is_dir():
        return profile, {"path": str(place)}
    return profile, file_source(place) if path is not None else {**file_source(place), "path": place.name}


def load_log(
    path: Path, additions: Path | None = None, initial_nodes: int | None = None, warn: Callable[[str], None] = print
) -> tuple[NodeLog, dict[str, Any]]:
    """The trace to simulate, and where it came from.

    Parameters
    ----------
    path : Path
        A trace of any kind, but for terminations alone; with `additions` the preemptions that belong to them.
    additions : Path, optional
    initial_nodes : int, optional
        Nodes at the start of a pair; 32 by default.
    warn : callable
        Told in one line each what had to be assumed.

    Raises
    ------
    InputError
        If a file cannot be used, or an option does not belong to it.
    """
    if additions is not None:
        initial = INITIAL_NODES if initial_nodes is None else initial_nodes
        if not 0 <= initial <= MOST_NODES:
            raise SettingsError(f"Expected 0 <= initial_nodes <= {MOST_NODES:,}, got {initial:,}.")
        return read_pair(path, additions, initial), {"trace": file_source(path), "additions": file_source(additions)}
    if initial_nodes is not None:
        raise UnusedOptionsError({"--initial-nodes": "without --additions the trace says how many nodes there are"})
    log = read_availability(path, warn).log
    if log is None:
        raise SettingsError(f"{path}: Expected additions beside terminations, got terminations alone.")
    return log, {"trace": file_source(path), "additions": None}


def simulate_spot(
    log: NodeLog,
    settings: CheckpointedTraining,
    prices: Prices | None = None,
    sources: Mapping[str, Any] | None = None,
) -> SpotResult:
    """Run training over a trace.

    Raises
    ------
    SettingsError
        If the nodes on demand that it shall be compared with make no pipeline.

    Examples
    --------
    >>> from bftrainer.spot.run import load_profile, simulate_spot
    >>> from bftrainer.model.availability import CountTrace
    >>> from bftrainer.spot.checkpointing import CheckpointedTraining
    >>> import numpy as np
    >>> log = CountTrace(np.array([0, 3600 * 10**9]), np.array([16, 16])).log()
    >>> result = simulate_spot(log, CheckpointedTraining(load_profile(None)[0]))
    >>> result.figures()["iterations_done"]  # an hour on 16 nodes, 17.994 s each
    200
    """
    result = SpotResult(simulate(log, settings), log, settings, prices, sources or {})
    result.figures()  # prices that cannot be compared are said before anything is written
    return result


def write_spot(result: SpotResult, directory: Path) -> None:
    """Write events.csv and summary.json.

    Raises
    ------
    OSError
        If they cannot be written.
    """
    start_ns = result.run.start_ns
    with (directory / "events.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(EVENT_COLUMNS)
        steps = result.run.steps()
        table.writerows(
            (step.world_size, iso(start_ns + step.time_ns, "ms"), step.event, step.number) for step in steps
        )
    write_summary(result.summary(), directory)


def write_summary(summary: Mapping[str, Any], directory: Path) -> None:
    """Write summary.json."""
    text = json.dumps(summary, indent=2, allow_nan=False)
    (directory / "summary.json").write_text(text + "\n", encoding="utf-8")
