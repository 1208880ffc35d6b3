"""Import a scheduler's log: read it, sweep busy spans into idle ones, and report the data quality."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion
from bftrainer.files.text_files import head, log_paths
from bftrainer.files.writing import file_source, replacing
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.model.instants import local_iso
from bftrainer.nodelogs.availability import FORM
from bftrainer.nodelogs.hostlist import BRACKETS, fold_hostlist
from bftrainer.nodelogs.inventory import inventory_paths, shorten_names
from bftrainer.nodelogs.node_spans import OPEN_END_NS, NodeSpans, Window, log_of_idle, nanoseconds
from bftrainer.plugins import answering
from bftrainer.schedulers.busy_records import (
    ALL_UNITS,
    OFFERABLE,
    OUT_OF_SERVICE,
    PLACEMENT,
    SPANS_AT_A_TIME,
    UNIT_PLACEMENT,
    BusyKind,
    BusyRecords,
    Swept,
    choose_block,
    extent_ns,
    find_retold,
    find_runaway_ends,
    line_sweep,
    number_texts,
    over_capacity_share,
    place_jobs,
    place_on_units,
)
from bftrainer.schedulers.coverage import ADVICE, MOST_UNTRUSTED, Coverage, describe_account, judge_coverage
from bftrainer.schedulers.formats.tables import read_downtimes
from bftrainer.schedulers.import_settings import SEEN, ImportSettings, flag_of
from bftrainer.schedulers.reading import Importer, Reading, get_importer, recognise
from bftrainer.schedulers.selected_nodes import NodeChoice, choose_nodes, count_nodes, find_lives, places

_OF_NAMED = ("downtimes", "reservations", "partitions", "exclude_nodes")
"""Settings that need the names of nodes."""
AUTO = "auto"
"""In place of a format's name: recognise the format from the first file."""
_DUPLICATE, _EXAMPLES = "duplicate", 10
_MOST_IDS_MISSING = 0.02
"""Share of job ids that may be missing, as some are always."""


class DataQuality(SimpleNamespace):
    """Quality of an imported log: the figures that docs/import.md describes, "The account", as attributes."""

    def summary(self) -> dict[str, Any]:
        """The figures as plain data for JSON."""
        return dict(vars(self))


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """Result of an import: the node log, and the account of the log's records."""

    log: NodeLog
    quality: DataQuality


@dataclass(slots=True, eq=False)
class _SweptLog:
    """A log's line sweep, with its window, nodes and jobs, of which so many are `outside` the window."""

    window: Window
    chosen: NodeChoice
    swept: Swept
    coverage: Coverage | None
    jobs: pd.DataFrame
    outside: int
    job_node_s: float = 0.0
    unknown: int = 0
    whole_idle_share: float | None = None
    over_capacity_share: float | None = None
    block: int = 1
    runaways: int = 0
    runaway_share: float = 0.0

    @property
    def busy_node_s(self) -> dict[str, float]:
        """Node-seconds of the machine that were not idle, by cause."""
        return {name: node_s * self.block for name, node_s in sorted(self.swept.busy_node_s.items())}


def quality_path(path: Path) -> Path:
    """Path of a node log's data quality: `idle.quality.json` for `idle.parquet` and `idle.csv.gz`."""
    return path.parent / f"{path.name.removesuffix('.gz').rpartition('.')[0]}.quality.json"


def write_quality_json(path: Path, quality: DataQuality) -> None:
    """Write the data quality as JSON."""
    with replacing(path) as stream:
        stream.write((json.dumps(quality.summary(), indent=1) + "\n").encode())


def import_log(
    format_name: str, paths: Sequence[Path], settings: ImportSettings | None = None, command: str = ""
) -> Imported:
    """Turn a scheduler's log into a node log.

    Parameters
    ----------
    format_name : str
        One of `LOG_FORMATS`, a registered plug-in, `module:callable`, or `auto`.
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
    importer = recognise(head(files[0]), str(files[0])) if format_name == AUTO else get_importer(format_name)
    reading = Reading(settings)
    is_ours = type(importer).__module__.startswith("bftrainer.")  # else an error names the importer
    with nullcontext() if is_ours else answering(f"importer {type(importer).__name__}", LogError):
        if (frame := importer.read(files, reading)) is not None:
            reading.tally.records += len(frame)
            reading.take(frame)
    reading.tally.check()
    clusters = list(filter(None, reading.clusters))
    if settings.cluster is not None and not reading.clusters[settings.cluster]:
        raise SettingsError(f"Unknown cluster {settings.cluster!r}.{suggestion(settings.cluster, clusters)}")
    if not any(map(len, reading.counted)):
        result = _sweep_names(importer, reading)
    elif len(clusters) > 1 and settings.cluster is None:
        raise SettingsError(f"Missing --cluster: the log counts nodes of {len(clusters):,}: {', '.join(clusters)}.")
    else:
        result = _sweep_counts(importer, reading, pd.concat(reading.counted))
    trust = _account_coverage(result, reading)
    beside = (*log_paths((*settings.downtimes, *settings.reservations)), *inventory_paths(settings.nodes))
    story = _provenance(importer, reading, result, command, (*files, *beside))
    log = log_of_idle(
        result.chosen.names,
        result.window,
        result.swept.idle,
        story | ({"coverage": trust} if trust else {}),
        reading.unchanged_ns,
        _last_changes(result, reading),
    )
    return Imported(log, _account(importer, reading, result, trust))


def _last_changes(result: _SweptLog, reading: Reading) -> dict[int, bool]:
    """Nodes that change in the window's last instant, if the window ends with the log and short holes count."""
    if reading.window_ns is None or result.window.end_ns != reading.window_ns[1] or reading.settings.min_hole_s:
        return {}
    is_late = reading.settings.offer_after_s > 0  # what joins then is not offered any more
    changes = {name: joins for name, joins in reading.last_changes.items() if not (joins and is_late)}
    return {node: changes[name] for node, name in enumerate(result.chosen.names) if name in changes}


def _account(importer: Importer, reading: Reading, result: _SweptLog, trust: Mapping[str, Any] | None) -> DataQuality:
    """The account of an import; `trust` says what of it can be trusted."""
    tally, chosen, swept, window = reading.tally, result.chosen, result.swept, result.window
    jobs_s = swept.busy_node_s.get("job", 0.0)
    return DataQuality(
        format=importer.name,
        records=tally.records,
        kept=tally.records - tally.dropped.total(),
        outside_window=result.outside,
        dropped=dict(tally.dropped.most_common()),
        bad=tally.bad,
        bad_examples=tuple(tally.examples),
        duplicates=tally.dropped[_DUPLICATE],
        unknown=result.unknown,
        nodes_per_block=result.block,
        nodes=len(chosen.names),
        nodes_seen=chosen.seen,
        nodes_unseen=chosen.unseen,
        unseen=chosen.unseen_are,
        nodes_outside=len(chosen.outside),
        outside_examples=chosen.outside[:_EXAMPLES],
        window_start=iso(window.start_ns),
        window_end=iso(window.end_ns),
        window_s=window.length_ns / NS_PER_S,
        zone=reading.clock.zone,
        coverage=trust,
        busy_node_s=result.busy_node_s,
        idle_node_s=swept.idle.node_s * result.block,
        idle_share=swept.idle_share(window),
        away_node_s=float(swept.away_s.sum()),
        by=_measure_groups(result, reading.settings.by),
        unit=reading.settings.unit,
        whole_idle_share=result.whole_idle_share,
        overlap_factor=result.job_node_s / jobs_s if jobs_s else None,
        over_capacity_share=result.over_capacity_share,
        notes=tuple(reading.notes),
    )


def _measure_groups(result: _SweptLog, by: str | None) -> dict[str, dict[str, float | None]]:
    """Number, idle share and idle intervals of each partition's nodes, or each type's; seconds within the window."""
    chosen, swept = result.chosen, result.swept
    groups = {"partition": chosen.partitions, "node-type": chosen.types}.get(by or "", {})
    if by and not groups:
        raise SettingsError(f"--by {by}: neither the log nor --nodes tells the {by} of nodes.")
    figures: dict[str, dict[str, float | None]] = {}
    for group, members in groups.items():
        is_member = places(chosen.names, members) >= 0
        spans = swept.idle.where(is_member[swept.idle.node])
        lengths_s = (spans.end_ns - spans.start_ns) / NS_PER_S
        figures[group] = {
            "nodes": len(set(members)),
            "idle_share": replace(swept, idle=spans, away_s=swept.away_s[is_member]).idle_share(result.window),
            "idle_node_s": spans.node_s,
            "holes": len(spans),
            "hole_mean_s": float(lengths_s.mean()) if len(spans) else None,
            "hole_median_s": float(np.median(lengths_s)) if len(spans) else None,
        }
    return figures


def _sweep_names(importer: Importer, reading: Reading) -> _SweptLog:
    """Sweep records that name nodes."""
    settings, own = reading.settings, len(reading.rows)
    if not own and reading.nodes is None:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in reading.tally.dropped.most_common())
        shown = f"{reading.tally.records:,} records ({reasons})" if reasons else "no record at all"
        raise LogError(f"No records of busy nodes in the log: {shown}.")
    every = _with_downtimes(reading)
    is_own = np.arange(len(every)) < own
    is_job = is_own & np.isin(every["kind"], (BusyKind.JOB, BusyKind.UNKNOWN))
    is_lost = _drop_repeated(every.rows, every.runs(), is_job, reading)
    is_job &= ~is_lost
    ends = find_runaway_ends(every, is_job)
    is_runaway = (ends < every["end_ns"]) & (every["is_open"] > 0)
    every = replace(every, rows=every.rows.assign(end_ns=np.minimum(every["end_ns"], ends)))
    jobs = every.where(is_job & ~is_runaway)
    trusted, window = _find_window(importer, reading, jobs.rows, jobs.sizes(), extent_ns(every.rows[is_own]))
    if rare := jobs.rare_nodes():
        shown = shorten_names(rare)
        reading.note(f"{len(rare):,} nodes are in under 0.1 % of the records: {shown}. Are they this machine's?")
    records = every.where(~is_lost & _is_near(every.rows, window, reading))
    if not reading.is_exact and not np.isin(records["kind"], OUT_OF_SERVICE).any():
        reading.note("nothing tells when nodes were down: idle time is an upper bound.")
    # Jobs outside the window still show which nodes belong to a partition.
    chosen = choose_nodes(every, reading, is_availability=importer.is_availability)
    place = places(every.names, chosen.names)
    records = records.where(~np.isin(records["kind"], [OFFERABLE[name] for name in settings.offer]))
    lives, reason = chosen.lives, "nodes count only while --nodes says that they were there"
    if lives is None and not importer.is_availability and not reading.is_exact:
        # Downtimes alone do not tell when a node was there.
        placed = np.where(np.arange(place.size) < every.seen, place, -1)
        lives, reason = find_lives(every, placed, chosen.names, window, trusted)
    lives = None if lives is None else lives.within(window.start_ns, window.end_ns)
    swept = _sweeper(reading)(records.unions(place), len(chosen.names), window, lives=lives)
    result = _SweptLog(window, chosen, swept, trusted, jobs.rows, _count_outside(every.rows[is_job], window))
    result.job_node_s = records.job_node_s(window, place)
    result.unknown = int((records["kind"] == BusyKind.UNKNOWN).sum())
    if swept.away_s.any():
        reading.note(f"{reason}. {swept.away_s.sum() / 3600:,.1f} node-hours are left out.")
    if runaways := int(is_runaway.sum()):
        busy_s = max(swept.busy_node_s.get("job", 0.0), 1.0)
        result.runaways = runaways
        result.runaway_share = every.where(is_runaway).job_node_s(window, place) / busy_s
        reading.note(
            f"{runaways:,} runs are runaways: they have no end, and their nodes ran other jobs since. They "
            f"count until the first of these starts, {100 * result.runaway_share:.3g} % of the busy node-time."
        )
    if settings.unit != "node":
        result.whole_idle_share = swept.idle_share(window)
        _sweep_units(records, place, result, reading, lives)
    if settings.offer:
        reading.note(f"nodes are offered in spite of this: {', '.join(settings.offer)}.")
    return result


def _sweep_units(
    records: BusyRecords, place: NDArray[np.int32], result: _SweptLog, reading: Reading, lives: NodeSpans | None
) -> None:
    """Sweep GPUs or cores in place of nodes."""
    unit, chosen = reading.settings.unit, result.chosen
    if not (records["units"] != ALL_UNITS).any():
        raise SettingsError(f"--unit {unit}: the log does not say how many {unit}s jobs held (AllocTRES, exec_vnode).")
    names_of = {name: tuple(f"{name}/{unit}{at}" for at in range(chosen.units[name])) for name in chosen.names}
    names = tuple(itertools.chain.from_iterable(names_of.values()))
    if not names:
        raise LogError(f"--unit {unit}: Expected nodes with {unit}s, got {shorten_names(chosen.names)} without.")
    sizes = list(map(len, names_of.values()))
    by_kind, crowded = place_on_units(records, place, sizes)
    if crowded:
        reading.note(f"{crowded:,} times a job held more {unit}s of a node than were free there.")
    reading.placement = UNIT_PLACEMENT.format(unit=unit)
    reading.note(f"the log counts {unit}s: how many are idle is exact, which and for how long at a stretch is not.")
    result.job_node_s = by_kind.get(BusyKind.JOB, NodeSpans.none()).node_s_within(result.window)
    lives = None if lives is None else lives.repeat_on_parts(sizes)
    result.swept = _sweeper(reading)([by_kind], len(names), result.window, lives=lives)

    def within(groups: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        return {group: tuple(one for name in some for one in names_of[name]) for group, some in groups.items()}

    result.chosen = replace(chosen, names=names, partitions=within(chosen.partitions), types=within(chosen.types))


def _drop_repeated(
    rows: pd.DataFrame, run: NDArray[np.int64], is_job: NDArray[np.bool_], reading: Reading
) -> NDArray[np.bool_]:
    """Count rows that repeat others, and those of runs without an end that others tell to the end; which they are."""
    is_repeated, is_stale = find_retold(rows, run)
    reading.tally.drop(_DUPLICATE, int((is_repeated & is_job).sum()))
    reading.tally.drop("told again when it had ended", int((is_stale & is_job).sum()))
    return is_repeated | is_stale


def _with_downtimes(reading: Reading) -> BusyRecords:
    """Records of the log, then downtimes and reservations; with several clusters, names begin with theirs."""
    settings, rows = reading.settings, reading.rows
    seen, clusters = len(rows.lists.names), [name for name, count in reading.clusters.items() if name and count]
    for kind, paths in ((BusyKind.DOWN, settings.downtimes), (BusyKind.RESERVED, settings.reservations)):
        for path in log_paths(paths):
            read_downtimes(path, reading, rows, kind)
    if len(clusters) > 1:
        shown = ", ".join(clusters)
        reading.note(f"the log is of {len(clusters):,} clusters ({shown}): nodes are named after them.")
    return rows.records(by_cluster=len(clusters) > 1, seen=seen)


def _sweep_counts(importer: Importer, reading: Reading, demand: pd.DataFrame) -> _SweptLog:
    """Sweep jobs that only count their nodes."""
    settings = reading.settings
    ineffective = [name for name in _OF_NAMED if getattr(settings, name)]
    if ineffective:
        flags = " and ".join(flag_of(name) for name in ineffective)
        raise SettingsError(f"{flags} cannot be used: the log names no nodes.")
    demand = demand.assign(is_open=demand["end_ns"] >= OPEN_END_NS, job=number_texts(demand["job"], hash))
    is_job = np.ones(len(demand), dtype=np.bool_)
    demand = demand[~_drop_repeated(demand, demand["job"].to_numpy(), is_job, reading)]
    trusted, window = _find_window(importer, reading, demand, demand["count"].to_numpy(), extent_ns(demand))
    chosen, sizes = count_nodes(settings.nodes, reading.capacity), reading.node_sizes
    nodes = len(chosen.names)
    if sizes is not None and sizes.size != nodes:
        raise SettingsError(f"Expected --nodes with {sizes.size:,} nodes, as --procs-per-node says, got {nodes:,}.")
    outside, demand = _count_outside(demand, window), demand[_is_near(demand, window, reading)]
    share = over_capacity_share(demand, nodes if sizes is None else int(sizes.sum()), window)
    if share > settings.max_overcommit:
        raise LogError(
            f"Expected jobs on at most {nodes:,} nodes at a time, got more for {100 * share:.3g} % of the window, "
            f"above --max-overcommit {100 * settings.max_overcommit:g} %: does the machine have more nodes?"
        )
    reading.placement = PLACEMENT
    block, exact = 1, "jobs fill whole nodes, of several sizes, in order"
    if sizes is None:
        has_names = settings.nodes not in (None, SEEN) and not str(settings.nodes).isdecimal()
        block = choose_block(demand, 1 if has_names else nodes, window)
        odd = int((demand["count"] % block > 0).sum())
        exact = "idle counts are exact" + f" but for {odd:,} jobs that get whole blocks" * (odd > 0)
    if block > 1:
        demand = demand.assign(count=-(-demand["count"] // block))
        reading.placement = f"in blocks of {block:,} nodes, {PLACEMENT}"
        reading.note(f"a node here is a block, of {block:,} of the machine's {nodes:,} nodes.")
        nodes //= block
        chosen = count_nodes(None, nodes)
    reading.note(f"the log names no nodes: {exact}, lengths of idle fragments are not.")
    reading.note("nothing tells when nodes were down: idle time is an upper bound.")
    jobs = place_jobs(demand, nodes if sizes is None else sizes)
    blocks = ({BusyKind.JOB: some.union()} for some in jobs.split_blocks(nodes, SPANS_AT_A_TIME))
    swept = _sweeper(reading)(blocks, nodes, window)
    result = _SweptLog(window, chosen, swept, trusted, demand, outside, jobs.node_s_within(window))
    result.over_capacity_share, result.block = share, block
    return result


def _sweeper(reading: Reading) -> Callable[..., Swept]:
    """The line sweep with the settings' shortest gaps and holes."""
    gap_ns, hole_ns, after_ns = map(
        nanoseconds, (reading.min_gap_s, reading.settings.min_hole_s, reading.settings.offer_after_s)
    )
    return partial(line_sweep, min_gap_ns=gap_ns, min_hole_ns=hole_ns, offer_after_ns=after_ns)


def _find_window(
    importer: Importer,
    reading: Reading,
    jobs: pd.DataFrame,
    sizes: NDArray[np.int64],
    extent_ns: tuple[int, int] | None,
) -> tuple[Coverage | None, Window]:
    """What of a log can be trusted, if it does not tell all, and the window: of the settings, else that, else all."""
    settings, clock, covered = reading.settings, reading.clock, reading.window_ns or extent_ns
    coverage, shown = None, ""
    if runs := int((jobs["is_open"] > 0).sum()):
        text = "their nodes are busy to the end of the window, or of the time limit if it is earlier"
        reading.note(f"{runs:,} runs have no end in the log: {text}.")
    if not (jobs.empty or importer.is_availability or reading.is_exact):
        start_ns, end_ns, submit_ns = (jobs[name].to_numpy() for name in ("start_ns", "end_ns", "submit_ns"))
        coverage = judge_coverage(start_ns, end_ns, sizes, submit_ns, tells_changes=importer.tells_changes)
    if extent_ns is not None:
        earliest, latest = (local_iso(at, clock.zone) for at in extent_ns)
        shown = f" Its records name times from {earliest} to {latest}."
    is_open = settings.start is None or settings.end is None
    if is_open and coverage is not None and settings.window == "trusted":
        if (trusted := coverage.trusted) is None:
            reason = f"Nothing of the log can be trusted: {coverage.reason}. {ADVICE}"
            raise LogError(f"{reason}; --window asked takes it all the same.{shown}")
        low, high = covered or (trusted.start_ns, trusted.end_ns)
        covered = max(low, trusted.start_ns), min(high, trusted.end_ns)
    elif is_open and covered is None:
        raise SettingsError("Missing --start and --end: the log does not say what time it covers.")
    start, end = (
        at if text is None else clock.instant_ns(text)
        for text, at in zip((settings.start, settings.end), covered or (0, 0), strict=True)
    )
    window = Window(start, end)
    if extent_ns is not None and covered is not None:
        first, last = (pick(*extent_ns, *covered) for pick in (min, max))
        # A window that only touches the log is within it if the log is a single instant, else outside.
        touched = int(first < last)
        if end - touched < first or start + touched > last:
            begin, until = (local_iso(at, clock.zone) for at in (start, end))
            raise LogError(f"Expected a window within the log, got {begin} to {until}.{shown}")
    return coverage, window


def _account_coverage(result: _SweptLog, reading: Reading) -> dict[str, Any] | None:
    """What can be trusted of the log and of the window, with a note."""
    coverage, window = result.coverage, result.window
    if coverage is None:
        return None
    times_ns = result.jobs["start_ns"].to_numpy(), result.jobs["end_ns"].to_numpy()
    ids = reading.job_ids if len(list(filter(None, reading.clusters))) <= 1 else []
    account = coverage.account(window, result.swept.idle, times_ns, np.concatenate([np.zeros(0, dtype=np.int64), *ids]))
    account["untrusted_idle_node_s"] *= result.block
    account |= {"runaways": result.runaways, "runaway_share": result.runaway_share}
    days, lost, gone = (account[key] for key in ("empty_days", "lost_days", "missing_ids_share"))
    if lost:
        reading.note(f"in {lost:.3g} days of the window jobs began and none ended: records of them are missing.")
    elif days:
        reading.note(f"for {days:,.1f} days of the window no job starts, or none ends: is a file missing?")
    if gone > _MOST_IDS_MISSING:
        reading.note(f"{100 * gone:.2g} % of the job ids are in no row: records are missing, whose nodes look idle.")
    text = describe_account(account, window)
    too_much = account["untrusted_s"] > MOST_UNTRUSTED * window.length_ns / NS_PER_S
    if too_much and reading.settings.window == "trusted":
        raise LogError(f"{text}. {ADVICE}; --window asked takes the window as it is.")
    reading.note(f"{text}.")
    return account


def _is_near(rows: pd.DataFrame, window: Window, reading: Reading) -> NDArray[np.bool_]:
    """Which records are in the window, or so near that they decide whether a gap at its ends is clean-up."""
    gap_ns = nanoseconds(reading.min_gap_s)
    return np.asarray((rows["end_ns"] >= window.start_ns - gap_ns) & (rows["start_ns"] <= window.end_ns + gap_ns))


def _count_outside(jobs: pd.DataFrame, window: Window) -> int:
    return int(((jobs["end_ns"] <= window.start_ns) | (jobs["start_ns"] >= window.end_ns)).sum())


def _provenance(
    importer: Importer, reading: Reading, result: _SweptLog, command: str, files: Sequence[Path]
) -> dict[str, Any]:
    """Provenance: the sources of the node log, and the settings used."""
    settings = reading.settings
    hours = {name.replace("_", " "): node_s / 3600 for name, node_s in result.busy_node_s.items() if node_s}
    causes = ", ".join(f"{name} {count:,.1f}" for name, count in hours.items())
    story: dict[str, Any] = {
        "tool": f"bftrainer {version('bftrainer')}",
        "command": command,
        "format": importer.name,
        "inputs": [{**file_source(path), "bytes": path.stat().st_size} for path in files],
        "window": [iso(result.window.start_ns), iso(result.window.end_ns)],
        "zone": reading.clock.zone,
        "inventory": settings.nodes or SEEN,
        "unseen": result.chosen.unseen_are,
        "min_gap_s": reading.min_gap_s,
        "min_hole_s": settings.min_hole_s,
        "offer_after_s": settings.offer_after_s,
        "away_node_s": float(result.swept.away_s.sum()),
        "notes": [*reading.notes, *([f"node-hours that were not idle when it was imported: {causes}."] * bool(causes))],
    }
    if importer.is_availability:
        story[FORM] = importer.name
    if reading.placement is not None:
        story["placement"] = reading.placement
    if result.block > 1:
        story["nodes_per_block"] = result.block
    if result.chosen.partitions:
        partitions = result.chosen.partitions.items()
        tellable = {name: [node for node in nodes if not BRACKETS.intersection(node)] for name, nodes in partitions}
        story["partitions"] = {name: fold_hostlist(nodes) for name, nodes in tellable.items() if nodes}
    return story
