"""The page of an assessment begins with a brief: verdict, figures, pictures and caveats, on one side of paper."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from bftrainer.campaigns.assess import AssessPlan, assessment_of
from bftrainer.campaigns.verdict import MachinePrices
from bftrainer.report.assessment_page import assessment_page
from bftrainer.report.drawing import axes_or_new
from bftrainer.report.ledger import PARTS
from bftrainer.report.page import print_pages
from tests.campaigns.test_assess import machine

PRICED = MachinePrices(price_node_hour=0.4, price_kwh=0.25, node_w=900.0, idle_w=300.0, carbon_gco2_per_kwh=350.0)


@pytest.fixture(scope="module")
def found():
    """Nine days of a machine, as its JSON says."""
    plan = AssessPlan(machine(3600, 7200, days=9, nodes=16), prices=PRICED, gpus_per_node=4)
    return json.loads(json.dumps(assessment_of(plan) | {"command": "bftrainer assess idle.parquet"}))


def kind_of(found):
    """The kind of tasks that is recommended."""
    return next(kind for kind in found["kinds"] if kind["name"] == found["recommended"]["kind"])


def test_the_first_screen_says_what_was_found_and_what_limits_it(found):
    """Verdict, limit, node-hours, GPU-hours, money and energy are those of the JSON."""
    page, kind = assessment_page(found), kind_of(found)
    assert page.verdict.startswith(found["sentence"])
    assert "What limits small models: " in page.verdict
    cards = {card.label: card.value for card in page.cards}
    assert cards["useful node-hours"] == f"{kind['useful_node_hours']:,.0f}"
    assert cards["GPU-hours"] == f"{kind['gpu_hours']:,.0f}"
    assert cards["net value"] == f"{kind['net_value']:,.0f}"
    assert cards["energy"] == f"{kind['energy_kwh']:,.0f} kWh"
    assert page.notes == tuple(found["caveats"])


def test_the_waterfall_tells_parts_apart_without_colour(found):
    """Each loss that can be seen has a hatched bar with its name and share."""
    (picture,) = (each for each in assessment_page(found).figures if each.key == "ledger")
    ax = axes_or_new(None)
    picture.draw(ax)
    ledger = kind_of(found)["ledger"]
    lost = [part for part in PARTS[1:] if abs(ledger.get(part, 0.0)) >= 5e-5]
    assert [str(bar.get_hatch() or "") for bar in ax.patches] == ["", *["////"] * len(lost), ""]
    shown = {text.get_text() for text in ax.texts}
    assert {f"{100 * ledger[part]:.2f} %" for part in lost} <= shown
    assert len(ax.get_yticklabels()) == len(lost) + 2


def test_the_window_is_drawn_by_date(found):
    """The light steps hold the idle node-hours of the log, the line the useful ones; dates are those of the window."""
    from matplotlib.dates import num2date

    (picture,) = (each for each in assessment_page(found).figures if each.key == "window")
    ax = axes_or_new(None)
    picture.draw(ax)
    idle, useful = (patch.get_data() for patch in ax.patches[:2])
    for steps, hours in ((idle, found["idle"]["node_hours"]), (useful, kind_of(found)["useful_node_hours"])):
        assert float(np.sum(steps.values * np.diff(steps.edges)) * 24) == pytest.approx(hours, rel=1e-6)
    assert [f"{num2date(edge):%Y-%m-%dT%H}" for edge in (idle.edges[0], idle.edges[-1])] == [
        text[:13] for text in found["log"]["window"]
    ]


def test_time_that_is_not_counted_is_shaded_and_named(found):
    """Where more than half of the nodes are idle the figure is gray; captions and the card say what is left out."""
    empty = {"days": 1.0, "node_hours": 99.0, "share": 0.2}
    idle = found["idle"] | {"mostly_empty": empty, "nodes_over_window": [16.0, 3.0, 9.0, 8.0]}
    page, ax = assessment_page(found | {"idle": idle}), axes_or_new(None)
    (picture,) = (each for each in page.figures if each.key == "window")
    picture.draw(ax)
    (band,) = (patch for patch in ax.patches if patch.get_label() == "mostly empty")
    assert band.get_data().values.tolist() == [1, 0, 1, 0]
    assert "more than half of the nodes are idle" in picture.reading
    (card,) = (card for card in page.cards if card.label == "useful node-hours")
    assert card.meaning.endswith("while at least half of the nodes are busy.")
    full = found | {"idle": idle | {"mostly_empty": empty | {"node_hours": 0.0}}}
    for result, is_said in ((full, False), (found | {"idle": idle}, True)):
        (picture,) = (picture for picture in assessment_page(result).figures if picture.key == "ledger")
        assert ("Shares are of all idle time" in picture.reading) == is_said


def test_grants_stand_side_by_side(found):
    """Useful node-hours with nodes as now and with each grant, and the intervals of gains, as the JSON has them."""
    grants, kind = found["grants"], kind_of(found)
    (table,) = (each for each in assessment_page(found).tables if each.title == "What you could grant")
    assert table.texts == [grants["sentence"]]
    for (_, hours, gain, interval), name in zip(table.rows, ("named", "chosen", "notice"), strict=True):
        assert hours == f"{kind['useful_node_hours'] * (1 + grants[name]['gain']):,.0f}"
        assert gain == f"{100 * grants[name]['gain']:+.1f} %"
        low, high = grants[name]["gain_ci95"]
        assert interval == ("-" if name == "named" else f"{100 * low:+.1f} to {100 * high:+.1f} %")


@pytest.mark.long
def test_the_page_needs_nothing_and_the_brief_is_one_side(found):
    """No script, nothing from elsewhere, pictures that are well-formed; the PDF has one page."""
    text = assessment_page(found).html()
    assert "<script" not in text
    assert not re.search(r'(src|(?<!xlink:)href)="(?!#)', text)
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 3
    assert found["grants"]["sentence"].replace("'", "&#39;") in text
    for picture in pictures:
        ET.fromstring(picture.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
    assert len(re.findall(rb"/Type /Page\b", print_pages([assessment_page(found)]))) == 1


@pytest.mark.parametrize("days", [3, 8])
def test_machines_without_idle_nodes_have_a_page(days):
    """Nothing idle, and too short a window for an interval: two pictures, and no error."""
    answer = assessment_of(AssessPlan(machine(0, 1e9, days=days, nodes=8))) | {"command": ""}
    page = assessment_page(answer)
    assert answer["sentence"] in page.verdict
    assert len(re.findall(rb"/Type /Page\b", print_pages([page]))) == 1
    assert page.html().count("<svg") == len(page.figures) == 2


def test_assumptions_have_words_and_units(found):
    """No name of a field, and no bare number of seconds or shares."""
    (table,) = (each for each in assessment_page(found).tables if each.title == "What was assumed")
    rows = dict(table.rows)
    assert rows["shortest log that gets a verdict"] == "7 d"
    assert rows["least share of the machine that is worth it"] == "1.00 %"
    assert rows["how long a node is idle before it is offered"] == "0 s"


def test_names_in_the_page_are_escaped(found):
    """Partitions and sources with markup, marks of direction, and 300 characters."""
    hostile = '<img src=x onerror="alert(1)">\u202e' + "x" * 300
    log = found["log"] | {"provenance": {**found["log"]["provenance"], "source": hostile}}
    idle = found["idle"] | {"by_partition": {hostile: {"nodes": 3, "share": 0.5}}}
    text = assessment_page(found | {"log": log, "idle": idle, "caveats": [hostile], "command": hostile}).html()
    assert "<img" not in text
    assert "\u202e" not in text
    assert text.count("&lt;img src=x") == 4
