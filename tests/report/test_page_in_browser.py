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
    for scheme in SCHEMES:
        opened(browser, pages[name], (width, 900), scheme)
        found, passed = violations(browser)
        assert found == []
        assert {"color-contrast", "scrollable-region-focusable"} <= passed
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


def test_colours_follow_the_system(browser, pages):
    """Pages and canvases are light or dark as the system is, and change with it."""
    ink = "return getComputedStyle(document.body).color"
    looks = []
    opened(browser, pages["plain"], scheme="dark")
    for scheme in ("dark", "light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        settled(browser)
        looks.append((browser.execute_script(ink), browser.execute_script(PIXELS)))
    assert looks[0] == looks[2]
    assert looks[0][0] != looks[1][0]
    assert looks[0][1] != looks[1][1]


PIXELS = "return document.querySelector('#pool-chart canvas').toDataURL()"


@pytest.mark.long
def test_the_keyboard_reaches_everything(browser, pages):
    """From the top, Tab goes to the skip link, and every link, tool and table."""
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages["plain"])
    wanted = "return [...document.querySelectorAll('.scroll, select, .tools button')]"
    wanted += ".filter(each => each.checkVisibility() && each.tabIndex >= 0).length"
    body = browser.find_element("tag name", "body")
    seen = []
    for _ in range(120):
        (browser.switch_to.active_element or body).send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        if active.tag_name == "body":
            break
        in_tools = browser.execute_script("return !!arguments[0].closest('.tools')", active)
        seen.append((active.tag_name, "tools" if in_tools else active.get_attribute("class")))
    assert seen[0] == ("a", "skip")
    assert sum(kind in ("scroll", "tools") for _, kind in seen) == browser.execute_script(wanted)


def test_tools_and_the_mouse_zoom_all_charts(browser, pages):
    """+ shows half as much, an arrow moves on, All goes back, and what is dragged over on a chart is shown by all."""
    from selenium.webdriver.common.action_chains import ActionChains

    opened(browser, pages["plain"])
    tools = browser.find_elements("css selector", ".tools button")
    whole, before = browser.execute_script(SEEN), browser.execute_script(PIXELS)
    tools[0].send_keys("\ue007")
    settled(browser)
    near = browser.execute_script(SEEN)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    assert browser.execute_script(PIXELS) != before
    tools[3].send_keys("\ue007")
    moved = browser.execute_script(SEEN)
    assert moved[0] - near[0] == pytest.approx((near[1] - near[0]) / 4)
    tools[4].send_keys("\ue007")
    settled(browser)
    assert browser.execute_script(SEEN) == whole
    assert browser.execute_script(PIXELS) == before
    chart = browser.find_element("css selector", "#completion-chart .u-over")
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", chart)
    settled(browser)  # a drag that begins while the page still scrolls is lost
    ActionChains(browser).move_to_element(chart).click_and_hold().move_by_offset(150, 0).release().perform()
    settled(browser)
    begin, end = browser.execute_script(SEEN)
    assert whole[0] < begin < end < whole[1]
    assert browser.execute_script(PIXELS) != before
    ranges = browser.execute_script("return explorer.all.map(chart => [chart.scales.x.min, chart.scales.x.max])")
    assert len({tuple(each) for each in ranges}) == 1
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
