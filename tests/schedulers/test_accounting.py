"""Lines of PBS and its kin, taken apart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bftrainer.files.log_files import Block
from bftrainer.schedulers.formats.pbs import LINE, Entry, local_s, sort_by_time


def entry(text, moment="2026-09-01T00:00:00"):
    return Entry(moment, "E", "1.pbs", text, Block(Path("log"), 1, text.encode()), 0)


def test_fields():
    """Values may be quoted, and then hold blanks; a key may have dots; what is no field is passed over."""
    text = """user=u jobname="my job" Resource_List.select=2:ncpus=8 project='a b' alone x= end=5"""
    assert entry(text).fields() == {
        "user": "u",
        "jobname": "my job",
        "Resource_List.select": "2:ncpus=8",
        "project": "a b",
        "x": "",
        "end": "5",
    }


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a." * 500_000 + "=", '"' * 1_000_000, "x=" + '"' * 500_000])
def test_hostile_lines_take_linear_time(text):
    """A word of a megabyte is looked at once, not once a letter."""
    begin = time.process_time()
    entry(text).fields()
    assert time.process_time() - begin < 5


def test_impossible_dates():
    """A date that no calendar has is none."""
    assert local_s("1970-01-02T00:00:00") == 86400
    assert local_s("2026-02-30T00:00:00") is None


def test_lines():
    """Date, type, id and fields; blanks and semicolons in the fields stay there."""
    found = LINE.fullmatch("10/05/2017 00:00:25;S;1[7].m;a=b;c d")
    assert found is not None
    assert found.groups()[4:] == ("S", "1[7].m", "a=b;c d")
    assert LINE.fullmatch("2017-10-05 00:00:25;S;1;") is None


def test_order_of_files(tmp_path):
    """Files are read in the order of their first lines, whatever their names are."""
    for name, day in (("a", "10/06/2017"), ("b", "10/05/2017"), ("c", "01/01/2018")):
        (tmp_path / name).write_text(f"{day} 00:00:00;Q;1;queue=x\n")
    assert [path.name for path in sort_by_time(sorted(tmp_path.iterdir()))] == ["b", "a", "c"]
