"""Cells that do not stand where they should: separators in names, words for numbers, 0 for times that are not set."""

from __future__ import annotations

import json

import pytest

from bftrainer.errors import SettingsError
from bftrainer.schedulers.formats.slurm import XDMOD_COLUMNS
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings

EIGHT, HOUR = 1788249600, 3600  # 2026-09-01 08:00 UTC
MORNING = {"start": str(EIGHT), "end": str(EIGHT + 4 * HOUR), "window": "asked", "max_bad": 1.0}
MAP = ("start=start", "end=end", "nodes=nodes")
NINE, TEN = EIGHT + HOUR, EIGHT + 2 * HOUR


def imported(tmp_path, text, form="slurm", **settings):
    """Account of the import of a log in a window of four hours."""
    (tmp_path / "log").write_text(text)
    return import_log(form, [tmp_path / "log"], ImportSettings(**(MORNING | settings))).quality


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("JobID|JobName|Start|End|NodeList", f"1|a|b|{EIGHT}|{NINE}|n1"),
        ("JobID|Start|JobName|End|NodeList", f"1|{EIGHT}|a||b|c|{NINE}|n1"),
        ("JobID|Start|End|NodeList|NNodes|Comment", f"1|{EIGHT}|{NINE}|n1|1|a|b"),
        ("WorkDir|JobID|Start|End|NodeList", f"/a|1/b|1|{EIGHT}|{NINE}|n1"),
    ],
)
def test_bars_are_those_of_the_only_name(tmp_path, header, row):
    """With one column that users write, the cells before it count from the left and those behind it from the right."""
    quality = imported(tmp_path, f"{header}\n{row}\n")
    assert (quality.bad, quality.nodes, quality.busy_node_s) == (0, 1, {"job": HOUR})


@pytest.mark.parametrize(
    ("header", "row", "reason"),
    [
        # Two names: which of them has the bar is unknown.
        ("JobID|JobName|Start|End|NodeList|Comment", f"1|a|b|{EIGHT}|{NINE}|n1|c", "wrong number of columns"),
        ("JobID|Start|End|NodeList|NNodes", f"1|{EIGHT}|{NINE}|n1|1|1", "wrong number of columns"),
        ("JobID|Start|End|NodeList|NNodes", f"1|{EIGHT}|{NINE}|n1|n1", "impossible number of nodes"),
        ("JobID|Submit|Start|End|NodeList", f"1|x|{EIGHT}|{NINE}|n1", "impossible time"),
        ("JobID|Start|End|NodeList|State", f"1|{EIGHT}|{NINE}|2026-09-01T11:05:00|x", "unreadable node list"),
    ],
)
def test_cell_that_is_no_time_number_or_node_is_refused(tmp_path, header, row, reason):
    """Such a row is counted and gives no node of that name."""
    known = {"JobID": "2", "Submit": str(EIGHT), "Start": str(EIGHT), "End": str(NINE), "NodeList": "n2", "NNodes": "1"}
    good = "|".join(known.get(name, "y") for name in header.split("|"))
    quality = imported(tmp_path, f"{header}\n{row}\n{good}\n")
    assert quality.dropped == {reason: 1}
    assert (quality.bad, quality.nodes) == (1, 1)
    assert quality.bad_examples[0].startswith(f"{tmp_path / 'log'}:2: Expected ")


def test_number_of_nodes_that_sacct_rounds(tmp_path):
    """`2K` nodes are a number that cannot be compared."""
    assert imported(tmp_path, f"JobID|Start|End|NNodes|NodeList\n1|{EIGHT}|{NINE}|2K|n1\n").bad == 0


def test_table_of_xdmod_without_a_header_is_named(tmp_path):
    """26 columns without names are those of XDMoD."""
    row = "|".join(["1"] * len(XDMOD_COLUMNS))
    with pytest.raises(SettingsError, match="got neither; --preset xdmod of `import --format table` names them"):
        imported(tmp_path, f"{row}\n")


ZEROS = ("0", "1970-01-01T00:00:00", "1970-01-01 00:00:00+00:00", "1969-12-31 17:00:00-07:00")


@pytest.mark.parametrize("end", ZEROS)
def test_end_of_zero_is_none(tmp_path, end):
    """A row with a start whose end is 0, or 1970, has not ended: in tables, JSON lines and sacct."""
    start = str(NINE) if end == "0" else f"2026-09-01T09:00:00{end[19:]}"
    zone = {} if len(end) > 19 or end == "0" else {"zone": "UTC"}
    texts = {
        "table": (f"start,end,nodes\n{start},{end},n1\n{start},{start},n2\n", {"map": MAP}),
        "json": (json.dumps({"start": start, "end": end, "nodes": "n1"}) + "\n", {"map": MAP}),
        "sacct": (f"JobID|Start|End|NodeList\n1|{start}|{end}|n1\n", {}),
    }
    begins_h = 1 + 7 * ("-07:00" in end)
    for name, (text, settings) in texts.items():
        if (name == "sacct" and len(end) > 19) or begins_h > 4:
            continue
        quality = imported(tmp_path, text, "slurm" if name == "sacct" else "table", **settings, **zone)
        assert quality.busy_node_s == {"job": (4 - begins_h) * HOUR}, name
        assert any(note.startswith("1 runs have no end") for note in quality.notes)


def test_start_of_zero_never_was(tmp_path):
    """A row with an end and a start of 0 never started; a table whose times begin at 0 is another matter."""
    text = f"start,end,nodes\n0,{NINE},n1\n{EIGHT},{TEN},n2\n"
    assert imported(tmp_path, text, "table", map=MAP).dropped == {"never started": 1}
    text = f"JobID|Start|End|NodeList\n1|0|{NINE}|n1\n2|{EIGHT}|{TEN}|n2\n"
    assert imported(tmp_path, text).dropped == {"never started": 1}
    early = {"start": "1970-01-01T00:00", "end": "1970-01-01T00:20"}
    quality = imported(tmp_path, "start,end,nodes\n0,600,n1\n", "table", map=MAP, **early)
    assert quality.busy_node_s == {"job": 600}


@pytest.mark.parametrize("nodes", ["\"['r1n1', 'r1n2']\"", '"[r1n1, r1n2]"', "'r1n1' 'r1n2'", "r1n[1-2]"])
def test_quotes_are_no_part_of_names(tmp_path, nodes):
    """A list column that pandas wrote has quotes around its names."""
    (tmp_path / "nodes").write_text("r1n1\nr1n2\n")
    text = f"start;end;nodes\n{EIGHT};{NINE};{nodes}\n"
    quality = imported(tmp_path, text, "table", map=MAP, nodes=str(tmp_path / "nodes"))
    assert (quality.nodes, quality.nodes_outside, quality.busy_node_s) == (2, 0, {"job": 2 * HOUR})
