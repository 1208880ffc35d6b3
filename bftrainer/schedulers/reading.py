"""What importers share: the state of an import while its log is read, their interface, and all of them by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, make_legible
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import LogRow, log_lines
from bftrainer.model import NodeLog
from bftrainer.nodelogs.hostlist import expand_hostlist
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, last_changes
from bftrainer.plugins import answering
from bftrainer.schedulers import IMPORTERS
from bftrainer.schedulers.busy_records import IDLE, OF_CLUSTER, BusyKind, BusyRows, Expand, as_texts, number_texts
from bftrainer.schedulers.clock import UNSET, Clock
from bftrainer.schedulers.import_settings import LOG_FORMATS, ImportSettings

CUT_OFF = "last line cut off"
_CLEAN_UP_S = 1.0
EXAMPLES = 10
_SURE = 10_000
_ROWS_AT_A_TIME = 1 << 14


@dataclass
class RowError(Exception):
    """A row gives no record, for a reason; if it should have given one, `detail` says what was expected and came."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A reason for which rows of a frame are not kept: those that `fails` marks.

    If they are unusable, `detail` says what was expected of a row, by its label, and what stands there.
    """

    reason: str
    fails: NDArray[np.bool_]
    detail: Callable[[Any], str] | None = None


def expecting(what: str, frame: pd.DataFrame, *columns: str) -> Callable[[Any], str]:
    """What was expected of a row, by its label, and what stands in its columns."""
    cells = [frame[name] for name in columns]
    return lambda at: f"Expected {what}, got {' and '.join(repr(one_line(str(texts[at])[:60])) for texts in cells)}"


def closest_columns(missing: str, names: Iterable[str]) -> str:
    """Ending of a message about a column that a header lacks: those of its columns that are closest."""
    lower = {name.lower(): name for name in names}
    near = get_close_matches(missing.lower(), lower, n=3, cutoff=0.0)
    return f" Closest: {one_line(', '.join(lower[name] for name in near))}."


@dataclass(slots=True)
class Tally:
    """Counts of records while a log is read."""

    max_bad: float
    path: Path = Path("row")  # of the rows that frames hold, and which of their lines was cut off
    last_line: int = -1
    records: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    bad: int = 0
    examples: list[str] = field(default_factory=list)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records that rightly give no interval."""
        if count:
            self.dropped[reason] += count

    def refuse(self, reason: str, row: LogRow, detail: str) -> None:
        """Count a record that should have given an interval, if there is a `detail`, but is unusable or was cut off."""
        if not detail:
            self.drop(reason)
            return
        self.dropped[CUT_OFF if row.is_cut_off else reason] += 1
        self.bad += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{row.place}: {one_line(detail)}")
        if self.bad > _SURE and self.bad > self.max_bad * self.records:
            self.check()  # so many tell that the file is another one, long before its end

    def sift(self, frame: pd.DataFrame, checks: Sequence[Check]) -> pd.DataFrame:
        """Rows of a frame that pass all checks; others are counted by the first one that they fail.

        Its column `row`, if there is one, holds the rows of the log, each a `LogRow`; else labels are their numbers.
        """
        fails = [np.asarray(check.fails, dtype=np.bool_) for check in checks]
        fate = np.select(fails, range(len(checks)), len(checks))
        for code, check in enumerate(checks):
            if check.detail is None:
                self.drop(check.reason, int((fate == code).sum()))
        is_refused = np.array([*(check.detail is not None for check in checks), False])
        for at in np.flatnonzero(is_refused[fate]).tolist():
            check, label = checks[fate[at]], frame.index[at]
            row = frame["row"][label] if "row" in frame else None
            row = row if isinstance(row, LogRow) else LogRow(self.path, label, [], label == self.last_line)
            self.refuse(check.reason, row, check.detail(label) if check.detail else "")
        passed = fate == len(checks)
        return frame if passed.all() else frame[passed]

    def check(self) -> None:
        """Raise if too many records are bad, or all."""
        is_over = self.bad > self.max_bad * self.records
        if is_over or self.bad == self.records > 0:
            first, limit = self.examples[0].removesuffix("."), f", more than --max-bad {100 * self.max_bad:g} %"
            raise LogError(f"{first} ({self.bad:,} of {self.records:,} records are unusable{limit * is_over}).")


@dataclass(slots=True)
class Reading:
    """The state of one import while its log is read.

    Importers hand over `rows`, records that name nodes, by `take`, or jobs that count them (`counted`: frames with
    a `count`), and number what they read in `tally`; `clock` is of the settings' zone, `notes` are assumptions made,
    `clusters` counts the rows of each cluster that the log names. If the log itself tells, they set `window_ns`, the
    names of all `nodes`, their number (`capacity`), or processors of each (`node_sizes`), which jobs then count, and
    `job_ids`, also of jobs that never ran, if the scheduler numbers them one by one. `placement` says how nodes were
    assigned if the log has no names.

    A log `is_exact` if it says when nodes were idle, so that no gap counts as clean-up between jobs. An availability
    trace has instants at which it tells no change (`unchanged_ns`), and `last_changes`: nodes that join (True) or leave
    in its last instant.
    """

    settings: ImportSettings
    clock: Clock = field(init=False)
    tally: Tally = field(init=False)
    rows: BusyRows = field(default_factory=BusyRows)
    clusters: Counter[str] = field(default_factory=Counter)
    counted: list[pd.DataFrame] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    window_ns: tuple[int, int] | None = None
    capacity: int | None = None
    node_sizes: NDArray[np.int64] | None = None
    nodes: tuple[str, ...] | None = None
    unchanged_ns: NDArray[np.int64] | None = None
    last_changes: Mapping[str, bool] = field(default_factory=dict)
    is_exact: bool = False
    placement: str | None = None
    job_ids: list[NDArray[np.int64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock, self.tally = Clock(self.settings.zone), Tally(self.settings.max_bad)

    def lines(self, paths: Iterable[Path]) -> Iterator[LogRow]:
        """Lines of files that are not blank, each as a row of one cell."""
        return (row for path in paths for row in log_lines(path) if row.fields[0].strip())

    def parse(self, rows: Iterable[LogRow], read: Callable[[LogRow], Any], expected: str = "") -> Iterator[Any]:
        """What `read` makes of each row; those of which it raises a `RowError` are counted, or refused.

        An `IndexError` or `ValueError` refuses a line of text that is none of the format, of which this is `expected`.
        """
        for row in rows:
            self.tally.records += 1
            try:
                record = read(row)
            except RowError as fault:
                self.tally.refuse(fault.reason, row, fault.detail)
            except (IndexError, ValueError):
                if not expected:
                    raise
                self.tally.refuse("malformed line", row, f"Expected {expected}, got {one_line(row.fields[0][:60])!r}")
            else:
                yield record

    def frames(
        self, rows: Iterable[LogRow], read: Callable[..., Sequence[Any]], columns: Mapping[str, str], expected: str = ""
    ) -> Iterator[pd.DataFrame]:
        """Frames of cells that `read` makes of rows, with the types of their `columns`; the first one is empty."""
        records = self.parse(rows, read, expected)
        for some in chain([[]], iter(lambda: list(islice(records, _ROWS_AT_A_TIME)), [])):
            # Not from_records: its columns of objects would keep all cells of the rows.
            cells = zip(columns.items(), zip(*some, strict=True) if some else repeat(()), strict=False)
            yield pd.DataFrame({name: pd.Series(values, dtype=kind) for (name, kind), values in cells})

    def is_wanted(self, cluster: str) -> bool:
        """Whether rows of a cluster, which may have no name, are asked for."""
        self.clusters[cluster] += 0
        return self.settings.cluster in (None, cluster)

    def take(self, frame: pd.DataFrame, expand: Expand = expand_hostlist) -> None:
        """Take rows of busy nodes that last, and count why others are not.

        Columns are `start_ns` (or `UNSET`), `end_ns` (`OPEN_END_NS` for a job that has not ended) and `nodes`, a
        hostlist unless `expand` reads it; perhaps `row`, that of the log (`LogRow`), `job`, equal for rows of one job,
        `kind`, `partition`, `cluster`, `submit_ns`, and others of `BusyRecords`; `count`, the number of nodes that a
        row states, or below 0. Without `nodes` the rows only count theirs.
        """
        needed = ["start_ns", "end_ns", "count" if "count" in frame and "nodes" not in frame else "nodes"]
        if missing := [name for name in needed if name not in frame]:
            raise LogError(f"Expected a frame of busy nodes with a column {missing[0]}, got {', '.join(frame)}.")
        list(map(BusyKind, frame["kind"].unique() if "kind" in frame else ()))
        frame = frame if frame.index.is_unique else frame.reset_index(drop=True)
        start, end, is_empty = frame["start_ns"], frame["end_ns"], frame[needed].isna().any(axis=1)
        is_odd = (start < OPEN_START_NS) | ~end.between(OPEN_START_NS, OPEN_END_NS)
        checks = (
            Check("no times or nodes", is_empty, lambda _: "Expected start, end and nodes, got nothing."),
            Check("never started", start == UNSET),
            Check("impossible time", is_odd, lambda _: "Expected times of start and end, got none that can be read."),
            Check("end before start", end < start),
            Check("zero length", end == start),
        )
        frame = self.tally.sift(frame, checks)
        if self.clock.has_skipped:
            self.note(f"the log has times that clocks in {self.clock.zone} never showed: is it the right zone?")
        frame = frame.assign(is_open=frame.get("is_open", frame["end_ns"] >= OPEN_END_NS))
        if "job" in frame and not pd.api.types.is_integer_dtype(frame["job"].dtype):
            jobs = np.asarray(as_texts(frame["job"].array), dtype=object)
            frame["job"] = pd.util.hash_array(jobs, categorize=False).view(np.int64)
        for cluster, some in frame.groupby("cluster", sort=False) if "cluster" in frame else (("", frame),):
            if "nodes" in frame:
                some = self._number_nodes(some, expand, f"{cluster}{OF_CLUSTER}" if cluster else "")
                self.rows.extend(some)
            else:
                self.counted.append(some.drop(columns="row", errors="ignore"))
            self.clusters[str(cluster)] += len(some)

    def _number_nodes(self, frame: pd.DataFrame, expand: Expand, lead: str) -> pd.DataFrame:
        """Rows of one cluster with numbers for lists of nodes, partitions and jobs."""
        texts = as_texts(frame["nodes"].array).set_axis(frame.index)
        nodes, faults = self.rows.number_lists(texts, expand, lead)
        unreadable = Check("unreadable node list", nodes < 0, lambda label: faults[texts[label]])
        frame = self.tally.sift(frame.assign(nodes=nodes), [unreadable])
        if "count" in frame:  # a list that is shorter or longer than the row says is not trusted
            is_whole = (frame["count"] < 0) | (frame["count"] == self.rows.list_sizes()[frame["nodes"]])
            frame = frame.assign(kind=np.where(is_whole, frame.get("kind", BusyKind.JOB), BusyKind.UNKNOWN))
        if "partition" in frame:
            number = partial(self.rows.partition, lead=lead)
            frame["partition"] = number_texts(as_texts(frame["partition"].array), number)
        return frame

    def take_presence(self, log: NodeLog, names: Sequence[str], records: int) -> None:
        """Take an availability trace in place of records: a node is away while the trace does not list it.

        Before it no node is available; after it each stays as it is. `names` are those of the log's nodes, in order,
        then of nodes that were never available.
        """
        self.tally.records += records
        kinds = np.where(log.idle, IDLE, BusyKind.AWAY).tolist()
        changes = zip([names[node] for node in log.node.tolist()], log.time_ns.tolist(), kinds, strict=True)
        self.rows.follow([*((name, OPEN_START_NS, BusyKind.AWAY) for name in names), *changes])
        self.window_ns, self.unchanged_ns, self.is_exact = (log.start_ns, log.end_ns), log.unchanged_ns, True
        self.last_changes = {names[node]: is_there for node, is_there in last_changes(log).items()}

    def note(self, text: str) -> None:
        """Add an assumption to the notes, unless it is there already."""
        text = make_legible(text)
        if text not in self.notes:
            self.notes.append(text)

    def note_cut_off(self, path: Path) -> None:
        """Note that a file's last line is used although it lacks its end."""
        self.note(f"{path}: the last line has no line end: if it was cut off, what stands last in it is wrong.")

    @property
    def min_gap_s(self) -> float:
        """Length, in seconds, below which a gap between two busy intervals is clean-up."""
        gap_s = self.settings.min_gap_s
        return (0.0 if self.is_exact else _CLEAN_UP_S) if gap_s is None else gap_s

    def origin_ns(self) -> int:
        """The instant that a log's relative times count from: the window's start, else 1970."""
        if self.settings.start is not None:
            return self.clock.instant_ns(self.settings.start)
        self.note("the log's times are relative, and no --start tells to what: they count from 1970-01-01.")
        return 0


@runtime_checkable
class Importer(Protocol):
    """Reads one format, which `name` names, and a `sign` tells that logs begin with, in a regular expression.

    `tells_changes` if such logs tell of starts and ends alone, not of jobs that ran all the time; `is_availability` if
    they list available nodes, which count as idle.
    """

    name: ClassVar[str]
    sign: ClassVar[str] = r"(?!)"
    tells_changes: ClassVar[bool] = False
    is_availability: ClassVar[bool] = False

    def recognises(self, lines: Sequence[str]) -> bool:
        """Whether a log that begins with these lines is of this format."""
        return re.search(self.sign, "\n".join(lines)) is not None

    def read(self, paths: Sequence[Path], reading: Reading) -> pd.DataFrame | None:
        """Read the files, in order: the busy nodes, as `Reading.take` takes them, unless they went to `reading`.

        Raises
        ------
        LogError
            If they are not of this format, or too much of them is unusable.
        SettingsError
            If a setting is missing.
        """


# In the order in which they are tried on a log.
_HOMES = {
    "watch": "node_states",
    "alcf": "tables",
    "slurm": "slurm",
    "swf": "tables",
    **dict.fromkeys(("pbs", "lsf"), "accounting"),
    **dict.fromkeys(("flux", "spot", "counts"), "node_states"),
    "table": "tables",
}

_TABLE = "make a table of it (docs/import-formats.md), for `import --format table`"


def get_importer(name: str) -> Importer:
    """The importer of a format, or of another package."""
    if name in _HOMES:
        make = getattr(import_module(f"bftrainer.schedulers.formats.{_HOMES[name]}"), f"{name.title()}Importer")
    else:
        make = IMPORTERS.get(name, more_names=_HOMES)
    with answering(f"importer {name}", SettingsError):
        importer = make()
    if not isinstance(importer, Importer):
        raise SettingsError(f"importer {name}: Expected a subclass of Importer, got {type(importer).__name__}.")
    return importer


def recognise(lines: Sequence[str], path: str) -> Importer:
    """The importer of a log that begins with these lines; those of other packages are asked first."""
    for name in (*IMPORTERS.names(), *_HOMES):
        with answering(f"importer {name}", LogError):
            if (importer := get_importer(name)).recognises(lines):
                return importer
    shown = next((line for line in lines if line.strip()), "")[:80]
    if re.match(r"\d\d/\d\d/\d{4} [\d:]{8};", shown):  # as PBS's, which would have been recognised
        raise LogError(f"{path}: Cobalt's accounting log is no table, and takes a plug-in (docs/import-formats.md).")
    hint = "a table with a header takes --format table --map start=COLUMN,end=COLUMN,nodes=COLUMN"
    raise LogError(
        f"{path}: Expected a log of a format that is known ({', '.join(LOG_FORMATS)}), got one that begins with "
        f"{shown!r}: {hint if ',' in shown else _TABLE}."
    )
