"""Pages of finished runs: reading them, and the logs that they replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer._version import __version__
from bftrainer.errors import BftrainerError, RunDirectoryError
from bftrainer.extras import require_extra
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.files.writing import file_source, refuse_existing, replacing
from bftrainer.model.availability_trace import AvailabilityTrace
from bftrainer.model.records import FinishedRun
from bftrainer.nodelogs import read_node_log
from bftrainer.report.page import LogFigures, page
from bftrainer.runs.finished import read_runs
from bftrainer.spot.statistics import trace_statistics

__all__ = ["check_pages", "fragment_curves", "write_page", "write_page_of"]


def check_pages() -> None:
    """Refuse pages where they cannot be made.

    Raises
    ------
    SettingsError
        If plotly or Jinja is not installed.
    """
    require_extra("Pages need", "report", "jinja2", "plotly")


def write_page(paths: Sequence[Path], output: Path, *, force: bool = False) -> None:
    """Write the page of the runs in those directories.

    Raises
    ------
    RunDirectoryError
        If one of them is no result directory, or not one that can be read.
    OutputError
        If the page exists and not `force`, or cannot be written.
    SettingsError
        If plotly or Jinja is not installed.
    """
    check_pages()
    refuse_existing(output, force=force)
    write_page_of(read_runs(paths), paths, output)


def write_page_of(runs: Sequence[FinishedRun], places: Sequence[Path], output: Path) -> None:
    """Write the page of runs, whose node logs may lie beside those places."""
    text = page(runs, _logs(places, runs), __version__)
    with replacing(output) as stream:
        stream.write(text.encode(errors="backslashreplace"))  # it names files, which need not be text


def fragment_curves(
    paths: Sequence[Path], runs: Sequence[FinishedRun]
) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """Of each run's log, how long nodes stay idle: name, time in seconds, share that stays longer; equal logs once.

    Raises
    ------
    RunDirectoryError
        If the log of a run is not to be had.
    """
    found: dict[int, tuple[str, NDArray[np.float64], NDArray[np.float64]]] = {}
    for path, run, log in zip(paths, runs, _logs(paths, runs), strict=True):
        if log.statistics is None:
            raise RunDirectoryError(f"{path}: Expected the node log of the run, but {log.reason}")
        curve = log.statistics.survival
        found.setdefault(id(log), (run.name, curve.time_s, curve.share))
    return list(found.values())


def _logs(paths: Sequence[Path], runs: Sequence[FinishedRun]) -> list[LogFigures]:
    """Figures of the logs that runs replayed; one object for runs that share a log."""
    known: dict[tuple[Any, ...], LogFigures] = {}
    logs = []
    for path, run in zip(paths, runs, strict=True):
        source = (run.summary.get("inputs") or {}).get("node_log")
        settings = run.summary["settings"]
        key = (str(source), *(settings.get(name) for name in ("skip_events", "first_node", "node_count")))
        # Another run may be beside what the first one has lost.
        if key not in known or known[key].statistics is None:
            known[key] = _log_figures(path, source, settings)
        logs.append(known[key])
    return logs


def _log_figures(path: Path, source: Any, settings: Mapping[str, Any]) -> LogFigures:
    """Fragments of the log that a run replayed, if that is still what it was."""
    if not isinstance(source, Mapping):
        return LogFigures(None, "the node log was not read from a file; its fragments are not shown.")
    given = Path(source["path"])
    there = []
    try:
        there = [place for place in _places(given, path.resolve()) if place.is_file()]
        file = next((place for place in there if file_source(place)["sha256"] == source["sha256"]), None)
    except OSError as error:
        return LogFigures(None, f"the node log {given} cannot be read ({error.strerror}); its fragments are not shown.")
    if file is None:
        what = "has changed since the run" if there else "is not there any more"
        return LogFigures(None, f"the node log {given} {what}; its fragments are not shown.")
    try:
        log = read_node_log(file, settings.get("skip_events") or 0, lambda _: None)
        log = log.selected(settings.get("first_node") or 0, settings.get("node_count"))
    except (BftrainerError, OSError) as error:
        return LogFigures(None, f"the node log cannot be read any more: {error}")
    return LogFigures(trace_statistics(AvailabilityTrace.of_log(log)))


def _places(given: Path, run: Path) -> list[Path]:
    """Where the log of a run may be: where it was, or, if all has moved together, beside the run or above it."""
    places = [given, *(above / given for above in run.parents if not given.is_absolute())]
    places += [run / given.name, run.parent / given.name]
    if given.name == SAMPLE_NODE_LOG:
        # Made by another installation, perhaps.
        places.append(sample_path(SAMPLE_NODE_LOG))
    return list(dict.fromkeys(places))
