"""The page needs nothing but itself, says what it shows, and cannot be broken by names."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bftrainer.report.comparison import Cell
from bftrainer.report.run_page import run_page
from bftrainer.runs.run_files import read_runs
from tests.finished import write_sample_run, write_tuned_run


class Parsed(HTMLParser):
    """Elements with their attributes, the text outside of scripts, and the scripts."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.scripts, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.scripts if self.open and self.open[-1] == "script" else self.words).append(data)

    @property
    def text(self):
        """What is read, in one line."""
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A plain run and a tuned one."""
    folder = tmp_path_factory.mktemp("page")
    return read_runs([write_sample_run(folder / "plain", baseline=True), write_tuned_run(folder / "tuned")])


def made(runs):
    """The page of those runs, parsed."""
    found = Parsed(run_page(runs).html())
    assert found.open == []
    return found


@pytest.mark.long
def test_nothing_comes_from_elsewhere(runs):
    """No element refers to a place outside of the page."""
    found = made(runs[:1])
    for _, attributes in found.elements:
        for key in ("src", "href"):
            assert attributes.get(key, "#").startswith("#")
    assert {tag for tag, _ in found.elements}.isdisjoint({"link", "img", "iframe"})


def test_ids_are_unique_and_links_lead_somewhere(runs):
    """Each section is linked from the top, by an id of its own."""
    found = made(runs)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [attributes["href"].removeprefix("#") for tag, attributes in found.elements if tag == "a"]
    assert set(links) <= set(ids)


def test_headlines_say_what_the_summary_says(runs):
    """The sentence and the cards of one run."""
    text, summary = made(runs[:1]).text, runs[0].summary
    assert f"On average {summary['eq_nodes']:,.1f} of 512 nodes were idle" in text
    assert f"{summary['decisions']:,} of {summary['decisions']:,} decisions proven optimal" in text
    assert f"{100 * summary['efficiency']:.2f} %" in text
    assert "bftrainer-replay --made up" in text
    assert summary["inputs"]["node_log"]["sha256"] in text
    assert "Partial" not in text


def test_several_runs_are_compared(runs):
    """Title with all names, figures of both, settings that differ, and differences that say what they are."""
    alike = changed(runs[1], window_s=runs[0].summary["window_s"], window_end=runs[0].summary["window_end"])
    text = made([runs[0], alike]).text
    assert text.count("plain and tuned: training on idle nodes") == 2
    assert "idle power (W) - 100.0" in text
    assert "cannot be compared with" not in text
    change = r"[+-]\d+\.\d\d points (better|worse)"
    assert re.search(rf"occupancy \d+\.\d\d % \d+\.\d\d % {change}", text)


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"nodes_total": 9}, "another machine (9 nodes, not 512)"),
        ({"window_start": "2021-01-01T00:00:00Z"}, "another window (2021-01-01T00:00:00 to "),
        ({"node_log_notes": ["the lowest-numbered free gpus of each node"]}, "another unit (gpus, not nodes)"),
    ],
)
def test_what_cannot_be_compared_gets_no_percentages(runs, figures, reason):
    """Runs of another machine, window or unit are said to be so, and have figures without differences."""
    found = run_page([runs[0], changed(runs[0], **figures)])
    assert reason in found.notes[0]
    assert {cell.below for cells in figures_of(found).values() for cell in cells} == {""}


def test_a_run_whose_tasks_were_done_earlier_is_compared_by_them(runs):
    """Of the same log and tasks, a shorter window is no other one: figures of tasks keep their differences."""
    base = changed(runs[0], end_reason="max_events", efficiency=0.4, occupancy=0.4)
    half = {"window_s": base.summary["window_s"] / 2, "window_end": "2021-02-10T12:00:00", "occupancy": 0.5}
    found = run_page([base, changed(base, **half, end_reason="finished", efficiency=0.5)])
    assert "by efficiency U, makespan, mean turnaround and mean wait alone" in found.notes[0]
    assert [figures_of(found)[name][1].below != "" for name in ("efficiency U", "occupancy")] == [True, False]
    cut = run_page([base, changed(base, **half, end_reason="max_events")])
    assert "cannot be compared" in cut.notes[0]


def test_a_replay_is_compared_with_its_harvest(runs):
    """It ends when its tasks do, and a harvest when nodes are given back; differences to almost 0 are in points."""
    real = changed(runs[0], engine="live", window_s=2.0 * runs[0].summary["window_s"], occupancy=0.001)
    found = run_page([real, changed(runs[0], occupancy=0.1)])
    assert not any("compared" in note for note in found.notes)
    assert figures_of(found)["occupancy"][1] == Cell("10.00 %", "+9.90 points")


def test_a_harvest_beside_its_replay_says_how_it_went(runs):
    """Its page begins with what came of the harvest, and names what it is compared with."""
    real = changed(runs[0], engine="live")
    alone = run_page([real]).verdict
    assert run_page([real, replace(runs[0], name="predicted")]).verdict == f"plain: {alone} Beside it: predicted."


def test_differences_by_hand(runs):
    """From 40 to 50 % occupancy it is 10 points, of times a share; headlines come first."""
    pair = [changed(runs[0], occupancy=0.4, makespan_s=7200.0), changed(runs[0], occupancy=0.5, makespan_s=3600.0)]
    rows = figures_of(run_page(pair))
    assert list(rows)[:2] == ["efficiency U", "occupancy"]
    assert rows["occupancy"][1] == Cell("50.00 %", "+10.00 points", "better")
    assert (rows["makespan"][1].below, rows["makespan"][1].tone) == ("-50.00 %", "better")


def figures_of(found):
    """Cells of each figure of runs side by side."""
    rows = [row for table in found.tables if table.headings[:1] == ("figure",) for row in table.rows]
    return {row[0]: row[1:] for row in rows if isinstance(row[1], Cell)}


def changed(run, **figures):
    """The run with other figures in its summary."""
    return replace(run, summary={**run.summary, **figures})


def test_partial_runs_are_marked(runs):
    """A note at the top says so."""
    partial = replace(runs[0], summary={**runs[0].summary, "partial": True})
    assert "Partial: the run was interrupted" in made([partial]).text


def test_who_waited_longest_is_told(runs):
    """Among the tasks that started, and until when; and how many never did."""
    tasks = {key: column.copy() for key, column in runs[0].tasks.items()}
    tasks["submitted_s"][:], tasks["started_s"][:] = 0.0, 60.0
    tasks["started_s"][2], tasks["started_s"][5] = 7200.0, float("nan")
    text = made([replace(runs[0], tasks=tasks)]).text
    name = tasks["name"][2]
    assert f"Of the tasks that started, {name} waited longest: 2 h, until 2021-02-10 02:00 UTC. 1 waited until" in text


@pytest.mark.long
def test_times_are_those_of_the_site(runs):
    """Where the node log tells its zone; one that nobody knows is UTC."""
    for zone, told in (("Asia/Tokyo", "2021-02-10 09:00 to "), ("Mars/Olympus", "2021-02-10 00:00 to ")):
        assert f"512 nodes, {told}" in made([changed(runs[0], node_log_zone=zone)]).text


def test_what_tables_leave_out_is_told(runs, monkeypatch):
    """How many rows, and which file has them."""
    monkeypatch.setattr("bftrainer.report.run_page.MOST_ROWS", 20)
    text, total = made(runs[:1]).text, len(runs[0].tasks["name"])
    assert f"{total - 20:,} of {total:,} tasks are left out here; tasks.parquet in the run's directory has all." in text


@pytest.mark.long
def test_names_cannot_break_the_page(runs):
    """Names that end scripts or open elements are shown as text, in the table and in the data of charts."""
    evil = "</script><script>alert(1)</script><b>&amp;"
    names = runs[0].tasks["name"].copy()
    names[0] = evil
    found = made([replace(runs[0], name=evil, tasks={**runs[0].tasks, "name": names})])
    assert evil in found.text
    assert sum(tag == "script" for tag, _ in found.elements) == 2
    data = json.loads(zlib.decompress(base64.b64decode(found.scripts[0])))
    assert data["runs"][0]["tasks"][0] == evil


@pytest.mark.long
def test_equal_runs_give_equal_pages(runs):
    """Same files, same bytes."""
    assert run_page(runs).html() == run_page(runs).html()
