"""The brief says what the run's files say, on one side of paper, whatever the run was like."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.report.drawing import axes_or_new, palette
from bftrainer.report.glossary import format_value
from bftrainer.report.ledger import PARTS
from bftrainer.report.page import print_pages, render_pages
from bftrainer.report.run_figures import draw_ledger
from bftrainer.report.run_page import first_side
from bftrainer.report.words import format_amount
from bftrainer.runs.run_files import read_runs
from tests.finished import write_sample_run, write_tuned_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A plain run and a tuned one."""
    folder = tmp_path_factory.mktemp("brief")
    return read_runs([write_sample_run(folder / "plain", baseline=True), write_tuned_run(folder / "tuned")])


def changed(run, **figures):
    """The run with other figures in its summary."""
    return replace(run, summary={**run.summary, **figures})


def test_the_headline_names_node_hours_and_what_limited_the_run(runs):
    """Useful and idle node-hours are those of the ledger; the limit is the one of the summary."""
    summary = runs[0].summary
    idle_h, useful = summary["ledger"]["idle_node_s"] / 3600, summary["ledger"]["useful"]
    text = first_side(runs[0]).verdict
    hours = f"{format_amount(useful * idle_h)} of {format_amount(idle_h)} idle node-hours"
    assert text.startswith(f"{hours} ({format_value(useful, 'share')})")
    limits = {"demand": "too few tasks:", "admission": "-maxJ", "capped": "power cap", "pool": "idle nodes themselves"}
    limits |= {"below_best": "does less than it could", "declined": "-Tfwd", "preemption": "taken back"}
    for limit, words in limits.items():
        assert words in first_side(changed(runs[0], limited_by=limit)).verdict
    few = changed(runs[0], limited_by="below_best", tasks_total=3, max_tasks=10)
    assert "does less than it could" in first_side(few).verdict
    assert "-maxJ" not in first_side(few).verdict  # all tasks were admitted


def test_minutes_are_not_told_as_no_node_hours(runs):
    """A run of a few node-minutes says how many they were, in the headline and on the card."""
    ledger = {**runs[0].summary["ledger"], "idle_node_s": 1850.0, "useful": 0.6859}
    page = first_side(changed(runs[0], ledger=ledger))
    assert page.verdict.startswith("0.35 of 0.51 idle node-hours (68.59 %) became lasting work")
    assert "0.35" in [card.value for card in page.cards if card.label == "useful node-hours"]


@pytest.mark.parametrize("number", [1, 3, 7, 1000])
def test_node_time_of_parts_of_the_window_adds_up(runs, number):
    """Tasks held in all parts together what they held in the run."""
    edges_s = np.linspace(0.0, runs[0].window_s, number + 1)
    assert runs[0].node_s_between(edges_s).sum() == pytest.approx(runs[0].summary["used_node_s"], rel=1e-9)


def test_an_interval_is_told_of_at_least_three_days(runs):
    """By how much days differ, where there are enough of them; else that there are not."""
    run = runs[0]
    days = int(run.window_s // 86_400)
    (card,) = (card for card in first_side(run).cards if card.label == "useful node-hours")
    assert days < 3
    assert "Too short a window" in card.meaning
    steps = {**run.steps, "time_s": np.arange(4) * 86_400.0, "used": np.array([10, 20, 30, 20])}
    longer = replace(changed(run, window_s=4 * 86_400.0), steps=steps)
    (card,) = (card for card in first_side(longer).cards if card.label == "useful node-hours")
    low, high = (float(text.replace(",", "")) for text in re.search(r"(\S+) to (\S+) \(95 %\)", card.meaning).groups())
    # Student's t of 3 degrees of freedom, times the deviation of the days' sum.
    half = 3.1824 * np.std([10, 20, 30, 20], ddof=1) / 2 * 4 / 80 * float(card.value.replace(",", ""))
    assert (high - low) / 2 == pytest.approx(half, rel=0.01)


def test_bars_of_the_ledger_lead_from_all_to_useful(runs):
    """Each bar ends where the next begins, and the last is as long as what is useful."""
    ax = axes_or_new(None)
    draw_ledger(runs[0].summary["ledger"], ax)
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    ledger = runs[0].summary["ledger"]
    assert bars[0] == (0.0, 100.0)
    assert bars[-1] == (0.0, pytest.approx(100 * ledger["useful"]))
    for (begin, _), (after, width) in zip([bars[0][::-1], *bars[1:-1]], bars[1:-1], strict=False):
        assert after + width == pytest.approx(begin)
    shown = [part for part in PARTS[1:] if abs(ledger.get(part, 0.0)) >= 5e-5]
    assert len(bars) == len(shown) + 2


def test_pictures_take_the_colours_of_the_page(runs):
    """Pictures are well-formed, tell colours by name, and their ids are unique on a page of several briefs."""
    text = render_pages([first_side(run) for run in runs])
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 4
    for picture in pictures:
        ET.fromstring(picture.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
        assert "var(--ink, " in picture
        assert not any(f" {color}" in picture.replace(f", {color})", "") for color in palette().values())
        assert "#000000" not in picture
        assert picture.count("<text") == len(re.findall(r"<text style=\"[^\"]*fill: var", picture))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', text)) <= set(ids)


def test_a_page_of_briefs_needs_nothing(runs):
    """No script, nothing from elsewhere."""
    text = render_pages([first_side(runs[0])])
    assert "<script" not in text
    assert not re.search(r'(src|(?<!xlink:)href)="(?!#)', text)


@pytest.mark.long
def test_a_pdf_has_a_side_for_each_run(runs):
    """As many sides as runs, fonts as TrueType, and equal bytes for equal runs."""
    briefs = [first_side(run) for run in runs]
    content = print_pages(briefs)
    assert len(re.findall(rb"/Type /Page\b", content)) == 2
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert content == print_pages(briefs)


def without_events(run):
    """A run that ended before its first event."""
    empty = {name: values[:0] for name, values in run.steps.items()}
    ledger = dict.fromkeys(run.summary["ledger"], None) | {"idle_node_s": 0.0}
    return replace(changed(run, ledger=ledger, limited_by=None, eq_nodes=None, occupancy=None), steps=empty)


def negative(run):
    """A run whose costs exceed its work."""
    ledger = {**run.summary["ledger"], "useful": -0.2}
    ledger["preemption"] += run.summary["ledger"]["useful"] + 0.2
    return changed(run, ledger=ledger)


@pytest.mark.long
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(without_events, id="no event"),
        pytest.param(negative, id="useful below 0"),
        pytest.param(lambda run: changed(run, ledger=None, limited_by=None), id="of an earlier version"),
        pytest.param(lambda run: changed(run, tasks_completed=0, makespan_s=None, turnaround_mean_s=None), id="none"),
        pytest.param(lambda run: changed(run, node_log_notes=["x " * 900] * 20, partial=True), id="many caveats"),
        pytest.param(lambda run: replace(run, name="$a_b^{" + "x" * 300 + "</svg>"), id="a long name"),
        pytest.param(lambda run: replace(run, name="אבג"), id="right to left"),
    ],
)
# Letters of other scripts are not in the font of figures, which draws boxes for them.
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font:UserWarning")
def test_odd_runs_have_a_brief(runs, odd):
    """It is made as a page and on one side, and says so where the run is partial."""
    run = odd(runs[0])
    brief = first_side(run)
    assert len(re.findall(rb"/Type /Page\b", print_pages([brief]))) == 1
    text = render_pages([brief])
    assert ("Partial:" in text) == bool(run.summary["partial"])
    assert "</svg>&" not in text


def test_caveats_name_what_the_figures_rest_on(runs):
    """Assumed scaling, notes of the log and decisions without proof are each told."""
    run = changed(
        runs[0],
        assumed_scaling={"note": "perfect from 1 work/s", "figures": ["ledger.useful", "useful"]},
        node_log_notes=["1 % was trimmed."],
        decisions_optimal=runs[0].summary["decisions"] - 3,
    )
    told = first_side(run).notes
    assert len(told) == 3
    assert "perfect from 1 work/s" in told[0]
    assert "1 % was trimmed." in told[1]
    assert told[2].startswith("3 of ")
    assert first_side(run).cards[0].mark == " (assumed scaling)"
