"""What the importer of sacct computes by columns is what one reads row by row."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import HostlistError
from bftrainer.nodelogs.hostlist import expanded, known_part
from bftrainer.schedulers import node_lists
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import read_stamps
from bftrainer.schedulers.formats.slurm import SlurmImporter
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.node_lists import NodeLists
from bftrainer.schedulers.reading import Reading
from tests.importing import OPEN_END, records_of, which_repeated

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
HEADER = "JobIDRaw|JobID|State|Start|End|Elapsed|Suspended|NNodes|Partition|NodeList|JobName"
# Days on which clocks change, and one on which they do not.
DAYS = ("2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2026-04-05", "2026-10-04", "2026-07-01")
ODD_TIMES = (
    "Unknown",
    "",
    "None",
    "1774750000",
    "soon",
    "2026-02-30T00:00:00",
    "2026-03-29T24:00:00",
    "1960-01-01T00:00:00",
    "²",
)
LISTS = (
    *(
        "n[1-3]",
        "n[01-03]",
        "n[08-12]",
        "n[8-12]",
        "n[9,10]",
        "n[1,3-5,9]",
        "n[1-3,2-4]",
        "n[3,1]",
        "n[01,2]",
        "n[0]",
        "m[00-2]",
    ),
    *(
        "n1",
        "n2,m1",
        "n1,n1",
        "n[1-2],m[1-3]",
        "r[1-2]c[1,3]",
        "n[1-2]-ib",
        "login",
        "[1-3]",
        "n1[0-1]",
        "ñ[1-2]",
        " n[1-2]",
    ),
    *("n[1-2", "n[1-3,7-1", "a1,a2,a+", "n[01-02]+", "+", "n[", "n[1-2],m[3"),
    *(
        "n1]",
        "n[3-1]",
        "n[a]",
        "n[1,,2]",
        "n[1-999999999]",
        "n[1-2][3",
        "n,",
        "a b[1-2]",
        "n[-1]",
        "n[1-]",
        "n[1-2-3]",
        "n,[1]",
    ),
    *("n[1234567]", "", "None assigned", "(null)"),
)


def times():
    """Local times around changes of clocks, and what stands where there is none."""
    clock = st.tuples(st.sampled_from(DAYS), st.integers(0, 23), st.sampled_from((0, 30, 59)), st.sampled_from("T "))
    usual = clock.map(lambda parts: f"{parts[0]}{parts[3]}{parts[1]:02}:{parts[2]:02}:00")
    return st.one_of(usual, usual, usual, st.sampled_from(ODD_TIMES))


@st.composite
def lines(draw):
    """A row, in some way odd or not."""
    job = draw(st.integers(1, 9).map(str)) + draw(st.sampled_from(("", "", "", "_3", "+1", ".batch", "_3.0", ".")))
    fields = (
        *(job.partition("_")[0], job, draw(st.sampled_from(("COMPLETED", "RUNNING", "SUSPENDED", "CANCELLED by 5")))),
        *(draw(times()), draw(times()), draw(st.sampled_from(("01:00:00", "1-00:30:00", "02:30:00", "", "x")))),
        *(
            draw(st.sampled_from(("00:00:00", "00:00:00", "01:00:00"))),
            draw(st.sampled_from(("", "1", "2", "3", "5", "x"))),
        ),
        *(
            draw(st.sampled_from(("", "a", "ü"))),
            draw(st.sampled_from(LISTS)),
            draw(st.sampled_from(("a", "b|c", "", "|"))),
        ),
    )
    return draw(st.sampled_from(("|".join(fields),) * 9 + ("", "1|2", HEADER)))


@dataclass
class ByRows:
    """Reads rows one by one, in the words of the format."""

    zone: str
    suspended: str
    records: int = 0
    dropped: Counter = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    rows: list[tuple] = field(default_factory=list)

    def read(self, texts: list[str]) -> None:
        """Take in the lines of a file below its header."""
        columns = HEADER.split("|")
        lines = [(at, line) for at, line in enumerate(texts, 2) if line]
        for is_header, some in groupby(lines, lambda line: line[1] == HEADER):
            split = [] if is_header else [(at, line.split("|", len(columns) - 1)) for at, line in some]
            self.records += len(split)
            for at, row in split:
                if len(row) < len(columns):
                    self.lose("wrong number of columns", at, f"Expected {len(columns)} columns, got {len(row)}")
            for at, row in split:
                if len(row) == len(columns):
                    self.take(at, dict(zip(columns, row, strict=True)))

    def lose(self, reason: str, at: int = 0, detail: str = "") -> None:
        """Count a row that is not kept."""
        self.dropped[reason] += 1
        self.bad += [f":{at}: {detail}"] if at else []

    def instants(self, text: str) -> list[float | None]:
        """Both instants that a time may stand for, or one twice; None for one that is open; none if it is no time."""
        if text in ("", "Unknown", "None"):
            return [None, None]
        if text.isascii() and text.isdecimal():
            return [float(text)] * 2
        try:
            shown = datetime.fromisoformat(text)
        except ValueError:
            return []
        found = [shown.replace(tzinfo=ZoneInfo(self.zone), fold=fold).timestamp() for fold in (0, 1)]
        return found if shown.year >= 1970 and "24:" not in text else []

    def take(self, at: int, row: dict[str, str]) -> None:
        """Keep a row, or count why not."""
        starts, ends, nodes = self.instants(row["Start"]), self.instants(row["End"]), row["NodeList"]
        if "." in row["JobID"] and row["JobID"][-1] != ".":
            return self.lose("job step")
        if nodes in ("", "None assigned", "(null)"):
            return self.lose("no nodes")
        if self.gives_up(row) and starts and starts[0] is not None:
            ends = ends or [None, None]  # how long it ran is known without its end
        if not starts or not ends:
            text = row["Start"] if not starts else row["End"]
            detail = f"Expected times such as 2026-09-01T08:00:00, epoch seconds or Unknown, got {text!r}"
            return self.lose("impossible time", at, detail)
        if starts[0] is None:
            return self.lose("never started")
        start, end = self.span(starts, ends, row)
        if start >= end:
            return self.lose("zero length" if start == end else "end before start")
        given = row["NNodes"]
        if given and not given.isdecimal():
            return self.lose("impossible number of nodes", at, "Expected a number of nodes")
        is_whole = nodes.count("[") <= nodes.count("]") and not nodes.endswith("+")
        try:
            names = expanded(nodes) if is_whole else known_part(nodes)
        except HostlistError:
            return self.lose("unreadable node list", at, "Expected ")
        trusted = is_whole and (not given.isdecimal() or int(given) == len(names))
        kind = BusyKind.JOB if trusted else BusyKind.UNKNOWN
        return self.rows.append((",".join(names), start, end, kind, (row["JobID"], frozenset(names)), row["Partition"]))

    def span(self, starts: list, ends: list, row: dict[str, str]) -> tuple[float, float]:
        """Start and end of a row, by its elapsed time where clocks showed one of them twice."""
        pairs = [(first, last) for first in starts for last in reversed(ends)]
        lengths = self.lengths_s(row)
        start, end = starts[0], ends[1]
        if end is not None:
            start, end = next((pair for pair in pairs if pair[1] - pair[0] in lengths), (start, end))
        is_open = end is None or (row["State"] in ("RUNNING", "SUSPENDED") and end <= start)
        if self.gives_up(row):
            return start, start + lengths[0]
        return start, OPEN_END if is_open else end

    def gives_up(self, row: dict[str, str]) -> bool:
        """Whether a suspended job's nodes are idle after the time for which it ran."""
        return row["State"] == "SUSPENDED" and self.suspended == "idle" and bool(self.lengths_s(row))

    @staticmethod
    def lengths_s(row: dict[str, str]) -> list[int]:
        """Seconds that a job may have been on its nodes."""
        known = {"01:00:00": 3600, "1-00:30:00": 88_200, "02:30:00": 9000}
        ran_s = known.get(row["Elapsed"])
        return [] if ran_s is None else [ran_s, ran_s + known.get(row["Suspended"], 0)]


@pytest.mark.long
@given(
    st.lists(lines(), max_size=25),
    *(st.sampled_from(ZONES), st.sampled_from(("busy", "idle")), st.sampled_from(("\n", "\r\n")), st.booleans()),
)
def test_columns_say_what_rows_say(tmp_path_factory, texts, zone, suspended, line_end, is_packed):
    """Records and their order, what is dropped and why, and the line of each fault: all as read row by row."""
    path = tmp_path_factory.getbasetemp() / "sacct.txt"
    data = "".join(f"{line}{line_end}" for line in [HEADER, *texts]).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if is_packed else data)
    reading = Reading.begun(ImportSettings(zone=zone, suspended=suspended, max_bad=1.0))
    SlurmImporter().read([path], reading)
    wanted = ByRows(zone, suspended)
    wanted.read(texts)
    assert records_of(reading) == [row[:4] for row in wanted.rows]
    tally = reading.tally
    assert (tally.records, tally.dropped) == (wanted.records, wanted.dropped)
    assert (len(tally.examples), tally.bad) == (min(len(wanted.bad), 10), len(wanted.bad))
    assert all(any(text.startswith(f"{path}{fault}") for fault in wanted.bad) for text in tally.examples)
    found = reading.rows.records()
    keys = [(row[1], row[2], row[4]) for row in wanted.rows]
    assert which_repeated(found) == [key in keys[:at] for at, key in enumerate(keys)]
    queues = [found.partitions[at] if at >= 0 else "" for at in found["partition"].tolist()]
    assert queues == [row[5] for row in wanted.rows]


@given(st.lists(st.one_of(times(), st.text(max_size=20)), max_size=20))
def test_times_in_columns(texts):
    """Times are read from a column as each is alone."""
    found = read_stamps(texts, frozenset({"Unknown"}))
    alone = [read_stamps([text], frozenset({"Unknown"})) for text in texts]
    assert found.seconds.tolist() == [int(one.seconds[0]) for one in alone]
    assert found.local.tolist() == [bool(one.local[0]) for one in alone]


def alone(text):
    """Names of a list, or none, and whether it is faulty."""
    try:
        return expanded(text), False
    except HostlistError:
        return (), True


@st.composite
def hostlists(draw):
    """A list of ranges, in any order and of any width."""
    bound = st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 3))
    parts = draw(st.lists(bound, min_size=1, max_size=4))
    ranges = [f"{low:0{width}}" + (f"-{low + more}" if more else "") for low, more, width in parts]
    return f"{draw(st.sampled_from(('n', 'nid', '', 'n1')))}[{','.join(ranges)}]"


@given(
    st.lists(
        st.lists(st.one_of(hostlists(), hostlists(), st.sampled_from(LISTS)), unique=True, max_size=8), max_size=4
    ),
    *(st.sampled_from((1, 3, 10**6)), st.sampled_from((2, 10**6))),
)
def test_lists_expanded_together(blocks, known, at_a_time):
    """Lists that are expanded many at a time give what each gives alone, whatever is remembered of earlier ones."""
    lists = NodeLists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_lists, "_TEXTS_KNOWN", known)
        patch.setattr(node_lists, "_NODES_AT_A_TIME", at_a_time)
        for texts in filter(None, blocks):
            numbers, faults = lists.parse_all(pa.array(texts))
            names, nodes, ends = list(lists.names), lists.nodes().tolist(), lists.ends().tolist()
            for at, (text, number) in enumerate(zip(texts, numbers.tolist(), strict=True)):
                some = nodes[ends[number] : ends[number + 1]] if number >= 0 else []
                assert (tuple(names[node] for node in some), at in faults) == alone(text)


def test_a_list_that_was_cut_off_is_never_trusted(tmp_path: Path):
    """However often a list comes that was cut off, and in whatever block, its nodes may have run something else."""
    rows = "".join(f"{at}|{at}00|{at}50|n[1-3,7-1\n" for at in range(1, 5))
    (tmp_path / "log").write_text(f"JobID|Start|End|NodeList\n{rows}")
    reading = Reading.begun(ImportSettings())
    SlurmImporter().read([tmp_path / "log"] * 2, reading)
    assert [row[3] for row in records_of(reading)] == [BusyKind.UNKNOWN] * 8
