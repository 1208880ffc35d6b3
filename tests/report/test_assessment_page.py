"""The page of an assessment begins with a brief: verdict, figures, pictures and caveats, on one side of paper."""

import re

import numpy as np
import pytest

from bftrainer.campaigns.assess import AssessPlan, assessment_of
from bftrainer.cli.harvest import run as harvest_run
from bftrainer.report.assessment_page import assessment_page
from bftrainer.report.drawing import axes_or_new
from bftrainer.report.page import print_pages
from tests.campaigns.test_assess import machine
from tests.report.conftest import HOSTILE, check_page, count_sides


def kind_of(assessment):
    """The kind of tasks that is recommended."""
    return next(kind for kind in assessment["kinds"] if kind["name"] == assessment["recommended"]["kind"])


def test_the_command_to_begin_with_is_one(assessment):
    """Advice, which begins in the brief, ends with a command of options that exist, a Slurm's partition among them."""
    page = assessment_page(assessment)
    advice = next(table.texts for table in page.tables if table.title == "What to begin with")
    assert page.next_step == advice[0]
    assert advice[0] in page.html().partition("<figure")[0]
    options = {option for param in harvest_run.params for option in param.opts}
    assert {"--engine", "--partition", "--dry-run"} == {*re.findall(r"--[a-z-]+", advice[-1])} <= options


def test_the_first_screen_says_what_was_found_and_what_limits_it(assessment):
    """Verdict, node-hours, GPU-hours, money and energy are those of the JSON; a limit is more than is left out."""
    page, kind = assessment_page(assessment), kind_of(assessment)
    assert page.verdict.startswith(assessment["sentence"])
    whole = assessment["idle"] | {"mostly_empty": {"days": 0.0, "node_hours": 0.0, "share": 0.0}}
    limits = (
        "What limits small models: " in one.verdict for one in (page, assessment_page(assessment | {"idle": whole}))
    )
    assert [*limits] == [False, True]
    cards = {card.label: card.value for card in page.cards}
    assert cards["useful node-hours"] == f"{kind['useful_node_hours']:,.0f}"
    assert cards["GPU-hours"] == f"{kind['gpu_hours']:,.0f}"
    assert cards["net value"] == f"{kind['net_value']:,.0f}"
    assert cards["energy"] == f"{kind['energy_kwh']:,.0f} kWh"
    assert page.notes == tuple(assessment["caveats"])


def test_the_window_is_drawn_by_date(assessment):
    """The light steps hold the idle node-hours of the log, the line the useful ones; dates are those of the window."""
    from matplotlib.dates import num2date

    (picture,) = (each for each in assessment_page(assessment).figures if each.key == "window")
    ax = axes_or_new(None)
    picture.draw(ax)
    idle, useful = (patch.get_data() for patch in ax.patches[:2])
    for steps, hours in ((idle, assessment["idle"]["node_hours"]), (useful, kind_of(assessment)["useful_node_hours"])):
        assert float(np.sum(steps.values * np.diff(steps.edges)) * 24) == pytest.approx(hours, rel=1e-6)
    assert [f"{num2date(edge):%Y-%m-%dT%H}" for edge in (idle.edges[0], idle.edges[-1])] == [
        text[:13] for text in assessment["log"]["window"]
    ]


def test_time_that_is_not_counted_is_shaded_and_named(assessment):
    """Where more than half of the nodes are idle the figure is gray; captions and the card say what is left out."""
    empty = {"days": 1.0, "node_hours": 99.0, "share": 0.2}
    idle = assessment["idle"] | {"mostly_empty": empty, "nodes_over_window": [16.0, 3.0, 9.0, 8.0]}
    page, ax = assessment_page(assessment | {"idle": idle}), axes_or_new(None)
    (picture,) = (each for each in page.figures if each.key == "window")
    picture.draw(ax)
    (band,) = (patch for patch in ax.patches if patch.get_label() == "mostly empty")
    assert band.get_data().values.tolist() == [1, 0, 1, 0]
    assert "more than half of the nodes are idle" in picture.reading
    (card,) = (card for card in page.cards if card.label == "useful node-hours")
    assert card.meaning.endswith("while at least half of the nodes are busy.")
    full = assessment | {"idle": idle | {"mostly_empty": empty | {"node_hours": 0.0}}}
    kinds = [
        kind | {"mostly_empty_node_hours": 0.1 * kind["ledger"]["idle_node_s"] / 3600} for kind in assessment["kinds"]
    ]
    for result, widths in ((full, []), (assessment | {"idle": idle, "kinds": kinds}, [10.0])):
        (picture,) = (picture for picture in assessment_page(result).figures if picture.key == "ledger")
        assert ("Shares are of all idle time" in picture.reading, "useful, not counted 10.00 %" in picture.words) == (
            bool(widths),
        ) * 2
        picture.draw(ax := axes_or_new(None))
        shown = {label.get_text(): bar.get_width() for label, bar in zip(ax.get_yticklabels(), ax.patches, strict=True)}
        assert [width for label, width in shown.items() if label == "useful, not counted"] == pytest.approx(widths)
        assert shown["useful"] + sum(widths) == pytest.approx(100 * kind_of(assessment)["ledger"]["useful"])


def test_grants_stand_side_by_side(assessment):
    """Useful node-hours with nodes as now and with each grant, and the intervals of gains, as the JSON has them."""
    grants, kind = assessment["grants"], kind_of(assessment)
    (table,) = (each for each in assessment_page(assessment).tables if each.title == "What you could grant")
    assert table.texts == [grants["sentence"]]
    for (_, hours, gain, interval), name in zip(table.rows, ("named", "chosen", "notice"), strict=True):
        assert hours == f"{kind['useful_node_hours'] * (1 + grants[name]['gain']):,.0f}"
        assert gain == f"{100 * grants[name]['gain']:+.1f} %"
        low, high = grants[name]["gain_ci95"]
        assert interval == ("-" if name == "named" else f"{100 * low:+.1f} to {100 * high:+.1f} %")


@pytest.mark.long
def test_the_page_needs_nothing_and_the_brief_is_one_side(assessment):
    """No script, nothing from elsewhere, pictures that are well-formed; the PDF has one page."""
    text = check_page(assessment_page(assessment).html())
    assert text.count("<svg") == 3
    assert assessment["grants"]["sentence"].replace("'", "&#39;") in text
    assert count_sides(print_pages([assessment_page(assessment)])) == 1


@pytest.mark.parametrize("days", [3, 8])
def test_machines_without_idle_nodes_have_a_page(days):
    """Nothing idle, and too short a window for an interval: two pictures, and no error."""
    answer = assessment_of(AssessPlan(machine(0, 1e9, days=days, nodes=8))) | {"command": ""}
    page = assessment_page(answer)
    assert answer["sentence"] in page.verdict
    assert count_sides(print_pages([page])) == 1
    assert page.html().count("<svg") == len(page.figures) == 2


def test_the_page_has_words_and_no_markup_of_names(assessment):
    """Assumptions have words and units; partitions and sources with markup and 300 characters are escaped."""
    (table,) = (each for each in assessment_page(assessment).tables if each.title == "What was assumed")
    assert dict(table.rows)["least share of the machine that is worth it"] == "1.00 %"
    assert dict(table.rows)["how long a node is idle before it is offered"] == "0 s"
    log = assessment["log"] | {"provenance": {**assessment["log"]["provenance"], "source": HOSTILE}}
    idle = assessment["idle"] | {"by_partition": {HOSTILE: {"nodes": 3, "share": 0.5}}}
    page = assessment_page(assessment | {"log": log, "idle": idle, "caveats": [HOSTILE], "command": HOSTILE})
    assert check_page(page.html()).count("&lt;img src=x") == 4
