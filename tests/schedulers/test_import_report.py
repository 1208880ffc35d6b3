"""The account of a log's records: what is counted, when it is too much, and where it lies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.import_log import import_log, quality_path, write_quality_json
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Tally

LOG = Path("log")


def tally(bad, records, max_bad=0.01):
    """A tally of so many records."""
    made = Tally(max_bad)
    made.records = records
    for line in range(1, bad + 1):
        made.refuse("malformed", LOG, line, "Expected x, got y")
    return made


def test_counts_and_examples():
    """Every record that is dropped has its reason; of the unusable ones the first ten are named with their lines."""
    made = tally(bad=12, records=20)
    made.drop("no nodes", 3)
    made.drop("never", 0)
    assert dict(made.dropped) == {"malformed": 12, "no nodes": 3}
    assert made.bad == 12
    assert made.examples == [f"log:{line}: Expected x, got y" for line in range(1, 11)]


@pytest.mark.parametrize(
    ("bad", "records", "at_end", "stops"),
    [
        (1, 100, True, False),
        (2, 100, True, True),
        (2, 100, False, False),
        (10_001, 20_000, False, True),
        (0, 0, True, False),
    ],
)
def test_when_it_is_too_much(bad, records, at_end, stops):
    """More than the share stops at the end of a log, or as soon as there are enough to be sure."""
    made = tally(bad, records)
    if stops:
        with pytest.raises(LogError, match=r"^log:1: Expected x, got y \([\d,]+ of [\d,]+ records are unusable"):
            made.check(at_end=at_end)
    else:
        made.check(at_end=at_end)


def test_messages_are_one_line():
    """What stands in a log cannot break the line in which it is shown."""
    made = Tally(0.0)
    made.records = 1
    made.refuse("malformed", LOG, 1, "Expected x, got 'a\nb\x1b[31m'")
    with pytest.raises(LogError) as caught:
        made.check(at_end=True)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["idle.parquet", "idle.csv", "idle.csv.gz", "idle.pkl"])
def test_where_it_lies(name):
    """Beside the node log, under its name, whatever its form."""
    assert quality_path(Path("a") / name) == Path("a/idle.quality.json")


def test_what_is_written(tmp_path):
    """The file holds the figures, as plain data."""
    (tmp_path / "spot.csv").write_text("0,add,a\n9000,remove,a\n")
    quality = import_log("spot", [tmp_path / "spot.csv"], ImportSettings()).quality
    write_quality_json(tmp_path / "q.json", quality)
    assert json.loads((tmp_path / "q.json").read_text()) == json.loads(json.dumps(quality.summary()))
