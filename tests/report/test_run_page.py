"""Pages of runs say what the runs' files say, need nothing but themselves, and cannot be broken by names."""

import base64
import json
import re
import zlib
from dataclasses import replace
from html import unescape

import pytest

from bftrainer.report.comparison import Cell
from bftrainer.report.drawing import axes_or_new
from bftrainer.report.glossary import format_amount, format_value
from bftrainer.report.ledger import PARTS
from bftrainer.report.page import print_pages, render_pages
from bftrainer.report.run_figures import draw_ledger, losses_picture
from bftrainer.report.run_page import first_side, run_page
from tests.report.conftest import change, check_page, count_sides


def text_of(runs):
    """What is read on a page of runs, in one line: outside of tags and scripts."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", run_page(runs).html(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def cells_of(page):
    """Cells of each figure of runs side by side."""
    rows = [row for table in page.tables if table.headings[:1] == ("figure",) for row in table.rows]
    return {row[0]: row[1:] for row in rows if isinstance(row[1], Cell)}


def test_the_headline_names_node_hours_and_what_limited_the_run(runs):
    """Useful and idle node-hours are those of the ledger; the limit is the one of the summary."""
    summary = runs[0].summary
    idle_h, useful = summary["ledger"]["idle_node_s"] / 3600, summary["ledger"]["useful"]
    hours = f"{format_amount(useful * idle_h)} of {format_amount(idle_h)} idle node-hours"
    assert first_side(runs[0]).verdict.startswith(f"{hours} ({format_value(useful, 'share')})")
    limits = {"demand": "too few tasks:", "admission": "-maxJ", "capped": "power cap", "pool": "idle nodes themselves"}
    limits |= {"below_best": "does less than it could", "declined": "-Tfwd", "preemption": "taken back"}
    for limit, words in limits.items():
        assert words in first_side(change(runs[0], limited_by=limit)).verdict
    few = first_side(change(runs[0], limited_by="below_best", tasks_total=3, max_tasks=10)).verdict
    assert "does less than it could" in few
    assert "-maxJ" not in few  # all tasks were admitted
    short = {**summary["ledger"], "idle_node_s": 1850.0, "useful": 0.6859}
    page = first_side(change(runs[0], ledger=short))
    assert page.verdict.startswith("0.35 of 0.51 idle node-hours (68.59 %) became lasting work")
    assert page.cards[0].value == "0.35"


def test_one_run_is_told_whole(runs):
    """Headline figures, decisions, command and inputs are those of the summary."""
    text, summary = text_of(runs[:1]), runs[0].summary
    assert f"{summary['decisions']:,} of {summary['decisions']:,} decisions proven optimal" in text
    for key in ("efficiency", "occupancy"):
        assert f"{100 * summary[key]:.2f} %" in text
    assert "bftrainer-replay --made up" in text
    assert summary["inputs"]["node_log"]["sha256"] in text
    assert "Partial" not in text


def test_caveats_name_what_the_figures_rest_on(runs):
    """Partial runs, assumed scaling, notes of the log, decisions without proof and a U that says little."""
    run = change(
        runs[0],
        assumed_scaling={"note": "perfect from 1 work/s", "figures": ["ledger.useful", "useful"]},
        node_log_notes=["1 % was trimmed."],
        decisions_optimal=runs[0].summary["decisions"] - 3,
        partial=True,
    )
    assumed, partial, log, proof = first_side(run).notes
    assert "perfect from 1 work/s" in assumed
    assert partial.startswith("Partial: the run was interrupted")
    assert "1 % was trimmed." in log
    assert proof.startswith("3 of ")
    assert first_side(run).cards[0].mark == " (assumed scaling)"
    short = change(runs[0], ledger={**runs[0].summary["ledger"], "demand": 0.1})
    for run, is_short in ((runs[0], False), (short, True)):
        assert ("would have been as short of tasks" in text_of([run])) == is_short


def test_bars_of_the_ledger_lead_from_all_to_useful(runs):
    """Each ends where the next begins, the last is as long as the useful share; losses are hatched, and have theirs.

    Of several runs the bars of each fill its idle node-time; without a ledger words say so.
    """
    ax, ledger = axes_or_new(None), runs[0].summary["ledger"]
    draw_ledger(ledger, ax)
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert bars[0] == (0.0, 100.0)
    assert bars[-1] == (0.0, pytest.approx(100 * ledger["useful"]))
    for (begin, _), (after, width) in zip([bars[0][::-1], *bars[1:-1]], bars[1:-1], strict=False):
        assert after + width == pytest.approx(begin)
    shown = [name for name in PARTS[1:] if abs(ledger.get(name, 0.0)) >= 5e-5]
    assert [str(bar.get_hatch() or "") for bar in ax.patches] == ["", *["////"] * len(shown), ""]
    assert {f"{100 * ledger[part]:.2f} %" for part in shown} <= {text.get_text() for text in ax.texts}
    assert len(ax.get_yticklabels()) == len(shown) + 2
    ax = axes_or_new(None)
    losses_picture(runs).draw(ax)
    assert sum(bar.get_width() for bars in ax.containers for bar in bars) == pytest.approx(200.0, abs=1e-4)
    assert len({(bars[0].get_hatch(), bars[0].get_facecolor()) for bars in ax.containers}) == len(ax.containers)
    ax = axes_or_new(None)
    losses_picture([change(run, ledger=None) for run in runs]).draw(ax)
    assert [text.get_text() for text in ax.texts] == ["No idle node-time, or no ledger of it."]


def test_nothing_comes_from_elsewhere(runs):
    """No element refers to a place outside of the page; each section is linked from the top, by an id of its own."""
    text = check_page(run_page(runs).html(), scripts=2)
    assert text.count("<a ") > 5
    assert run_page(runs).html() == text


@pytest.mark.long
def test_a_pdf_has_a_side_for_each_run(runs):
    """As many sides as runs, fonts as TrueType, and equal bytes for equal runs."""
    briefs = [first_side(run) for run in runs]
    content = print_pages(briefs)
    assert count_sides(content) == 2
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert content == print_pages(briefs)


def without_events(run):
    """A run that ended before its first event."""
    empty = {name: values[:0] for name, values in run.steps.items()}
    ledger = dict.fromkeys(run.summary["ledger"], None) | {"idle_node_s": 0.0}
    return replace(change(run, ledger=ledger, limited_by=None, eq_nodes=None, occupancy=None), steps=empty)


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        without_events,
        lambda run: change(run, ledger={**run.summary["ledger"], "useful": -0.2, "preemption": 1.1}),
        lambda run: change(run, ledger=None, limited_by=None),  # of an earlier version
        lambda run: change(run, tasks_completed=0, makespan_s=None, turnaround_mean_s=None),
        lambda run: change(run, node_log_notes=["x " * 900] * 20, partial=True),
        lambda run: replace(run, name="$a_b^{אבג" + "x" * 300 + "</svg>"),
    ],
)
# Letters of other scripts are not in the font of figures, which draws boxes for them.
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font:UserWarning")
def test_odd_runs_have_a_brief(runs, change):
    """It is made as a page and on one side, and says so where the run is partial."""
    run = change(runs[0])
    brief = first_side(run)
    assert count_sides(print_pages([brief])) == 1
    text = render_pages([brief])
    assert ("Partial:" in text) == bool(run.summary["partial"])
    assert "</svg>&" not in text


def test_several_runs_are_compared(runs):
    """Title with all names, figures of both, settings that differ, and differences that say what they are."""
    alike = change(runs[1], window_s=runs[0].summary["window_s"], window_end=runs[0].summary["window_end"])
    text = text_of([runs[0], alike])
    assert text.count("plain and tuned: training on idle nodes") == 2
    assert "idle power (W) - 100.0" in text
    assert "cannot be compared with" not in text
    assert re.search(r"occupancy \d+\.\d\d % \d+\.\d\d % [+-]\d+\.\d\d points (better|worse)", text)
    pair = [change(runs[0], occupancy=0.4, makespan_s=7200.0), change(runs[0], occupancy=0.5, makespan_s=3600.0)]
    cells = cells_of(run_page(pair))
    assert list(cells)[:2] == ["efficiency U", "useful"]  # headlines come first
    assert cells["occupancy"][1] == Cell("50.00 %", "+10.00 points", "better")
    assert (cells["makespan"][1].below, cells["makespan"][1].tone) == ("-50.00 %", "better")


def test_runs_that_cannot_be_compared_have_no_differences(runs):
    """Runs of another machine, window or unit are said to be so."""
    later = {"window_start": "2021-01-01T00:00:00Z", "node_log_zone": "Asia/Tokyo"}
    for reason, figures in (
        ("another machine (9 nodes, not 512)", {"nodes_total": 9}),
        ("another window (2021-01-01T09:00:00+09:00 to ", later),
        ("another unit (gpus, not nodes)", {"node_log_notes": ["the lowest-numbered free gpus of each node"]}),
    ):
        page = run_page([runs[0], change(runs[0], **figures)])
        assert reason in page.notes[0]
        assert {cell.below for cells in cells_of(page).values() for cell in cells} == {""}


def test_a_run_whose_tasks_were_done_earlier_is_compared_by_them(runs):
    """Of the same log and tasks, a shorter window is no other one: figures of tasks keep their differences."""
    base = change(runs[0], end_reason="max_events", efficiency=0.4, occupancy=0.4)
    half = {"window_s": base.summary["window_s"] / 2, "window_end": "2021-02-10T12:00:00", "occupancy": 0.5}
    page = run_page([base, change(base, **half, end_reason="finished", efficiency=0.5)])
    assert "by efficiency U, makespan, mean turnaround and mean wait alone" in page.notes[0]
    assert [cells_of(page)[name][1].below != "" for name in ("efficiency U", "occupancy")] == [True, False]
    assert "cannot be compared" in run_page([base, change(base, **half, end_reason="max_events")]).notes[0]


def test_a_replay_is_compared_with_its_harvest(runs):
    """The page begins with what came of the harvest; windows may differ; differences to almost 0 are in points."""
    real = change(runs[0], engine="live", window_s=2.0 * runs[0].summary["window_s"], occupancy=0.001)
    page = run_page([real, change(runs[0], name="predicted", occupancy=0.1)])
    assert not any("compared" in note for note in page.notes)
    assert cells_of(page)["occupancy"][1] == Cell("10.00 %", "+9.90 points")
    assert page.verdict == f"plain: {run_page([real]).verdict} Beside it: predicted."


def test_times_are_those_of_the_site(runs):
    """Where the node log tells its zone; one that nobody knows is UTC."""
    for zone, shown in (("Asia/Tokyo", "09:00 to "), ("Mars/Olympus", "00:00 to "), ("America", "00:00 to ")):
        assert f"512 nodes, 2021-02-10 {shown}" in first_side(change(runs[0], node_log_zone=zone)).subtitle


def test_tables_tell_how_many_rows_they_leave_out(runs, monkeypatch):
    """And which file has them; a task that never started waits still at the end."""
    monkeypatch.setattr("bftrainer.report.run_page.MOST_ROWS", 20)
    tasks = {key: column.copy() for key, column in runs[0].tasks.items()}
    tasks["started_s"][0], tasks["node_s"][0], tasks["submitted_s"][0] = float("nan"), 1e9, 0.0
    run, total = replace(runs[0], tasks=tasks), len(tasks["name"])
    (table,) = (table for table in run_page([run]).tables if table.title == "Tasks")
    told = f"{total - 20:,} of {total:,} tasks are left out here; tasks.parquet in the run's directory has all."
    assert told in table.note
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert (row["started"], row["wait"]) == ("-", f"> {format_value(run.window_s, 's')}")


def test_names_cannot_break_the_page(runs):
    """Names that end scripts or open elements are shown as text, in the table and in the data of charts."""
    evil = "</script><script>alert(1)</script><b>&amp;"
    names = runs[0].tasks["name"].copy()
    names[0] = evil
    run = replace(runs[0], name=evil, tasks={**runs[0].tasks, "name": names})
    assert evil in text_of([run])
    text = check_page(run_page([run]).html(), scripts=2)
    (packed, _) = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    data = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert data["runs"][0]["tasks"][0] == evil
