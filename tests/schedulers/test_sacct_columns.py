"""What the importer of sacct computes by columns is what one reads row by row."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.schedulers import busy_records
from bftrainer.schedulers.busy_records import BusyKind, NodeLists
from bftrainer.schedulers.clock import read_stamps
from bftrainer.schedulers.formats.slurm import SlurmImporter
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import records_of

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


def queues_of(reading):
    """Partition of each record."""
    records = reading.rows.records()
    return [records.partitions[at] if at >= 0 else "" for at in records["partition"].tolist()]


@pytest.mark.long
@given(
    st.lists(lines(), max_size=25),
    *(st.sampled_from(ZONES), st.sampled_from(("busy", "idle")), st.sampled_from(("\n", "\r\n")), st.booleans()),
)
def test_columns_say_what_rows_say(tmp_path_factory, texts, zone, suspended, line_end, is_packed):
    """Records and their order, what is dropped and why, and the line of each fault: all as of each row alone."""
    path = tmp_path_factory.getbasetemp() / "sacct.txt"

    def read(*some):
        data = "".join(f"{line}{line_end}" for line in [HEADER, *some]).encode()
        path.write_bytes(gzip.compress(data, mtime=0) if is_packed else data)
        reading = Reading.begun(ImportSettings(zone=zone, suspended=suspended, max_bad=1.0))
        SlurmImporter().read([path], reading)
        return reading

    whole, alone = read(*texts), [read(*[""] * at, text) for at, text in enumerate(texts)]
    assert records_of(whole) == [record for each in alone for record in records_of(each)]
    assert whole.tally.records == sum(each.tally.records for each in alone)
    assert whole.tally.dropped == sum((each.tally.dropped for each in alone), Counter())
    faults = [fault for each in alone for fault in each.tally.examples]
    assert (whole.tally.bad, len(whole.tally.examples)) == (len(faults), min(len(faults), 10))
    assert set(whole.tally.examples) <= set(faults)
    for name in ("job", "submit_ns", "is_open"):
        assert whole.rows.frame()[name].tolist() == [one for each in alone for one in each.rows.frame()[name]]
    assert queues_of(whole) == [queue for each in alone for queue in queues_of(each)]


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
    except LogError:
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
        patch.setattr(busy_records, "_TEXTS_KNOWN", known)
        patch.setattr(busy_records, "_NODES_AT_A_TIME", at_a_time)
        for texts in filter(None, blocks):
            numbers, faults = lists.parse_all(texts)
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
