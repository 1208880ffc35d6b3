"""The page in a browser: all charts drawn, no errors, nothing too wide, usable by keyboard, light and dark."""

from __future__ import annotations

import base64
import re
import shutil

import pytest

from bftrainer.runs.run_pages import write_page
from tests.finished import write_sample_run, write_tuned_run

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="no chromium and chromedriver here; Debian: chromium chromium-driver"
    ),
    pytest.mark.xdist_group("browser"),
    # What the browser's client library leaves open is its own affair.
    pytest.mark.filterwarnings("default::ResourceWarning"),
]

WIDE, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a plain run, of a tuned one and of both."""
    folder = tmp_path_factory.mktemp("browser")
    plain, tuned = write_sample_run(folder / "plain", baseline=True), write_tuned_run(folder / "tuned")
    named = {"plain": [plain], "tuned": [tuned], "both": [plain, tuned]}
    for name, runs in named.items():
        write_page(runs, folder / f"{name}.html")
        write_page(runs, folder / f"{name}-brief.html", brief=True)
    return {name: (folder / f"{name}.html").as_uri() for name in named}


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def opened(browser, address, size=WIDE, scheme="light"):
    """Open a page on a screen of that size, and wait until it says that its charts are drawn."""
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(address)
    return drawn(browser)


def drawn(browser):
    """How many charts the page says it has drawn, once it says so."""
    from selenium.webdriver.support.ui import WebDriverWait

    ready = "return document.documentElement.dataset.drawn"
    return int(WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda page: page.execute_script(ready)))


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("plain", WIDE, "light"), ("plain", PHONE, "dark"), ("tuned", WIDE, "dark"), ("both", PHONE, "light")],
)
def test_all_charts_are_drawn(browser, pages, name, size, scheme):
    """As many drawings with something in them as charts; no errors; nothing sticks out at the side."""
    charts = opened(browser, pages[name], size, scheme)
    count = "return [...document.querySelectorAll('.chart')].filter(c => c.querySelector('.main-svg path')).length"
    assert browser.execute_script(count) == charts
    assert charts == len(browser.find_elements("css selector", ".chart"))
    assert charts >= {"plain": 6, "tuned": 7, "both": 8}[name]
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]


def test_the_theme_follows_the_system_and_the_button(browser, pages):
    """Colours are those of the theme, in charts too; the button changes them."""
    ink = "return getComputedStyle(document.body).color"
    chart = "return getComputedStyle(document.querySelector('#pool-chart .xtick text')).fill"
    opened(browser, pages["plain"], scheme="dark")
    dark = browser.execute_script(ink), browser.execute_script(chart)
    browser.execute_script("delete document.documentElement.dataset.drawn")
    browser.find_element("id", "theme").click()
    drawn(browser)
    light = browser.execute_script(ink), browser.execute_script(chart)
    assert dark[0] == dark[1] != light[0] == light[1]
    assert browser.find_element("id", "theme").get_attribute("aria-pressed") == "false"


def test_the_keyboard_reaches_everything(browser, pages):
    """From the top, Tab goes to the skip link, the button, every link, chart and table."""
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages["plain"])
    body = browser.find_element("tag name", "body")
    seen = []
    for _ in range(80):
        (browser.switch_to.active_element or body).send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        if active.tag_name == "body":
            break
        seen.append((active.tag_name, active.get_attribute("class"), active.get_attribute("id")))
    assert seen[0][:2] == ("a", "skip")
    assert seen[1] == ("button", "", "theme")
    charts = {element.get_attribute("id") for element in browser.find_elements("css selector", ".chart")}
    assert charts <= {name for _, _, name in seen}
    assert sum(kind == "scroll" for _, kind, _ in seen) == len(browser.find_elements("css selector", ".scroll"))


@pytest.mark.slow
def test_the_keyboard_zooms(browser, pages):
    """On a chart with the focus, + shows half as much, an arrow moves on, and 0 goes back to all."""
    opened(browser, pages["plain"])
    chart = browser.find_element("id", "gantt-1-chart")
    span = "return document.getElementById('gantt-1-chart')._fullLayout.xaxis.range"
    whole = browser.execute_script(span)
    chart.send_keys("+")
    near = browser.execute_script(span)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    chart.send_keys("\ue014")
    moved = browser.execute_script(span)
    assert moved[0] - near[0] == pytest.approx((near[1] - near[0]) / 4)
    rows = "return document.getElementById('gantt-1-chart')._fullLayout.yaxis.range"
    before = browser.execute_script(rows)
    chart.send_keys("0")
    assert browser.execute_script(span) == whole
    assert browser.execute_script(rows) == before
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("name", ["plain", "tuned"])
def test_a_brief_is_printed_on_one_side(browser, pages, name):
    """Without scripts it is complete, nothing sticks out on a phone, and it takes one side of paper."""
    address = pages[name].replace(".html", "-brief.html")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        )
        browser.get(address)
        printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(re.findall(rb"/Type /Page\b", base64.b64decode(printed["data"]))) == 1
    drawn_bars = "return document.querySelectorAll('svg [id$=-patch_2], svg [id$=-patch_3]').length"
    assert browser.execute_script(drawn_bars) >= 2
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_the_published_replay(browser, published, tmp_path):
    """The page of the whole Summit replay is under 8 MB and draws all charts."""
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
    assert page.stat().st_size < 8e6
    assert opened(browser, page.as_uri()) == 6
    assert browser.get_log("browser") == []
