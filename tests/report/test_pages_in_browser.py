"""Pages in a browser: charts drawn, accessible, nothing too wide, usable by keyboard, light and dark, and printed."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bftrainer import run_replay
from bftrainer.campaigns.reproduce import figure_table, reproduction_page
from bftrainer.report.assessment_page import assessment_page
from bftrainer.report.campaign_pages import advice_page, forecast_page, sweep_page
from bftrainer.report.finished_run import Holdings
from bftrainer.report.metrics import estimate
from bftrainer.report.page import page_bytes, render_pages
from bftrainer.report.run_page import first_side, run_page
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
    drawn,
    opened,
    settled,
    shown,
    violations,
    without_scripts,
)
from tests.report.conftest import HOSTILE, change, count_sides
from tests.report.test_campaign_pages import advice, forecast, rows_of

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


def reproduction():
    """The page of an evaluation."""
    lines = {name: {level: estimate([0.1, 0.2]) for level in (HOSTILE, "b")} for name in (HOSTILE, "b", "c")}
    about = {"label": "change in work done", "axis": "way to decide", "reading": "What it shows."}
    claim = {"what": "best efficiency U", "paper": "up to 93 %", "here": "94.83 %", "comparable": "Not: other nodes."}
    texts = {"paper": "Paper", "source": "Somebody, 2021", "settings": HOSTILE, "caveats": [HOSTILE]}
    return reproduction_page(texts | {"reported": [claim, claim]}, [figure_table(lines, about)], HOSTILE)


def sweep():
    """The page of a sweep, one point of which failed."""
    factors = {"objective": [HOSTILE, "b"], "a": [1, 2, 3], "max_tasks": [5, 10], "solver": ["dp", "cbc"]}
    rows, varied = rows_of(factors, lambda v, s: (0.5 + v[1] / 10 + s / 100, v[1]), 2, failed=[(("b", 1, 5, "dp"), 0)])
    return sweep_page("s.toml", rows, varied, HOSTILE)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where a page with this content is."""

    def write(content):
        place = tmp_path_factory.mktemp("page") / "page.html"
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place.as_uri()

    return write


@pytest.fixture(scope="module")
def pages(runs, assessment, address):
    """`pages("plain")` is where a page of that kind is: those of runs have charts, the others no script."""
    run, tuned = runs
    kinds = {
        "plain": lambda: run_page([run]).html(),
        "tuned": lambda: run_page([tuned]).html(),
        "both": lambda: run_page(runs).html(),
        "one event": lambda: run_page([of_one_event(run)]).html(),
        "odd names": lambda: run_page([odd_names(run)]).html(),
        "many tasks": lambda: run_page([many_tasks(run)]).html(),
        "plain brief": lambda: render_pages([first_side(run)]),
        "tuned brief": lambda: render_pages([first_side(tuned)]),
        "assessment": lambda: page_bytes(assessment_page(assessment | {"command": f"bftrainer assess {HOSTILE}"})),
        "reproduction": reproduction,
        "sweep": sweep,
        "forecast": lambda: forecast_page(forecast([3600.0, 7200.0, 30 * 3600.0, float("inf")]), HOSTILE),
        "advice": lambda: advice_page(advice(sentence=HOSTILE), HOSTILE),
    }
    return cache(lambda name: address(kinds[name]()))


WITH_CHARTS = ("plain", "tuned", "both", "one event", "odd names", "many tasks")
SCRIPTLESS = ("plain brief", "assessment", "reproduction", "sweep", "forecast", "advice")
QUICK = ((WIDE[0], "dark"), (PHONE[0], "light"))
LOOKS = [
    pytest.param(name, (width, 900), scheme, marks=[] if is_quick else [pytest.mark.slow])
    for name in (*WITH_CHARTS, *SCRIPTLESS)
    for width in WIDTHS
    for scheme in SCHEMES
    for is_quick in [(width, scheme) in QUICK and name not in ("tuned", "many tasks")]
]


@pytest.mark.parametrize(("name", "size", "scheme"), LOOKS)
def test_pages_are_accessible(browser, pages, name, size, scheme):
    """axe-core finds nothing wrong, nothing sticks out, no error, no request; charts are painted, pictures inked."""
    shown(browser, pages(name), size, scheme)
    if name in WITH_CHARTS:
        assert drawn(browser) == browser.execute_script(PAINTED) == 2
    wrong, passed = violations(browser)
    assert wrong == []
    assert name not in WITH_CHARTS or {"color-contrast", "scrollable-region-focusable"} <= passed
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert (browser.get_log("browser"), asked_for(browser)) == ([], [])
    ink = browser.execute_script("return getComputedStyle(document.body).color")
    texts = "return [...document.querySelectorAll('figure svg text')].map(text => getComputedStyle(text).fill)"
    assert set(browser.execute_script(texts)) <= {ink}
    assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 380) == (scheme == "dark")


def test_names_are_no_markup(browser, pages):
    """Names of tasks are in their table as they are, and make no element."""
    opened(browser, pages("odd names"))
    bold = "return [document.querySelectorAll('b').length, document.querySelectorAll('.cards b').length]"
    assert len({*browser.execute_script(bold)}) == 1
    text = "return document.querySelector('[aria-label=\"Table: Tasks\"]').textContent"
    assert all(name in browser.execute_script(text) for name in (LONG, RIGHT_TO_LEFT, EVIL))


def test_colours_follow_the_system(browser, pages):
    """Pages and canvases are light or dark as the system is, and change with it."""
    looks = []
    opened(browser, pages("plain"), scheme="dark")
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

    opened(browser, pages("plain"))
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

    opened(browser, pages("plain"))
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
def test_times_are_those_of_the_site(browser, address, run):
    """In the zone that the log tells, else in UTC, wherever the reader is; from the start where starts differ."""
    later = change(run, name="later", window_start="2021-02-11T00:00:00Z")
    there = change(run, node_log_zone="America/Chicago")
    texts = []
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        for some in ([run], [there], [run, later]):
            opened(browser, address(run_page(some).html()))
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
        opened(browser, pages("plain"))
        media = {"features": [{"name": "prefers-reduced-motion", "value": wish}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        behaviours.append(browser.execute_script("return getComputedStyle(document.documentElement).scrollBehavior"))
        assert browser.execute_script("return document.getAnimations().length") == 0
    assert behaviours == ["auto", "smooth"]


@pytest.mark.long
def test_brief_and_tables_need_no_script(browser, pages, run):
    """All pictures and every task are there, and no empty chart."""
    with without_scripts(browser):
        browser.get(pages("plain"))
    visible = "return [...document.querySelectorAll(arguments[0])].filter(each => each.checkVisibility()).length"
    assert browser.execute_script(visible, ".brief svg") == 2
    assert browser.execute_script(visible, '[aria-label="Table: Tasks"] tbody tr') == len(run.tasks["name"])
    assert browser.execute_script(visible, ".chart, .tools") == 0
    assert browser.execute_script(visible, "noscript p") == 1


def printed_sides(browser):
    """Sides of paper that the page takes."""
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    return count_sides(base64.b64decode(printed["data"]))


@pytest.mark.parametrize("name", ["plain brief", "tuned brief"])
def test_a_brief_is_printed_on_one_side(browser, pages, name):
    """Without scripts it is complete, and nothing sticks out on a phone."""
    with without_scripts(browser):
        shown(browser, pages(name), PHONE)
        assert printed_sides(browser) == 1
    drawn_bars = "return document.querySelectorAll('svg [id$=-patch_2], svg [id$=-patch_3]').length"
    assert browser.execute_script(drawn_bars) >= 2
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]


def test_an_assessment_begins_with_one_printed_side(browser, pages):
    """The brief alone, verdict to caveats; the whole page takes more."""
    browser.get(pages("assessment"))
    whole = printed_sides(browser)
    tables = "document.querySelectorAll('main > section:not(.brief)').forEach(each => each.remove())"
    browser.execute_script(tables)
    assert whole > printed_sides(browser) == 1


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_pages_are_printed_whole(browser, pages, scheme):
    """On paper all is light, no region is cut, nothing is wider than the sheet or larger than text."""
    opened(browser, pages("odd names"), scheme=scheme)
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
    assert printed_sides(browser) > 3
    assert not browser.execute_script("return document.documentElement.classList.contains('light')")
    assert browser.get_log("browser") == []


def test_labels_of_seconds_do_not_run_into_each_other(browser, pages):
    """Where the charts show a minute and a half, on a screen and on a phone, dates have room between them."""
    for size in (WIDE, PHONE):
        opened(browser, pages("plain"), size)
        browser.execute_script("explorer.show(0, 98)")
        settled(browser)
        rooms, widths = browser.execute_script(ROOM)
        assert rooms
        assert min(rooms) > max(widths) + 8


@pytest.mark.long
def test_a_hundred_thousand_intervals_are_drawn_in_a_second(browser, pages):
    """Of 10,000 tasks with ten intervals each."""
    opened(browser, pages("many tasks"))
    took = "const before = performance.now(); explorer.draw(); return performance.now() - before"
    assert browser.execute_script(took) < 1000
    assert browser.find_element("id", "gantt-count").text == "10,000 tasks in view"


@pytest.mark.slow
@pytest.mark.parametrize(("log", "most_bytes"), [("sample", 1e6), ("summit", 2e6)])
def test_pages_of_whole_replays_are_small(browser, request, tmp_path, log, most_bytes):
    """That of the sample has at most 1 MB, that of the whole Summit log 2 MB, and all charts are drawn."""
    inputs = {}
    if log == "summit":
        place = request.getfixturevalue("published")
        bounds, scalability = (place / f"hps-shufflenet-{name}-1000J.pkl" for name in ("Jbnd", "JNPs"))
        inputs = {"node_log": place / "ndstat-10sdn6-evt.tar.gz", "tasks": bounds, "scalability": scalability}
        inputs["skip_events"] = 1000
    page = run_replay(**inputs, solver="dp", baseline=False).report(tmp_path / "page.html")
    assert page.stat().st_size <= most_bytes
    assert opened(browser, page.as_uri()) == browser.execute_script(PAINTED) == 2
    assert browser.get_log("browser") == []
