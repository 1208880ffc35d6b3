"""Write pages about finished runs: what their directories and their node logs hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bftrainer._version import __version__
from bftrainer.errors import BftrainerError, RunDirectoryError
from bftrainer.extras import absent, missing_extra, require_extra
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.files.writing import file_source, refuse_existing, replacing
from bftrainer.nodelogs import read_node_log
from bftrainer.nodelogs.availability_trace import AvailabilityTrace
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.nodelogs.offers import offered_log
from bftrainer.report.brief import Worth, brief_of, brief_pdf
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.page import LogFigures, brief_page, page, rendered_page
from bftrainer.runs.finished import read_runs
from bftrainer.spot.statistics import trace_statistics


def check_pages() -> None:
    """Refuse to make pages without the libraries for them.

    Raises
    ------
    SettingsError
        If matplotlib or Jinja is not installed.
    """
    require_extra("Pages need", "report", "jinja2", "matplotlib")


def write_page(
    paths: Sequence[Path], output: Path, *, force: bool = False, brief: bool = False, worth: Worth | None = None
) -> None:
    """Write a page about the runs in these directories.

    Parameters
    ----------
    paths : sequence of Path
    output : Path
        A name that ends in ``.pdf`` gets the briefs, an A4 side for each run.
    force : bool
        Whether to replace a page.
    brief : bool
        Whether the page has the brief of each run alone.
    worth : Worth, optional
        What a useful node-hour stands for.

    Raises
    ------
    RunDirectoryError
        If one of them is not a readable result directory.
    OutputError
        If the page exists and not `force`, or cannot be written.
    SettingsError
        If matplotlib or Jinja is not installed.
    """
    write_page_of(read_runs(paths), paths, output, worth, force=force, brief=brief)


def write_page_of(
    runs: Sequence[FinishedRun],
    places: Sequence[Path],
    output: Path,
    worth: Worth | None = None,
    *,
    force: bool = False,
    brief: bool = False,
) -> None:
    """Write a page about runs, as `write_page`; their node logs are looked for near these paths."""
    check_pages()
    refuse_existing(output, force=force)
    if output.suffix.lower() == ".pdf":
        content = brief_pdf([brief_of(run, worth) for run in runs])
    else:
        briefs = [brief_of(run, worth) for run in runs] if brief else []
        text = brief_page(briefs, __version__) if brief else page(runs, _logs(places, runs), __version__, worth)
        content = text.encode(errors="backslashreplace")  # it names files, whose names need not be valid text
    with replacing(output) as stream:
        stream.write(content)


def notebook_view(run: FinishedRun) -> str:
    """The brief of a run as a part of a page, as notebooks show it; its text alone where libraries are missing."""
    brief = brief_of(run)
    missing = absent("jinja2", "matplotlib")
    if missing:
        why = missing_extra("Pictures need", "report", missing)
        cards = [f"{card.label}: {card.value}{card.mark}" for card in brief.cards]
        lines = [brief.title, brief.subtitle, brief.headline, *cards, *brief.caveats, f"{why}."]
        return f'<pre style="white-space: pre-wrap">{escape(chr(10).join(lines))}</pre>'
    # Ids in pictures must differ from those of other results in the notebook.
    prefix = crc32(f"{run.name}{run.summary['command']}{brief.subtitle}{brief.headline}".encode(errors="replace"))
    return rendered_page("brief_notebook.html", brief=brief, prefix=prefix)


def fragment_curves(
    paths: Sequence[Path], runs: Sequence[FinishedRun]
) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """Survival curve of idle spans of each distinct log: name, time in seconds, share that stays idle longer.

    Raises
    ------
    RunDirectoryError
        If the log of a run is not available.
    """
    found: dict[int, tuple[str, NDArray[np.float64], NDArray[np.float64]]] = {}
    for path, run, log in zip(paths, runs, _logs(paths, runs), strict=True):
        if log.figures is None:
            raise RunDirectoryError(f"{path}: Cannot show how long nodes stay idle: {log.reason}")
        found.setdefault(id(log), (run.name, log.time_s, log.share))
    return list(found.values())


def _logs(paths: Sequence[Path], runs: Sequence[FinishedRun]) -> list[LogFigures]:
    """Figures of the runs' logs; one object for runs that share a log."""
    known: dict[tuple[Any, ...], LogFigures] = {}
    logs = []
    for path, run in zip(paths, runs, strict=True):
        source = (run.summary.get("inputs") or {}).get("node_log")
        settings = run.summary["settings"]
        part = ("skip_events", "offer_after_s", "first_node", "node_count")
        key = (str(source), *map(settings.get, part))
        # The log may be missing near the first run, but present near another one.
        if key not in known or known[key].figures is None:
            known[key] = _log_figures(path, source, settings)
        logs.append(known[key])
    return logs


def _log_figures(path: Path, source: Any, settings: Mapping[str, Any]) -> LogFigures:
    """Idle-span figures of the log that a run replayed, if it is unchanged."""
    if not isinstance(source, Mapping):
        return LogFigures(None, "the node log was not read from a file; its fragments are not shown.")
    named, run = Path(source["path"]), path.resolve()
    # In case all was moved together: beside the run or above it; a sample's run may be from another installation.
    places = [named, *(above / named for above in run.parents if not named.is_absolute())]
    places += [run / named.name, run.parent / named.name]
    places += [sample_path(SAMPLE_NODE_LOG)] if named.name == SAMPLE_NODE_LOG else []
    try:
        there = [place for place in dict.fromkeys(places) if place.is_file()]
        file = next((place for place in there if file_source(place)["sha256"] == source["sha256"]), None)
        if file is None:
            what = "has changed since the run" if there else "no longer exists"
            return LogFigures(None, f"the node log {named} {what}; its fragments are not shown.")
        log = read_node_log(file)
        if not log.nodes:
            return LogFigures(None, "the node log has no nodes, so there are no fragments to show.")
        start_ns = log.skipped(settings.get("skip_events") or 0).start_ns
        offered = offered_log(log, nanoseconds(settings.get("offer_after_s") or 0.0)).since(start_ns)
        log = offered.selected(settings.get("first_node") or 0, settings.get("node_count"))
    except OSError as error:
        return LogFigures(None, f"the node log {named} cannot be read ({error.strerror}); its fragments are not shown.")
    except BftrainerError as error:
        return LogFigures(None, f"the node log can no longer be read: {error}")
    found = trace_statistics(AvailabilityTrace.of_log(log))
    return LogFigures(found.figures, "", found.survival.time_s, found.survival.share)
