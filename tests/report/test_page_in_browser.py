"""The page in a browser: all charts drawn, no errors, nothing too wide, usable by keyboard, light and dark."""

from __future__ import annotations

import base64
import re

import pytest

from bftrainer.report.run_page import write_page
from bftrainer.runs.run_files import read_runs
from tests.browser import (
    IN_BROWSER,
    PAINTED,
    PHONE,
    SCHEMES,
    SEEN,
    WIDE,
    WIDTHS,
    asked_for,
    chromium,
    opened,
    settled,
    shown,
    violations,
    without_scripts,
)
from tests.finished import write_sample_run, write_tuned_run

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a plain run, of a tuned one and of both."""
    folder = tmp_path_factory.mktemp("browser")
    plain, tuned = write_sample_run(folder / "plain", baseline=True), write_tuned_run(folder / "tuned")
    named = {"plain": [plain], "tuned": [tuned], "both": [plain, tuned]}
    for name, runs in named.items():
        write_page(read_runs(runs), folder / f"{name}.html")
        write_page(read_runs(runs), folder / f"{name}-brief.html", brief=True)
    return {name: (folder / f"{name}.html").as_uri() for name in named}


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    with chromium() as driver:
        yield driver


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("plain", WIDE, "light"), ("plain", PHONE, "dark"), ("tuned", WIDE, "dark"), ("both", PHONE, "light")],
)
def test_all_charts_are_drawn(browser, pages, name, size, scheme):
    """As many canvases with something on them as charts; no errors; nothing sticks out at the side."""
    charts = opened(browser, pages[name], size, scheme)
    assert browser.execute_script(PAINTED) == charts == {"plain": 3, "tuned": 4, "both": 4}[name]
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("plain", 1280),
        *(
            pytest.param(name, width, marks=pytest.mark.slow)
            for name in ("plain", "tuned", "both")
            for width in WIDTHS
            if (name, width) != ("plain", 1280)
        ),
    ],
)
def test_the_page_is_accessible(browser, pages, name, width):
    """axe-core finds no violation, on phones and wide screens, light and dark; no error, and no request."""
    opened(browser, pages[name], (width, 900))
    assert asked_for(browser) == []
    for _ in range(2):
        found, passed = violations(browser)
        assert found == []
        assert {"color-contrast", "scrollable-region-focusable"} <= passed
        browser.find_element("id", "theme").click()
    assert browser.get_log("browser") == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_brief_is_accessible(browser, pages, width, scheme):
    """The same of a brief, which has no scripts."""
    shown(browser, pages["plain"].replace(".html", "-brief.html"), (width, 900), scheme)
    assert violations(browser)[0] == []
    assert (browser.get_log("browser"), asked_for(browser)) == ([], [])


def test_nothing_is_asked_of_the_network(browser, pages):
    """The page is the only thing that is loaded."""
    opened(browser, pages["plain"])
    assert asked_for(browser) == []


def test_the_theme_follows_the_system_and_the_button(browser, pages):
    """Colours are those of the theme, on canvases too; the button changes them."""
    ink = "return getComputedStyle(document.body).color"
    opened(browser, pages["plain"], scheme="dark")
    dark = browser.execute_script(ink), browser.execute_script(PIXELS)
    browser.find_element("id", "theme").click()
    settled(browser)
    light = browser.execute_script(ink), browser.execute_script(PIXELS)
    assert dark[0] != light[0]
    assert dark[1] != light[1]
    assert browser.find_element("id", "theme").get_attribute("aria-pressed") == "false"


PIXELS = "return document.querySelector('#pool-chart canvas').toDataURL()"


@pytest.mark.long
def test_the_keyboard_reaches_everything(browser, pages):
    """From the top, Tab goes to the skip link, the button, every link, chart, tool and table."""
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages["plain"])
    wanted = "return [...document.querySelectorAll('.chart, .scroll, select, input, .tools button')]"
    wanted += ".filter(each => each.checkVisibility() && each.tabIndex >= 0).length"
    body = browser.find_element("tag name", "body")
    seen = []
    for _ in range(120):
        (browser.switch_to.active_element or body).send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        if active.tag_name == "body":
            break
        seen.append((active.tag_name, active.get_attribute("class"), active.get_attribute("id")))
    assert seen[0][:2] == ("a", "skip")
    assert seen[1] == ("button", "", "theme")
    charts = {element.get_attribute("id") for element in browser.find_elements("css selector", ".chart")}
    assert charts <= {name for _, _, name in seen}
    tools = browser.execute_script("return document.querySelectorAll('.tools button').length")
    reached = sum(kind in ("scroll", "chart") or tag in ("select", "input") for tag, kind, _ in seen)
    assert reached + tools == browser.execute_script(wanted)


def test_the_keyboard_zooms_all_charts(browser, pages):
    """On a chart with the focus, + shows half as much, an arrow moves on, and 0 goes back to all; others follow."""
    opened(browser, pages["plain"])
    chart = browser.find_element("id", "gantt-chart")
    whole, before = browser.execute_script(SEEN), browser.execute_script(PIXELS)
    chart.send_keys("+")
    settled(browser)
    near = browser.execute_script(SEEN)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    assert browser.execute_script(PIXELS) != before
    chart.send_keys("\ue014")
    moved = browser.execute_script(SEEN)
    assert moved[0] - near[0] == pytest.approx((near[1] - near[0]) / 4)
    chart.send_keys("0")
    settled(browser)
    assert browser.execute_script(SEEN) == whole
    assert browser.execute_script(PIXELS) == before
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("name", ["plain", "tuned"])
def test_a_brief_is_printed_on_one_side(browser, pages, name):
    """Without scripts it is complete, nothing sticks out on a phone, and it takes one side of paper."""
    address = pages[name].replace(".html", "-brief.html")
    with without_scripts(browser):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        )
        browser.get(address)
        printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    assert len(re.findall(rb"/Type /Page\b", base64.b64decode(printed["data"]))) == 1
    drawn_bars = "return document.querySelectorAll('svg [id$=-patch_2], svg [id$=-patch_3]').length"
    assert browser.execute_script(drawn_bars) >= 2
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert browser.get_log("browser") == []


def test_captions_are_no_larger_than_text_on_paper(browser, pages):
    """Whatever is told in relative sizes follows the size of print."""
    browser.get(pages["plain"])
    sizes = (
        "return [...document.querySelectorAll(arguments[0])].map(each => parseFloat(getComputedStyle(each).fontSize))"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        (text,) = browser.execute_script(sizes, "body")
        captions = browser.execute_script(sizes, "figcaption, .soft, .cards .name, td")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert max(captions) < text


@pytest.mark.slow
def test_the_published_replay(browser, published, tmp_path):
    """The page of the whole Summit replay is at most 2 MB, and draws all charts."""
    from bftrainer import run_replay

    result = run_replay(
        published / "ndstat-10sdn6-evt.tar.gz",
        published / "hps-shufflenet-Jbnd-1000J.pkl",
        scalability=published / "hps-shufflenet-JNPs-1000J.pkl",
        solver="dp",
        skip_events=1000,
        baseline=False,
    )
    page = result.report(tmp_path / "summit.html")
    assert page.stat().st_size <= 2e6
    assert opened(browser, page.as_uri()) == 3
    assert browser.execute_script(PAINTED) == 3
    assert browser.get_log("browser") == []
