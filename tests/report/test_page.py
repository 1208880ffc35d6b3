"""The page needs nothing but itself, says what it shows, and cannot be broken by names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bftrainer.report.page import LogFigures, page
from bftrainer.runs.finished import read_runs
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


def made(runs, reason=""):
    """The page of those runs, parsed; their logs are gone."""
    text = page(runs, [LogFigures(None, reason)] * len(runs), "1.2.3")
    found = Parsed(text)
    assert found.open == []
    return found


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
    assert f"{summary['decisions']:,} of {summary['decisions']:,} decisions are proven optimal" in text
    assert f"{100 * summary['efficiency']:.2f} %" in text
    assert "bftrainer-replay --made up" in text
    assert summary["inputs"]["node_log"]["sha256"] in text
    assert "is partial" not in text


def test_several_runs_are_compared(runs):
    """Figures of both, settings that differ, and the difference to the first."""
    text = made(runs).text
    assert "2 runs on idle nodes" in text
    assert "idle_power_w - 100.0" in text
    assert re.search(r"occupancy \d+\.\d\d % \d+\.\d\d % \( ?[+-]\d+\.\d %", text.replace("( ", "("))


def test_partial_runs_are_marked(runs):
    """A warning at the top names them."""
    partial = replace(runs[0], summary={**runs[0].summary, "partial": True})
    assert "plain is partial:" in made([partial]).text


def test_a_missing_log_is_told(runs):
    """Why there are no fragments stands at the top."""
    assert "plain: the node log is not there any more." in made(runs[:1], "the node log is not there any more.").text


def test_names_cannot_break_the_page(runs):
    """Names that end scripts or open elements are shown as text, in the table and in the data of charts."""
    evil = "</script><script>alert(1)</script><b>&amp;"
    names = runs[0].tasks["name"].copy()
    names[0] = evil
    found = made([replace(runs[0], name=evil, tasks={**runs[0].tasks, "name": names})])
    assert evil in found.text
    assert sum(tag == "script" for tag, _ in found.elements) == 3
    assert json.loads(found.scripts[0])["runs"][0]["name"] == evil


def test_equal_runs_give_equal_pages(runs):
    """Same files, same bytes."""
    logs = [LogFigures(None)] * 2
    assert page(runs, logs, "1") == page(runs, logs, "1")
