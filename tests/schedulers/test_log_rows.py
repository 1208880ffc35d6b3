"""Logs that are CSV tables: rows with their places, columns by name, exact times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LogError
from bftrainer.files.log_files import log_rows
from bftrainer.schedulers.clock import exact_ns, natural_number
from bftrainer.schedulers.formats.tables import columns_of


def rows_of(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(text.encode())
    return list(log_rows(tmp_path / "t.csv"))


def test_rows_and_places(tmp_path):
    """Blank lines are left out, quotes taken off; each row knows its line, and the last one whether it was cut off."""
    rows = rows_of(tmp_path, 'a,b\n\n1,"x,y"\r\n2,z')
    assert [(row.line, row.fields, row.is_cut_off) for row in rows] == [
        (1, ["a", "b"], False),
        (3, ["1", "x,y"], False),
        (4, ["2", "z"], True),
    ]
    assert rows[2].place == f"{tmp_path}/t.csv:4"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('a,b\n1,5" disk\n3,4\n5,6" disk\n', [(2, ["1", '5" disk']), (3, ["3", "4"]), (4, ["5", '6" disk'])]),
        ('a,b\n"x\ny\n""z""",2\n3,4\n', [(2, ['x\ny\n"z"', "2"]), (5, ["3", "4"])]),
    ],
)
def test_cells_in_quotes(tmp_path, text, lines):
    """A cell in quotes may go over lines; a quote within a cell is a letter like others."""
    assert [(row.line, row.fields) for row in rows_of(tmp_path, text)[1:]] == lines


@pytest.mark.parametrize("text", ['a,b\n"1,2\n3,4\n', 'a,b\n1,"2\n3,4\n5,"6\n', 'a,b\n1,"2\n' + "3,4\n" * 300])
def test_a_quote_that_nothing_closes(tmp_path, text):
    """It would swallow the rows below, which would be idle nodes that were busy: its line is named."""
    with pytest.raises(LogError, match=r"t\.csv:2: Expected a row of a table, got something else"):
        rows_of(tmp_path, text)


def test_columns_by_name(tmp_path):
    """A header tells where columns stand, by any of their names; one without a column that is needed is refused."""
    (header,) = rows_of(tmp_path, "b, a ,c\n")
    assert columns_of(header, {"x": ("z", "a"), "y": ("B",), "none": ("q",)}, ["x"]) == {"x": 1, "y": 0}
    with pytest.raises(LogError, match=r"t\.csv:1: Expected a column d for x, got none\. Known: a, b, c\."):
        columns_of(header, {"x": ("d",)}, ["x"])


@given(st.decimals(0, 4 * 10**9, places=9))
def test_times_are_exact(seconds):
    """No nanosecond is lost on the way, as it would be in a float."""
    assert exact_ns(str(seconds)) == int(seconds * 10**9)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        (" 1.5 ", 1_500_000_000),
        ("1.7e9", 1_700_000_000 * 10**9),
        ("-1", -(10**9)),
        ("", None),
        ("x", None),
        ("nan", None),
        ("inf", None),
        ("1e99", None),
        ("1e999999999", None),
        ("9" * 5000, None),
    ],
)
def test_what_is_a_time(text, wanted):
    """A number within the time of any log, in any notation; nothing else, however large."""
    assert exact_ns(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [("0", 0), ("007", 7), ("", None), ("1.0", None), ("²", None), ("٣", None), ("9" * 19, None)]
)
def test_whole_numbers(text, wanted):
    """Up to 18 digits; what Python would call a digit elsewhere is none in a log."""
    assert natural_number(text) == wanted
