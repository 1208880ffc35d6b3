"""Import a scheduler's log: read it, sweep busy spans into idle ones, and report the data quality."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
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
from bftrainer.nodelogs.node_spans import NodeSpans, Window, log_of_idle, nanoseconds
from bftrainer.plugins import answering
from bftrainer.schedulers import busy_records
from bftrainer.schedulers.busy_records import BusyKind, BusyRecords, Swept
from bftrainer.schedulers.coverage import (
    ADVICE,
    Coverage,
    find_empty_days,
    find_lost_days,
    judge_coverage,
    list_dates,
    missing_ids,
)
from bftrainer.schedulers.formats.tables import read_downtimes
from bftrainer.schedulers.import_settings import SEEN, ImportSettings, flag_of
from bftrainer.schedulers.reading import EXAMPLES, Importer, Reading, get_importer, recognise
from bftrainer.schedulers.selected_nodes import NodeChoice, choose_nodes, count_nodes, find_lives, places

_OF_NAMED = ("downtimes", "reservations", "partitions", "exclude_nodes")
"""Settings that need the names of nodes."""
AUTO = "auto"
"""In place of a format's name: recognise the format from the first file."""
_MOST_UNTRUSTED = 0.01
"""Largest share of an asked window that may lie outside what can be trusted."""
_MOST_IDS_MISSING = 0.02
"""Share of job ids that may be missing, as some are always."""
_UPPER_BOUND = "nothing tells when nodes were down: idle time is an upper bound."
_COUNTS_ARE_EXACT = "Idle counts are exact, which {unit}s are idle and for how long at a stretch is not."
_FIRST_FIT = "first fit on the lowest-numbered idle nodes: the log has no node names. "
_ON_UNITS = "the lowest-numbered free {unit}s of each node, kept as long as a job runs: the log only counts them. "


class DataQuality(SimpleNamespace):
    """Quality of an imported log: the figures that docs/import.md describes, "The account", as attributes."""


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """Result of an import: the node log, and the account of the log's records."""

    log: NodeLog
    quality: DataQuality


def quality_path(path: Path) -> Path:
    """Path of a node log's data quality: `idle.quality.json` for `idle.parquet` and `idle.csv.gz`."""
    return path.parent / f"{path.name.removesuffix('.gz').rpartition('.')[0]}.quality.json"


def write_quality_json(path: Path, quality: DataQuality) -> None:
    """Write the data quality as JSON."""
    with replacing(path) as stream:
        stream.write((json.dumps(vars(quality), indent=1) + "\n").encode())


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
    swept_log = _SweptLog(importer, reading)
    if not any(map(len, reading.counted)):
        swept_log.sweep_names()
    elif len(clusters) > 1 and settings.cluster is None:
        raise SettingsError(f"Missing --cluster: the log counts nodes of {len(clusters):,}: {', '.join(clusters)}.")
    else:
        swept_log.sweep_counts(pd.concat(reading.counted))
    trust = swept_log.account_coverage()
    beside = (*log_paths((*settings.downtimes, *settings.reservations)), *inventory_paths(settings.nodes))
    return Imported(swept_log.node_log(trust, command, (*files, *beside)), swept_log.account(trust))


@dataclass(slots=True, eq=False)
class _SweptLog:
    """A log that was read, and what is made of it: window, nodes and line sweep; of its jobs some are `outside`."""

    importer: Importer
    reading: Reading
    window: Window = field(init=False)
    chosen: NodeChoice = field(init=False)
    swept: Swept = field(init=False)
    jobs: pd.DataFrame = field(init=False)
    coverage: Coverage | None = None
    outside: int = 0
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

    def sweep(self, blocks: Iterable[Mapping[BusyKind, NodeSpans]], nodes: int, lives: NodeSpans | None = None) -> None:
        """Find idle spans, with the settings' shortest gaps and holes."""
        settings = self.reading.settings
        lengths_s = self.reading.min_gap_s, settings.min_hole_s, settings.offer_after_s
        gap_ns, hole_ns, after_ns = map(nanoseconds, lengths_s)
        self.swept = busy_records.line_sweep(blocks, nodes, self.window, gap_ns, hole_ns, after_ns, lives)

    def is_near(self, rows: pd.DataFrame) -> NDArray[np.bool_]:
        """Which records are in the window, or so near that they decide whether a gap at its ends is clean-up."""
        gap_ns = nanoseconds(self.reading.min_gap_s)
        start_ns, end_ns = self.window.start_ns - gap_ns, self.window.end_ns + gap_ns
        return np.asarray((rows["end_ns"] >= start_ns) & (rows["start_ns"] <= end_ns))

    def sweep_names(self) -> None:
        """Sweep records that name nodes."""
        reading, settings, own = self.reading, self.reading.settings, len(self.reading.rows)
        if not own and reading.nodes is None:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in reading.tally.dropped.most_common())
            shown = f"{reading.tally.records:,} records ({reasons})" if reasons else "no record at all"
            raise LogError(f"No records of busy nodes in the log: {shown}.")
        every = self.read_downtimes()
        is_own = np.arange(len(every)) < own
        is_job = is_own & np.isin(every["kind"], (BusyKind.JOB, BusyKind.UNKNOWN))
        is_lost = busy_records.find_retold(every.rows, every.runs(), is_job, reading.tally.drop)
        is_job &= ~is_lost
        ends = busy_records.find_runaway_ends(every, is_job)
        is_runaway = (ends < every["end_ns"]) & (every["is_open"] > 0)
        every = replace(every, rows=every.rows.assign(end_ns=np.minimum(every["end_ns"], ends)))
        jobs = every.where(is_job & ~is_runaway)
        extent_ns = busy_records.extent_ns(every.rows[is_own])
        self.find_window(jobs.rows.assign(count=jobs.sizes()), every.rows[is_job], extent_ns)
        if rare := jobs.rare_nodes():
            shown = shorten_names(rare)
            reading.note(f"{len(rare):,} nodes are in under 0.1 % of the records: {shown}. Are they this machine's?")
        records = every.where(~is_lost & self.is_near(every.rows))
        if not reading.is_exact and not np.isin(records["kind"], busy_records.OUT_OF_SERVICE).any():
            reading.note(_UPPER_BOUND)
        # Jobs outside the window still show which nodes belong to a partition.
        self.chosen = choose_nodes(every, reading, is_availability=self.importer.is_availability)
        place = places(every.names, self.chosen.names)
        records = records.where(~np.isin(records["kind"], [busy_records.OFFERABLE[name] for name in settings.offer]))
        lives, reason = self.chosen.lives, "nodes count only while --nodes says that they were there"
        if lives is None and not self.importer.is_availability and not reading.is_exact:
            # Downtimes alone do not tell when a node was there.
            placed = np.where(np.arange(place.size) < every.seen, place, -1)
            lives, reason = find_lives(every, placed, self.chosen.names, self.window, self.coverage)
        lives = None if lives is None else lives.within(self.window.start_ns, self.window.end_ns)
        self.sweep(records.unions(place), len(self.chosen.names), lives)
        self.job_node_s = records.job_node_s(self.window, place)
        self.unknown = int((records["kind"] == BusyKind.UNKNOWN).sum())
        if (away_s := self.swept.away_s.sum()) > 0:
            reading.note(f"{reason}. {away_s / 3600:,.1f} node-hours are left out.")
        self.runaways = int(is_runaway.sum())
        if self.runaways:
            busy_s = max(self.swept.busy_node_s.get("job", 0.0), 1.0)
            self.runaway_share = every.where(is_runaway).job_node_s(self.window, place) / busy_s
            reading.note(
                f"{self.runaways:,} runs are runaways: they have no end, and their nodes ran other jobs since. They "
                f"count until the first of these starts, {100 * self.runaway_share:.3g} % of the busy node-time."
            )
        if settings.unit != "node":
            self.whole_idle_share = self.swept.idle_share(self.window)
            self.sweep_units(records, place, lives)
        if settings.offer:
            reading.note(f"nodes are offered in spite of this: {', '.join(settings.offer)}.")

    def read_downtimes(self) -> BusyRecords:
        """Records of the log, then downtimes and reservations; with several clusters, names begin with theirs."""
        reading, rows = self.reading, self.reading.rows
        seen, clusters = len(rows.names), [name for name, count in reading.clusters.items() if name and count]
        beside = {BusyKind.DOWN: reading.settings.downtimes, BusyKind.RESERVED: reading.settings.reservations}
        for kind, paths in beside.items():
            for path in log_paths(paths):
                read_downtimes(path, reading, rows, kind)
        if len(clusters) > 1:
            shown = ", ".join(clusters)
            reading.note(f"the log is of {len(clusters):,} clusters ({shown}): nodes are named after them.")
        return rows.records(by_cluster=len(clusters) > 1, seen=seen)

    def sweep_units(self, records: BusyRecords, place: NDArray[np.int32], lives: NodeSpans | None) -> None:
        """Sweep GPUs or cores in place of nodes."""
        unit, chosen, note = self.reading.settings.unit, self.chosen, self.reading.note
        if not (records["units"] != busy_records.ALL_UNITS).any():
            raise SettingsError(
                f"--unit {unit}: the log does not say how many {unit}s jobs held (AllocTRES, exec_vnode)."
            )
        names_of = {name: tuple(f"{name}/{unit}{at}" for at in range(chosen.units[name])) for name in chosen.names}
        names = tuple(itertools.chain.from_iterable(names_of.values()))
        if not names:
            raise LogError(f"--unit {unit}: Expected nodes with {unit}s, got {shorten_names(chosen.names)} without.")
        sizes = list(map(len, names_of.values()))
        by_kind, crowded = busy_records.place_on_units(records, place, sizes)
        if crowded:
            note(f"{crowded:,} times a job held more {unit}s of a node than were free there.")
        self.reading.placement = (_ON_UNITS + _COUNTS_ARE_EXACT).format(unit=unit)
        note(f"the log counts {unit}s: how many are idle is exact, which and for how long at a stretch is not.")
        self.job_node_s = by_kind.get(BusyKind.JOB, NodeSpans.none()).node_s_within(self.window)
        self.sweep([by_kind], len(names), None if lives is None else lives.repeat_on_parts(sizes))
        partitions, types = (
            {group: tuple(one for name in some for one in names_of[name]) for group, some in groups.items()}
            for groups in (chosen.partitions, chosen.types)
        )
        self.chosen = replace(chosen, names=names, partitions=partitions, types=types)

    def sweep_counts(self, demand: pd.DataFrame) -> None:
        """Sweep jobs that only count their nodes."""
        reading, settings, sizes = self.reading, self.reading.settings, self.reading.node_sizes
        if ineffective := [flag_of(name) for name in _OF_NAMED if getattr(settings, name)]:
            raise SettingsError(f"{' and '.join(ineffective)} cannot be used: the log names no nodes.")
        is_job = np.ones(len(demand), dtype=np.bool_)
        demand = demand[~busy_records.find_retold(demand, demand["job"].to_numpy(), is_job, reading.tally.drop)]
        self.find_window(demand, demand, busy_records.extent_ns(demand))
        self.chosen = count_nodes(settings.nodes, reading.capacity)
        nodes = len(self.chosen.names)
        if sizes is not None and sizes.size != nodes:
            raise SettingsError(f"Expected --nodes with {sizes.size:,} nodes, as --procs-per-node says, got {nodes:,}.")
        self.jobs = demand = demand[self.is_near(demand)]
        share = busy_records.over_capacity_share(demand, nodes if sizes is None else int(sizes.sum()), self.window)
        if share > settings.max_overcommit:
            raise LogError(
                f"Expected jobs on at most {nodes:,} nodes at a time, got more for {100 * share:.3g} % of the window, "
                f"above --max-overcommit {100 * settings.max_overcommit:g} %: does the machine have more nodes?"
            )
        self.over_capacity_share = share
        reading.placement = placement = _FIRST_FIT + _COUNTS_ARE_EXACT.format(unit="node")
        exact = "jobs fill whole nodes, of several sizes, in order"
        if sizes is None:
            has_names = settings.nodes not in (None, SEEN) and not str(settings.nodes).isdecimal()
            self.block = busy_records.choose_block(demand, 1 if has_names else nodes, self.window)
            odd = int((demand["count"] % self.block > 0).sum())
            exact = "idle counts are exact" + f" but for {odd:,} jobs that get whole blocks" * (odd > 0)
        if self.block > 1:
            reading.placement = f"in blocks of {self.block:,} nodes, {placement}"
            reading.note(f"a node here is a block, of {self.block:,} of the machine's {nodes:,} nodes.")
            nodes //= self.block
            self.chosen = count_nodes(None, nodes)
        reading.note(f"the log names no nodes: {exact}, lengths of idle fragments are not.")
        reading.note(_UPPER_BOUND)
        blocks = demand.assign(count=-(-demand["count"] // self.block))
        jobs = busy_records.place_jobs(blocks, nodes if sizes is None else sizes)
        some_at_a_time = jobs.split_blocks(nodes, busy_records.SPANS_AT_A_TIME)
        self.sweep(({BusyKind.JOB: some.union()} for some in some_at_a_time), nodes)
        self.job_node_s = jobs.node_s_within(self.window)

    def find_window(self, jobs: pd.DataFrame, every: pd.DataFrame, extent_ns: tuple[int, int] | None) -> None:
        """What of a log can be trusted, if it does not tell all, and the window: of the settings, else that, else all.

        `jobs` have a `count` of nodes, and are `every` job but for runaways; the log gives times within its extent.
        """
        reading, settings, clock, shown = self.reading, self.reading.settings, self.reading.clock, ""
        covered, self.jobs = reading.window_ns or extent_ns, jobs
        if runs := int((jobs["is_open"] > 0).sum()):
            text = "their nodes are busy to the end of the window, or of the time limit if it is earlier"
            reading.note(f"{runs:,} runs have no end in the log: {text}.")
        if not (jobs.empty or self.importer.is_availability or reading.is_exact):
            columns = (jobs[name].to_numpy() for name in ("start_ns", "end_ns", "count", "submit_ns"))
            self.coverage = judge_coverage(*columns, tells_changes=self.importer.tells_changes)
        if extent_ns is not None:
            earliest, latest = (local_iso(at, clock.zone) for at in extent_ns)
            shown = f" Its records name times from {earliest} to {latest}."
        is_open = settings.start is None or settings.end is None
        if is_open and self.coverage is not None and settings.window == "trusted":
            if (trusted := self.coverage.trusted) is None:
                reason = f"Nothing of the log can be trusted: {self.coverage.reason}. {ADVICE}"
                raise LogError(f"{reason}; --window asked takes it all the same.{shown}")
            low, high = covered or (trusted.start_ns, trusted.end_ns)
            covered = max(low, trusted.start_ns), min(high, trusted.end_ns)
        elif is_open and covered is None:
            raise SettingsError("Missing --start and --end: the log does not say what time it covers.")
        start, end = (
            at if text is None else clock.instant_ns(text)
            for text, at in zip((settings.start, settings.end), covered or (0, 0), strict=True)
        )
        self.window = Window(start, end)
        self.outside = int(((every["end_ns"] <= start) | (every["start_ns"] >= end)).sum())
        if extent_ns is not None and covered is not None:
            first, last = (pick(*extent_ns, *covered) for pick in (min, max))
            # A window that only touches the log is within it if the log is a single instant, else outside.
            touched = int(first < last)
            if end - touched < first or start + touched > last:
                begin, until = (local_iso(at, clock.zone) for at in (start, end))
                raise LogError(f"Expected a window within the log, got {begin} to {until}.{shown}")

    def account_coverage(self) -> dict[str, Any] | None:
        """What can be trusted of the log and of the window, with notes."""
        coverage, window, note = self.coverage, self.window, self.reading.note
        if coverage is None:
            return None
        times_ns = self.jobs["start_ns"].to_numpy(), self.jobs["end_ns"].to_numpy()
        ids = self.reading.job_ids if len(list(filter(None, self.reading.clusters))) <= 1 else []
        good, idle, trusted_ns, trusted_idle_s, span = coverage.trusted, self.swept.idle, 0, 0.0, None
        verdict = f"Nothing of the log can be trusted: {coverage.reason}"
        if good is not None:
            trusted_ns = max(min(window.end_ns, good.end_ns) - max(window.start_ns, good.start_ns), 0)
            trusted_idle_s, span = idle.node_s_within(good), [iso(good.start_ns), iso(good.end_ns)]
            verdict = f"Of the log, {' to '.join(span)} can be trusted"
        empty_days, lost_days = find_empty_days(times_ns, window), find_lost_days(*times_ns, window)
        days, lost = empty_days.node_s / 86_400, lost_days.node_s / 86_400
        dates = list_dates(lost_days if lost else empty_days)
        gone, missing = missing_ids(np.concatenate([np.zeros(0, np.int64), *ids])), coverage.missing_share(window)
        doubtful_s = (window.length_ns - trusted_ns) / NS_PER_S
        doubtful_idle_s = (idle.node_s - trusted_idle_s) * self.block
        account = {
            "trusted": span,
            "reason": coverage.reason or None,
            "selected_by": list(coverage.edges),
            "tail_s": coverage.tail_s,
            "jobs": coverage.jobs,
            "effective_jobs": coverage.effective_jobs,
            "untrusted_s": doubtful_s,
            "untrusted_idle_node_s": doubtful_idle_s,
            "missing_busy_share": missing,
            "empty_days": days,
            "lost_days": lost,
            "lacking_dates": dates,
            "missing_ids_share": gone,
            "runaways": self.runaways,
            "runaway_share": self.runaway_share,
        }
        which = shorten_names(dates)
        if lost:
            note(f"in {lost:.3g} days of the window jobs began and none ended: records of them are missing ({which}).")
        elif days:
            note(f"for {days:,.1f} days of the window no job starts, or none ends ({which}): is a file missing?")
        if gone > _MOST_IDS_MISSING:
            note(f"{100 * gone:.2g} % of the job ids are in no row: records are missing, whose nodes look idle.")
        share = "an unknown share" if missing is None else f"about {100 * missing:.1f} %"
        share += " of the window's busy node-time is missing"
        if days:
            share += f", besides what {days:,.1f} days lack in which no job starts or none ends"
        text = f"{verdict}; {share}"
        if doubtful_s:
            hours, idle_h = window.length_ns / NS_PER_S / 3600, doubtful_idle_s / 3600
            doubtful = f"{doubtful_s / 3600:,.1f} h of the window of {hours:,.1f} h cannot be trusted"
            text = f"{doubtful}: {idle_h:,.1f} idle node-hours lie there, and {share}. {verdict}"
        too_much = doubtful_s > _MOST_UNTRUSTED * window.length_ns / NS_PER_S
        if too_much and self.reading.settings.window == "trusted":
            raise LogError(f"{text}. {ADVICE}; --window asked takes the window as it is.")
        note(f"{text}.")
        return account

    def node_log(self, trust: Mapping[str, Any] | None, command: str, files: Sequence[Path]) -> NodeLog:
        """The node log, with its provenance: the sources, the settings used, and what can be trusted."""
        reading, settings, chosen, window = self.reading, self.reading.settings, self.chosen, self.window
        hours = {name.replace("_", " "): node_s / 3600 for name, node_s in self.busy_node_s.items() if node_s}
        causes = ", ".join(f"{name} {count:,.1f}" for name, count in hours.items())
        caused = [f"node-hours that were not idle when it was imported: {causes}."] if causes else []
        story: dict[str, Any] = {
            "tool": f"bftrainer {version('bftrainer')}",
            "command": command,
            "format": self.importer.name,
            "inputs": [{**file_source(path), "bytes": path.stat().st_size} for path in files],
            "window": [iso(window.start_ns), iso(window.end_ns)],
            "zone": reading.clock.zone,
            "inventory": settings.nodes or SEEN,
            "unseen": chosen.unseen_are,
            "min_gap_s": reading.min_gap_s,
            "min_hole_s": settings.min_hole_s,
            "offer_after_s": settings.offer_after_s,
            "away_node_s": float(self.swept.away_s.sum()),
            "notes": [*reading.notes, *caused],
        }
        partitions = {
            name: fold_hostlist(named)
            for name, some in chosen.partitions.items()
            if (named := [node for node in some if not BRACKETS.intersection(node)])
        }
        more = {
            FORM: self.importer.name if self.importer.is_availability else None,
            "placement": reading.placement,
            "nodes_per_block": self.block if self.block > 1 else None,
            "partitions": partitions or None,
            "coverage": trust or None,
        }
        story |= {key: value for key, value in more.items() if value is not None}
        last: dict[int, bool] = {}
        if reading.window_ns is not None and window.end_ns == reading.window_ns[1] and not settings.min_hole_s:
            # What joins in the window's last instant is not offered any more if that takes time.
            is_late, changes = settings.offer_after_s > 0, reading.last_changes
            at = {name: node for node, name in enumerate(chosen.names) if name in changes}
            last = {node: changes[name] for name, node in at.items() if not (changes[name] and is_late)}
        return log_of_idle(chosen.names, window, self.swept.idle, story, reading.unchanged_ns, last)

    def account(self, trust: Mapping[str, Any] | None) -> DataQuality:
        """The account of an import; `trust` says what of it can be trusted."""
        tally, chosen, swept, window = self.reading.tally, self.chosen, self.swept, self.window
        jobs_s = swept.busy_node_s.get("job", 0.0)
        return DataQuality(
            format=self.importer.name,
            records=tally.records,
            kept=tally.records - tally.dropped.total(),
            outside_window=self.outside,
            dropped=dict(tally.dropped.most_common()),
            bad=tally.bad,
            bad_examples=tuple(tally.examples),
            duplicates=tally.dropped[busy_records.DUPLICATE],
            unknown=self.unknown,
            nodes_per_block=self.block,
            nodes=len(chosen.names),
            nodes_seen=chosen.seen,
            nodes_unseen=chosen.unseen,
            unseen=chosen.unseen_are,
            nodes_outside=len(chosen.outside),
            outside_examples=chosen.outside[:EXAMPLES],
            window_start=iso(window.start_ns),
            window_end=iso(window.end_ns),
            window_s=window.length_ns / NS_PER_S,
            zone=self.reading.clock.zone,
            coverage=trust,
            busy_node_s=self.busy_node_s,
            idle_node_s=swept.idle.node_s * self.block,
            idle_share=swept.idle_share(window),
            away_node_s=float(swept.away_s.sum()),
            by=self.measure_groups(self.reading.settings.by),
            unit=self.reading.settings.unit,
            whole_idle_share=self.whole_idle_share,
            overlap_factor=self.job_node_s / jobs_s if jobs_s else None,
            over_capacity_share=self.over_capacity_share,
            notes=tuple(self.reading.notes),
        )

    def measure_groups(self, by: str | None) -> dict[str, dict[str, float | None]]:
        """Number, idle share and idle intervals of the nodes of each partition, or of each type, in the window."""
        groups = {"partition": self.chosen.partitions, "node-type": self.chosen.types}.get(by or "", {})
        if by and not groups:
            raise SettingsError(f"--by {by}: neither the log nor --nodes tells the {by} of nodes.")
        figures: dict[str, dict[str, float | None]] = {}
        for group, members in groups.items():
            is_member = places(self.chosen.names, members) >= 0
            spans = self.swept.idle.where(is_member[self.swept.idle.node])
            some = replace(self.swept, idle=spans, away_s=self.swept.away_s[is_member])
            lengths_s = (spans.end_ns - spans.start_ns) / NS_PER_S
            figures[group] = {
                "nodes": len(set(members)),
                "idle_share": some.idle_share(self.window),
                "idle_node_s": spans.node_s,
                "holes": len(spans),
                "hole_mean_s": float(lengths_s.mean()) if len(spans) else None,
                "hole_median_s": float(np.median(lengths_s)) if len(spans) else None,
            }
        return figures
