"""Import a scheduler's log: read it, sweep busy spans into idle ones, and report the data quality."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError
from bftrainer.files.log_files import fingerprints, head, log_paths
from bftrainer.files.writing import replacing
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.model.availability_trace import FORM
from bftrainer.nodelogs.hostlist import folded
from bftrainer.nodelogs.inventory import inventory_paths
from bftrainer.nodelogs.node_spans import NodeSpans, Window, log_of_idle, nanoseconds
from bftrainer.schedulers.busy_book import SPANS_AT_A_TIME, BusyKind, BusyRecords
from bftrainer.schedulers.formats.flux import eventlog_downtimes, is_eventlog
from bftrainer.schedulers.formats.slurm import read_downtimes
from bftrainer.schedulers.idle_spans import PLACEMENT, Demand, Swept, line_sweep, over_capacity_share, placed
from bftrainer.schedulers.reading import Importer, ImportSettings, Reading, get_importer, recognised
from bftrainer.schedulers.selected_nodes import SEEN, NodeChoice, counted_nodes, places, selected_nodes

AUTO = "auto"
"""In place of a format's name: recognise the format from the first file."""

DUPLICATE = "duplicate"
_EXAMPLES = 10

_Records = TypeVar("_Records", BusyRecords, Demand)


@dataclass(frozen=True, slots=True)
class DataQuality:
    """Quality of an imported log: what was read, left out and assumed.

    Parameters
    ----------
    format : str
    records, kept : int
        Number of records read, and of those kept because they describe busy nodes.
    outside_window : int
        Number of kept records whose intervals lie outside the window.
    dropped : mapping of str to int
        Number of records not kept, by reason.
    bad : int
        Number of dropped records that were unusable.
    bad_examples : tuple of str
        Place and fault of the first bad records.
    duplicates : int
        Number of dropped records that repeat an earlier one.
    unknown : int
        Number of kept records whose list of nodes is unreliable; its nodes count as busy.
    nodes, nodes_seen : int
        Number of nodes in the node log, and of those that the scheduler's log names.
    nodes_unseen : int
        Number of nodes in the inventory that the scheduler's log never names, treated as `unseen`.
    unseen : str
    nodes_outside : int
        Number of nodes that the scheduler's log names but the inventory does not; left out.
    outside_examples : tuple of str
    window_start, window_end : str
        ISO times.
    window_s : float
    zone : str or None
        Time zone of local times in the log.
    busy_node_s : mapping of str to float
        Busy node-seconds in the window by kind; kinds may overlap.
    idle_node_s, idle_share : float
        Idle node-seconds, and their share of nodes x window.
    overlap_factor : float or None
        Node-seconds of all jobs divided by those of their union: above 1 where jobs share nodes.
    over_capacity_share : float or None
        Share of the window in which demand exceeds the nodes; only for logs without node names.
    notes : tuple of str
        Assumptions made, one line each.
    """

    format: str
    records: int
    kept: int
    outside_window: int
    dropped: Mapping[str, int]
    bad: int
    bad_examples: tuple[str, ...]
    duplicates: int
    unknown: int
    nodes: int
    nodes_seen: int
    nodes_unseen: int
    unseen: str
    nodes_outside: int
    outside_examples: tuple[str, ...]
    window_start: str
    window_end: str
    window_s: float
    zone: str | None
    busy_node_s: Mapping[str, float]
    idle_node_s: float
    idle_share: float
    overlap_factor: float | None
    over_capacity_share: float | None
    notes: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The fields as plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """Result of an import.

    Parameters
    ----------
    log : NodeLog
    quality : DataQuality
    """

    log: NodeLog
    quality: DataQuality


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Result of a log's line sweep, with its window and nodes."""

    window: Window
    chosen: NodeChoice
    swept: Swept
    outside: int
    unknown: int = 0
    over_capacity_share: float | None = None


def import_log(
    format_name: str, paths: Sequence[Path], settings: ImportSettings | None = None, command: str = ""
) -> Imported:
    """Turn a scheduler's log into a node log.

    Parameters
    ----------
    format_name : str
        One of `importer_names()`, or `auto`.
    paths : sequence of Path
        Files and directories of files, in order.
    settings : ImportSettings, optional
    command : str
        The user's command line, kept in the log's provenance.

    Raises
    ------
    LogError
        If a file is not of this format, or too much of it is unusable.
    SettingsError
        If a setting is unknown, missing, or contradicts the log.
    """
    settings = settings or ImportSettings()
    files = log_paths(paths)
    importer = recognised(head(files[0]), str(files[0])) if format_name == AUTO else get_importer(format_name)
    reading = Reading.begun(settings)
    importer.read(files, reading)
    reading.tally.check(at_end=True)
    if reading.demand is None:
        found = _swept_names(importer, reading)
    else:
        found = _swept_counts(importer, reading, reading.demand)
    beside = (*log_paths((*settings.downtimes, *settings.reservations)), *inventory_paths(settings.nodes))
    log = log_of_idle(
        found.chosen.names,
        found.window,
        found.swept.idle,
        _provenance(importer, reading, found, command, (*files, *beside)),
        reading.unchanged_ns,
        _last_changes(found, reading),
    )
    return Imported(log, _quality(importer, reading, found, log))


def _last_changes(found: _Found, reading: Reading) -> dict[int, bool]:
    """Nodes that change in the window's last instant, if the window ends with the log and short holes count."""
    if reading.window_ns is None or found.window.end_ns != reading.window_ns[1] or reading.settings.min_hole_s:
        return {}
    changes = reading.last_changes
    return {node: changes[name] for node, name in enumerate(found.chosen.names) if name in changes}


def _swept_names(importer: Importer, reading: Reading) -> _Found:
    """Sweep records that name nodes."""
    settings = reading.settings
    own, seen = len(reading.book), reading.book.node_count
    if not own and reading.nodes is None:
        raise _nothing(reading)
    for path in log_paths(settings.downtimes):
        if is_eventlog(path):
            eventlog_downtimes(path, reading)
        else:
            read_downtimes(path, reading.book, reading.clock, BusyKind.DOWN)
    for path in log_paths(settings.reservations):
        read_downtimes(path, reading.book, reading.clock, BusyKind.RESERVED)
    records = reading.book.records()
    is_own = np.arange(len(records)) < own
    window = _window(importer, reading, records.where(is_own).extent_ns())
    is_job = is_own & np.isin(records.kind, (BusyKind.JOB, BusyKind.UNKNOWN))
    whole = records
    records, outside = _cleaned(whole, is_job, window, reading)
    if not importer.is_availability and not (records.kind == BusyKind.DOWN).any():
        reading.note("nothing tells when nodes were down: idle time is an upper bound.")
    # Jobs outside the window still show which nodes belong to a partition.
    chosen = selected_nodes(whole, seen, reading, is_availability=importer.is_availability)
    place = places(records.names, chosen.names)
    swept = _sweep(records.unions(place), records.job_node_s(window, place), chosen, window, reading)
    return _Found(window, chosen, swept, outside, int((records.kind == BusyKind.UNKNOWN).sum()))


def _swept_counts(importer: Importer, reading: Reading, demand: Demand) -> _Found:
    """Sweep records that only count their nodes."""
    settings = reading.settings
    if settings.downtimes or settings.reservations or settings.partitions or settings.exclude_nodes:
        raise SettingsError(
            "--downtimes, --reservations, --partition and --exclude-nodes cannot be used: the log names no nodes."
        )
    window = _window(importer, reading, demand.extent_ns())
    chosen = counted_nodes(settings.nodes, reading.capacity)
    nodes = len(chosen.names)
    demand, outside = _cleaned(demand, np.ones(len(demand), dtype=np.bool_), window, reading)
    share = over_capacity_share(demand, nodes, window)
    if share > settings.max_overcommit:
        raise LogError(
            f"Expected jobs on at most {nodes:,} nodes at a time, got more for {100 * share:.3g} % of the window, "
            f"above --max-overcommit {100 * settings.max_overcommit:g} %: does the machine have more nodes?"
        )
    reading.placement = PLACEMENT
    reading.note("the log names no nodes: idle counts are exact, lengths of idle fragments are not.")
    reading.note("nothing tells when nodes were down: idle time is an upper bound.")
    jobs = placed(demand, nodes)
    blocks = ({BusyKind.JOB: some.merged()} for some in jobs.in_blocks(nodes, SPANS_AT_A_TIME))
    swept = _sweep(blocks, jobs.node_s_within(window), chosen, window, reading)
    return _Found(window, chosen, swept, outside, over_capacity_share=share)


def _sweep(
    blocks: Iterable[Mapping[BusyKind, NodeSpans]],
    job_node_s: float,
    chosen: NodeChoice,
    window: Window,
    reading: Reading,
) -> Swept:
    gap_ns, hole_ns = nanoseconds(reading.min_gap_s), nanoseconds(reading.settings.min_hole_s)
    return line_sweep(blocks, len(chosen.names), window, gap_ns, hole_ns, job_node_s)


def _nothing(reading: Reading) -> LogError:
    """The error for a log without usable records."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in reading.tally.dropped.most_common())
    shown = f"{reading.tally.records:,} records ({reasons})" if reasons else "no record at all"
    return LogError(f"No records of busy nodes in the log: {shown}.")


def _window(importer: Importer, reading: Reading, extent_ns: tuple[int, int] | None) -> Window:
    """The window: from the settings, else from the log."""
    settings, covered = reading.settings, reading.window_ns or extent_ns
    shown = "" if extent_ns is None else f" Its records name times from {iso(extent_ns[0])} to {iso(extent_ns[1])}."
    if (importer.needs_window or covered is None) and (settings.start is None or settings.end is None):
        raise SettingsError(f"Missing --start and --end: the log does not say what time it covers.{shown}")
    start, end = covered or (0, 0)
    if settings.start is not None:
        start = reading.clock.instant_ns(settings.start)
    if settings.end is not None:
        end = reading.clock.instant_ns(settings.end)
    window = Window(start, end)
    if extent_ns is not None:
        first, last = (pick(*extent_ns, *(covered or ())) for pick in (min, max))
        # A window that only touches the log is within it if the log is a single instant, else outside.
        touched = int(first < last)
        if end - touched < first or start + touched > last:
            raise LogError(f"Expected a window within the log, got {iso(start)} to {iso(end)}.{shown}")
    return window


def _cleaned(records: _Records, is_job: NDArray[np.bool_], window: Window, reading: Reading) -> tuple[_Records, int]:
    """Records without duplicates, in or near the window; and the number of jobs outside the window."""
    repeated = records.is_repeated()
    reading.tally.drop(DUPLICATE, int((repeated & is_job).sum()))
    inside = (records.end_ns > window.start_ns) & (records.start_ns < window.end_ns)
    # Records just outside the window decide whether a gap at its ends is clean-up.
    gap_ns = nanoseconds(reading.min_gap_s)
    near = (records.end_ns >= window.start_ns - gap_ns) & (records.start_ns <= window.end_ns + gap_ns)
    return records.where(near & ~repeated), int((~inside & ~repeated & is_job).sum())


def _provenance(
    importer: Importer, reading: Reading, found: _Found, command: str, files: Sequence[Path]
) -> dict[str, Any]:
    """Provenance: the sources of the node log, and the settings used."""
    settings = reading.settings
    story: dict[str, Any] = {
        "tool": f"bftrainer {version('bftrainer')}",
        "command": command,
        "format": importer.name,
        "inputs": fingerprints(files),
        "window": [iso(found.window.start_ns), iso(found.window.end_ns)],
        "zone": reading.clock.zone,
        "inventory": settings.nodes or SEEN,
        "unseen": found.chosen.unseen_are,
        "min_gap_s": reading.min_gap_s,
        "min_hole_s": settings.min_hole_s,
        "notes": list(reading.notes),
    }
    if importer.is_availability:
        story[FORM] = importer.name
    if reading.placement is not None:
        story["placement"] = reading.placement
    if found.chosen.partitions:
        story["partitions"] = {name: folded(nodes) for name, nodes in found.chosen.partitions.items()}
    return story


def _quality(importer: Importer, reading: Reading, found: _Found, log: NodeLog) -> DataQuality:
    tally, chosen, swept = reading.tally, found.chosen, found.swept
    total_s = len(log.nodes) * found.window.length_ns / NS_PER_S
    dropped = dict(tally.dropped.most_common())
    return DataQuality(
        format=importer.name,
        records=tally.records,
        kept=tally.records - tally.dropped.total(),
        outside_window=found.outside,
        dropped=dropped,
        bad=tally.bad,
        bad_examples=tuple(tally.examples),
        duplicates=dropped.get(DUPLICATE, 0),
        unknown=found.unknown,
        nodes=len(log.nodes),
        nodes_seen=chosen.seen,
        nodes_unseen=chosen.unseen,
        unseen=chosen.unseen_are,
        nodes_outside=len(chosen.outside),
        outside_examples=chosen.outside[:_EXAMPLES],
        window_start=iso(log.start_ns),
        window_end=iso(log.end_ns),
        window_s=log.window_s,
        zone=reading.clock.zone,
        busy_node_s=dict(sorted(swept.busy_node_s.items())),
        idle_node_s=swept.idle.node_s,
        idle_share=swept.idle.node_s / total_s,
        overlap_factor=swept.overlap_factor,
        over_capacity_share=found.over_capacity_share,
        notes=tuple(reading.notes),
    )


def quality_path(path: Path) -> Path:
    """Path of a node log's data quality: `idle.quality.json` for `idle.parquet` and `idle.csv.gz`."""
    return path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".quality.json")


def write_quality_json(path: Path, quality: DataQuality) -> None:
    """Write the data quality as JSON.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    with replacing(path) as stream:
        stream.write((json.dumps(quality.summary(), indent=1) + "\n").encode())
