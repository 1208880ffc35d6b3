"""Pages of campaigns in a browser: nothing too wide, no errors, light and dark, and a brief on one side of paper."""

from __future__ import annotations

import base64
import json
import re

import pytest

from bftrainer.campaigns.assess import AssessPlan, assessment_of
from bftrainer.campaigns.reproduce import Comparison, reproduction_page
from bftrainer.campaigns.verdict import MachinePrices
from bftrainer.report.assessment_page import assessment_page
from bftrainer.report.campaign_pages import advice_page, forecast_page, sweep_page
from bftrainer.report.intervals import estimate
from bftrainer.report.page import page_bytes
from tests.browser import asked_for, violations
from tests.campaigns.test_assess import machine
from tests.report.test_campaign_pages import HOSTILE, advice, forecast, rows_of
from tests.report.test_run_page_in_browser import PHONE, WIDE, browser, pytestmark

__all__ = ["browser", "pytestmark"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Addresses of a page of each kind, with names that are long and hostile."""
    folder = tmp_path_factory.mktemp("campaigns")
    prices = MachinePrices(price_node_hour=0.4, price_kwh=0.25, node_w=900.0, idle_w=300.0, carbon_gco2_per_kwh=350.0)
    plan = AssessPlan(machine(3600, 7200, days=9, nodes=16), prices=prices, gpus_per_node=4)
    found = json.loads(json.dumps(assessment_of(plan) | {"command": f"bftrainer assess {HOSTILE}"}))
    factors = {"objective": [HOSTILE, "b"], "a": [1, 2, 3], "max_tasks": [5, 10], "solver": ["dp", "cbc"]}
    rows, varied = rows_of(factors, lambda v, s: (0.5 + v[1] / 10 + s / 100, v[1]), 2, failed=[(("b", 1, 5, "dp"), 0)])
    lines = {name: {level: estimate([0.1, 0.2]) for level in (HOSTILE, "b")} for name in (HOSTILE, "b", "c")}
    figure = Comparison("key", lines, "change in work done", "way to decide", "What it shows.")
    claim = {"what": "best efficiency U", "paper": "up to 93 %", "here": "94.83 %", "comparable": "Not: other nodes."}
    texts = {"paper": "Paper", "source": "Somebody, 2021", "settings": HOSTILE, "caveats": [HOSTILE]}
    made = {
        "reproduction": reproduction_page(texts | {"reported": [claim, claim]}, [figure], HOSTILE),
        "assessment": page_bytes(assessment_page(found)),
        "sweep": sweep_page("s.toml", rows, varied, HOSTILE),
        "forecast": forecast_page(forecast([3600.0, 7200.0, 30 * 3600.0, float("inf")]), HOSTILE),
        "advice": advice_page(advice(sentence=HOSTILE), HOSTILE),
    }
    for name, content in made.items():
        (folder / f"{name}.html").write_bytes(content)
    return {name: (folder / f"{name}.html").as_uri() for name in made}


@pytest.mark.parametrize("name", ["assessment", "reproduction", "sweep", "forecast", "advice"])
@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        (WIDE, "dark"),
        (PHONE, "light"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((WIDE, "light"), (PHONE, "dark"), ((1920, 1080), "light"), ((1920, 1080), "dark"))
        ),
    ],
)
def test_pages_fit_and_take_the_theme(browser, pages, name, size, scheme):
    """Nothing sticks out, axe-core finds nothing wrong, no error, and pictures' texts have the colour of the page's."""
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(pages[name])
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert violations(browser)[0] == []
    assert (browser.get_log("browser"), asked_for(browser)) == ([], [])
    ink = browser.execute_script("return getComputedStyle(document.body).color")
    texts = "return [...document.querySelectorAll('figure svg text')].map(text => getComputedStyle(text).fill)"
    assert set(browser.execute_script(texts)) <= {ink}
    light = sum(map(int, re.findall(r"\d+", ink)[:3])) > 380
    assert light == (scheme == "dark")


def test_an_assessment_begins_with_one_printed_side(browser, pages):
    """The brief alone, verdict to caveats, takes one side of paper; the whole page takes more."""
    browser.get(pages["assessment"])
    sides = []
    for script in ("", "document.querySelectorAll('main > section:not(.brief)').forEach(each => each.remove())"):
        browser.execute_script(script)
        printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
        sides.append(len(re.findall(rb"/Type /Page\b", base64.b64decode(printed["data"]))))
    assert sides[0] > sides[1] == 1
