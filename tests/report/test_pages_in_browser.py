"""Pages in a browser: charts drawn, accessible, nothing too wide, usable by keyboard, light and dark, and printed."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.campaigns.assess import AssessPlan, assessment_of
from bftrainer.campaigns.reproduce import Comparison, reproduction_page
from bftrainer.campaigns.verdict import MachinePrices
from bftrainer.report.assessment_page import assessment_page
from bftrainer.report.campaign_pages import advice_page, forecast_page, sweep_page
from bftrainer.report.finished_run import Holdings
from bftrainer.report.metrics import estimate
from bftrainer.report.page import page_bytes
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
from tests.campaigns.test_assess import machine
from tests.finished import write_sample_run, write_tuned_run
from tests.report.test_campaign_pages import HOSTILE, advice, forecast, rows_of

pytestmark = IN_BROWSER

LONG, RIGHT_TO_LEFT, EVIL = "n" * 300, "مهمة تدريب على العقد", "</script><b>&amp;$x_"
PIXELS = "return document.querySelector('#pool-chart canvas').toDataURL()"
ROOM = """
const chart = explorer.all[0], axis = chart.axes[0], pen = document.createElement('canvas').getContext('2d');
pen.font = '12px system-ui';
const places = axis._splits.map(split => chart.valToPos(split, 'x'));
const rooms = places.slice(1).map((place, number) => place - places[number]);
return [rooms, axis._values.map(text => pen.measureText(`${text}`.split('\\n')[0]).width)]"""


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A plain run and a tuned one."""
    folder = tmp_path_factory.mktemp("runs")
    plain = write_sample_run(folder / "plain", baseline=True, events=1500)
    return dict(zip(("plain", "tuned"), read_runs([plain, write_tuned_run(folder / "tuned")]), strict=True))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where a page of runs is written."""

    def write(*runs, brief=False):
        place = tmp_path_factory.mktemp("page") / "page.html"
        write_page(runs, place, brief=brief)
        return place.as_uri()

    return write


@pytest.fixture(scope="module")
def pages(runs, address):
    """Pages of the plain run, of the tuned one, of both, and of their briefs."""
    some = {"plain": [runs["plain"]], "tuned": [runs["tuned"]], "both": list(runs.values())}
    briefs = {f"{name}-brief": address(*some[name], brief=True) for name in ("plain", "tuned")}
    return {name: address(*some[name]) for name in some} | briefs


def many_tasks(run):
    """The run with 10,000 tasks, of which each holds a node of its own in ten intervals."""
    count, pieces = 10_000, 10
    tasks = {key: np.resize(column, count) for key, column in run.tasks.items()}
    tasks["name"] = np.array([f"T{number}" for number in range(count)], dtype=object)
    time_s = np.tile(np.linspace(0, run.window_s, 2 * pieces, endpoint=False), count)
    task, nodes = np.repeat(np.arange(count), 2 * pieces), np.tile([1, 0], count * pieces)
    return replace(run, tasks=tasks, holdings=Holdings(time_s, task, nodes))


def of_one_event(run):
    """The run as it was after its first event."""
    tasks = {key: column.copy() for key, column in run.tasks.items()}
    tasks["started_s"][:] = tasks["completed_s"][:] = np.nan
    empty = np.zeros(0)
    return replace(
        run,
        summary={**run.summary, "tasks_completed": 0, "makespan_s": None, "partial": True},
        steps={key: column[:1] for key, column in run.steps.items()},
        tasks=tasks,
        holdings=Holdings(empty, empty.astype(int), empty.astype(int)),
    )


def odd_names(run):
    """The run with names of tasks and of itself that are long, written from right to left, and look like markup."""
    names = run.tasks["name"].copy()
    names[:3] = LONG, RIGHT_TO_LEFT, EVIL
    return replace(run, name=f"{EVIL}{RIGHT_TO_LEFT}{LONG}", tasks={**run.tasks, "name": names})


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory):
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


def sizes(*fast):
    """Screens and schemes to show a page with: some, and the others where tests may take long."""
    every = [((width, 900), scheme) for width in WIDTHS for scheme in SCHEMES]
    return [*fast, *(pytest.param(*each, marks=pytest.mark.slow) for each in every if each not in fast)]


def check_look(browser, size):
    """axe-core finds nothing wrong, nothing sticks out, no error, and no request; rules that the page passes."""
    wrong, passed = violations(browser)
    assert wrong == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert (browser.get_log("browser"), asked_for(browser)) == ([], [])
    return passed


@pytest.mark.parametrize("name", ["plain", pytest.param("tuned", marks=pytest.mark.long), "both"])
@pytest.mark.parametrize(("size", "scheme"), sizes((WIDE, "dark"), (PHONE, "light")))
def test_pages_of_runs_are_drawn_and_accessible(browser, pages, name, size, scheme):
    """All charts are painted, colours contrast, and the keyboard reaches what scrolls."""
    charts = opened(browser, pages[name], size, scheme)
    assert browser.execute_script(PAINTED) == charts == 2
    assert {"color-contrast", "scrollable-region-focusable"} <= check_look(browser, size)


@pytest.mark.parametrize("name", ["assessment", "reproduction", "sweep", "forecast", "advice", "brief"])
@pytest.mark.parametrize(("size", "scheme"), sizes((WIDE, "dark"), (PHONE, "light")))
def test_pages_without_scripts_fit_and_take_the_theme(browser, pages, campaigns, name, size, scheme):
    """They are accessible too, and texts of their pictures have the colour of the page's."""
    shown(browser, campaigns.get(name, pages["plain-brief"]), size, scheme)
    check_look(browser, size)
    ink = browser.execute_script("return getComputedStyle(document.body).color")
    texts = "return [...document.querySelectorAll('figure svg text')].map(text => getComputedStyle(text).fill)"
    assert set(browser.execute_script(texts)) <= {ink}
    light = sum(map(int, re.findall(r"\d+", ink)[:3])) > 380
    assert light == (scheme == "dark")


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        pytest.param(of_one_event, WIDE, id="one event"),
        pytest.param(odd_names, PHONE, id="odd names"),
        pytest.param(many_tasks, WIDE, id="many tasks", marks=pytest.mark.slow),
    ],
)
def test_odd_runs_are_drawn(browser, address, runs, kind, size):
    """All is drawn, accessible, no wider than the screen, and without an error; names are no markup."""
    charts = opened(browser, address(kind(runs["plain"])), size)
    assert browser.execute_script(PAINTED) == charts == 2
    check_look(browser, size)
    bold = "return [document.querySelectorAll('b').length, document.querySelectorAll('.cards b').length]"
    assert len({*browser.execute_script(bold)}) == 1
    text = "return document.querySelector('[aria-label=\"Table: Tasks\"]').textContent"
    assert (LONG in browser.execute_script(text)) == (kind is odd_names)


def test_colours_follow_the_system(browser, pages):
    """Pages and canvases are light or dark as the system is, and change with it."""
    looks = []
    opened(browser, pages["plain"], scheme="dark")
    for scheme in ("dark", "light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        settled(browser)
        ink = browser.execute_script("return getComputedStyle(document.body).color")
        looks.append((ink, browser.execute_script(PIXELS)))
    assert looks[0] == looks[2]
    assert looks[0][0] != looks[1][0]
    assert looks[0][1] != looks[1][1]


@pytest.mark.long
def test_the_keyboard_reaches_everything(browser, pages):
    """From the top, Tab goes to the skip link, and every link, tool and table."""
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages["plain"])
    reachable = "return [...document.querySelectorAll('.scroll, select, .tools button')]"
    reachable += ".filter(each => each.checkVisibility() && each.tabIndex >= 0).length"
    body = browser.find_element("tag name", "body")
    reached = []
    for _ in range(120):
        (browser.switch_to.active_element or body).send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        if active.tag_name == "body":
            break
        in_tools = browser.execute_script("return !!arguments[0].closest('.tools')", active)
        reached.append((active.tag_name, "tools" if in_tools else active.get_attribute("class")))
    assert reached[0] == ("a", "skip")
    assert sum(kind in ("scroll", "tools") for _, kind in reached) == browser.execute_script(reachable)


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
    chart = browser.find_element("css selector", "#gantt-chart .u-over")
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


@pytest.mark.long
def test_times_are_those_of_the_site(browser, address, runs):
    """In the zone that the log tells, else in UTC, wherever the reader is; from the start where starts differ."""
    run = runs["plain"]
    later = {**run.summary, "window_start": "2021-02-11T00:00:00Z"}
    there = replace(run, summary={**run.summary, "node_log_zone": "America/Chicago"})
    texts = []
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        for some in ([run], [there], [run, replace(run, name="later", summary=later)]):
            opened(browser, address(*some))
            texts.append(browser.find_element("id", "seen").text)
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    assert [text.partition(" to ")[0] for text in texts] == [
        *("10 Feb 2021, 00:00:00", "9 Feb 2021, 18:00:00", "0.00 h after the start")
    ]
    assert [text.partition("(")[2] for text in texts] == ["UTC)", "America/Chicago)", ""]


@pytest.mark.long
def test_motion_is_reduced_on_request(browser, pages):
    """Pages scroll smoothly to a section, but not for those who ask for less motion; nothing else is animated."""
    behaviours = []
    for wish in ("reduce", "no-preference"):
        opened(browser, pages["plain"])
        media = {"features": [{"name": "prefers-reduced-motion", "value": wish}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        behaviours.append(browser.execute_script("return getComputedStyle(document.documentElement).scrollBehavior"))
        assert browser.execute_script("return document.getAnimations().length") == 0
    assert behaviours == ["auto", "smooth"]


@pytest.mark.long
def test_brief_and_tables_need_no_script(browser, pages, runs):
    """All pictures and every task are there, and no empty chart."""
    with without_scripts(browser):
        browser.get(pages["plain"])
    visible = "return [...document.querySelectorAll(arguments[0])].filter(each => each.checkVisibility()).length"
    assert browser.execute_script(visible, ".brief svg") == 2
    assert browser.execute_script(visible, '[aria-label="Table: Tasks"] tbody tr') == len(runs["plain"].tasks["name"])
    assert browser.execute_script(visible, ".chart, .tools") == 0
    assert browser.execute_script(visible, "noscript p") == 1


def count_sides(browser):
    """Sides of paper that the page takes."""
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    return len(re.findall(rb"/Type /Page\b", base64.b64decode(printed["data"])))


@pytest.mark.parametrize("name", ["plain-brief", "tuned-brief"])
def test_a_brief_is_printed_on_one_side(browser, pages, name):
    """Without scripts it is complete, and nothing sticks out on a phone."""
    with without_scripts(browser):
        shown(browser, pages[name], PHONE)
        assert count_sides(browser) == 1
    drawn_bars = "return document.querySelectorAll('svg [id$=-patch_2], svg [id$=-patch_3]').length"
    assert browser.execute_script(drawn_bars) >= 2
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]


def test_an_assessment_begins_with_one_printed_side(browser, campaigns):
    """The brief alone, verdict to caveats; the whole page takes more."""
    browser.get(campaigns["assessment"])
    whole = count_sides(browser)
    tables = "document.querySelectorAll('main > section:not(.brief)').forEach(each => each.remove())"
    browser.execute_script(tables)
    assert whole > count_sides(browser) == 1


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_pages_are_printed_whole(browser, address, runs, scheme):
    """On paper all is light, no region is cut, nothing is wider than the sheet or larger than text."""
    opened(browser, address(odd_names(runs["plain"])), scheme=scheme)
    dark_or_light = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"} | dark_or_light)
    cut = "return [...document.querySelectorAll('.scroll')].filter(each => each.checkVisibility() && "
    cut += "getComputedStyle(each).overflowY !== 'visible').length"
    assert browser.execute_script(cut) == 0
    split = "return [...document.querySelectorAll('figure')].map(each => getComputedStyle(each).breakInside)"
    assert set(browser.execute_script(split)) == {"avoid"}
    sizes = (
        "return [...document.querySelectorAll(arguments[0])].map(each => parseFloat(getComputedStyle(each).fontSize))"
    )
    captions = browser.execute_script(sizes, "figcaption, .soft, .cards .name, td")
    assert max(captions) < browser.execute_script(sizes, "body")[0]
    sheet = {"width": 700, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sheet)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 700
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""} | dark_or_light)
    assert count_sides(browser) > 3
    assert not browser.execute_script("return document.documentElement.classList.contains('light')")
    assert browser.get_log("browser") == []


def test_labels_of_seconds_do_not_run_into_each_other(browser, pages):
    """Where the charts show a minute and a half, on a screen and on a phone, dates have room between them."""
    for size in (WIDE, PHONE):
        opened(browser, pages["plain"], size)
        browser.execute_script("explorer.show(0, 98)")
        settled(browser)
        rooms, widths = browser.execute_script(ROOM)
        assert rooms
        assert min(rooms) > max(widths) + 8


@pytest.mark.long
def test_a_hundred_thousand_intervals_are_drawn_in_a_second(browser, address, runs):
    """Of 10,000 tasks with ten intervals each."""
    opened(browser, address(many_tasks(runs["plain"])))
    took = "const before = performance.now(); explorer.draw(); return performance.now() - before"
    assert browser.execute_script(took) < 1000
    assert browser.find_element("id", "gantt-count").text == "10,000 tasks in view"


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
    assert opened(browser, page.as_uri()) == browser.execute_script(PAINTED) == 2
    assert browser.get_log("browser") == []
