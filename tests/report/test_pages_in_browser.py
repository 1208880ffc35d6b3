"""Pages in a browser: charts drawn, accessible, nothing too wide, usable by keyboard, light and dark, and printed."""

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
from tests import browser as web
from tests.report.conftest import HOSTILE, change, count_sides
from tests.report.test_campaign_pages import advice, forecast, rows_of

pytestmark = web.IN_BROWSER

LONG, RIGHT_TO_LEFT, EVIL = "n" * 300, "مهمة تدريب على العقد", "</script><b>&amp;$x_"
PIXELS = "return document.querySelector('#pool-chart canvas').toDataURL()"


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    with web.chromium() as driver:
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
def pages(runs, assessment, tmp_path_factory):
    """`pages("plain")` is where a page of that kind is: those of runs have charts, the others no script."""
    run, tuned = runs
    later = change(run, name="later", window_start="2021-02-11T00:00:00Z")
    kinds = {
        "plain": lambda: run_page([run]).html(),
        "tuned": lambda: run_page([tuned]).html(),
        "both": lambda: run_page(runs).html(),
        "elsewhere": lambda: run_page([change(run, node_log_zone="America/Chicago")]).html(),
        "later": lambda: run_page([run, later]).html(),
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

    @cache
    def write(name):
        content, place = kinds[name](), tmp_path_factory.mktemp("page") / "page.html"
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place.as_uri()

    return write


WITH_CHARTS = ("plain", "tuned", "both", "one event", "odd names", "many tasks")
SCRIPTLESS = ("plain brief", "assessment", "reproduction", "sweep", "forecast", "advice")
QUICK = ((web.WIDE[0], "dark"), (web.PHONE[0], "light"))
LOOKS = [
    pytest.param(name, (width, 900), scheme, marks=[] if is_quick else [pytest.mark.slow])
    for name in (*WITH_CHARTS, *SCRIPTLESS)
    for width in web.WIDTHS
    for scheme in web.SCHEMES
    for is_quick in [(width, scheme) in QUICK and name not in ("tuned", "many tasks")]
]


@pytest.mark.parametrize(("name", "size", "scheme"), LOOKS)
def test_pages_are_accessible(browser, pages, name, size, scheme):
    """axe-core finds nothing wrong, nothing sticks out, no error, no request; charts are painted, pictures inked."""
    web.shown(browser, pages(name), size, scheme)
    if name in WITH_CHARTS:
        assert web.drawn(browser) == browser.execute_script(web.PAINTED) == 2
    wrong, passed = web.violations(browser)
    assert wrong == []
    assert name not in WITH_CHARTS or {"color-contrast", "scrollable-region-focusable"} <= passed
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert (browser.get_log("browser"), web.asked_for(browser)) == ([], [])
    ink = browser.execute_script("return getComputedStyle(document.body).color")
    texts = "return [...document.querySelectorAll('figure svg text')].map(text => getComputedStyle(text).fill)"
    assert set(browser.execute_script(texts)) <= {ink}
    assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 380) == (scheme == "dark")


def test_pages_follow_the_system(browser, pages):
    """Pages and canvases are light or dark as the system is, and change with it; who asks for it gets less motion."""
    looks = []
    web.opened(browser, pages("plain"), scheme="dark")
    for scheme, wish in (("dark", "reduce"), ("light", "no-preference"), ("dark", "reduce")):
        wishes = [("prefers-color-scheme", scheme), ("prefers-reduced-motion", wish)]
        media = {"features": [{"name": name, "value": value} for name, value in wishes]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        web.settled(browser)
        ink = browser.execute_script("return getComputedStyle(document.body).color")
        scrolls = browser.execute_script("return getComputedStyle(document.documentElement).scrollBehavior")
        looks.append((ink, scrolls, browser.execute_script(PIXELS)))
        assert browser.execute_script("return document.getAnimations().length") == 0
    assert looks[0] == looks[2]
    assert all(one != other for one, other in zip(*looks[:2], strict=True))
    assert [scrolls for _, scrolls, _ in looks[:2]] == ["auto", "smooth"]


@pytest.mark.long
def test_the_keyboard_reaches_everything(browser, pages):
    """From the top, Tab goes to the skip link, and every link, tool and table."""
    from selenium.webdriver.common.keys import Keys

    web.opened(browser, pages("plain"))
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

    web.opened(browser, pages("plain"))
    tools = browser.find_elements("css selector", ".tools button")
    whole, before = browser.execute_script(web.SEEN), browser.execute_script(PIXELS)
    tools[0].send_keys("\ue007")
    web.settled(browser)
    near = browser.execute_script(web.SEEN)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    assert browser.execute_script(PIXELS) != before
    tools[3].send_keys("\ue007")
    moved = browser.execute_script(web.SEEN)
    assert moved[0] - near[0] == pytest.approx((near[1] - near[0]) / 4)
    tools[4].send_keys("\ue007")
    web.settled(browser)
    assert browser.execute_script(web.SEEN) == whole
    assert browser.execute_script(PIXELS) == before
    chart = browser.find_element("css selector", "#gantt-chart .u-over")
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", chart)
    web.settled(browser)  # a drag that begins while the page still scrolls is lost
    ActionChains(browser).move_to_element(chart).click_and_hold().move_by_offset(150, 0).release().perform()
    web.settled(browser)
    begin, end = browser.execute_script(web.SEEN)
    assert whole[0] < begin < end < whole[1]
    assert browser.execute_script(PIXELS) != before
    ranges = browser.execute_script("return explorer.all.map(chart => [chart.scales.x.min, chart.scales.x.max])")
    assert len({tuple(each) for each in ranges}) == 1
    assert browser.get_log("browser") == []


@pytest.mark.long
def test_times_are_those_of_the_site(browser, pages):
    """In the zone that the log tells, else in UTC, wherever the reader is; from the start where starts differ."""
    shown = {
        "plain": ("10 Feb 2021, 00:00:00", "UTC)"),
        "elsewhere": ("9 Feb 2021, 18:00:00", "America/Chicago)"),
        "later": ("0.00 h after the start", ""),
    }
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        for name, (begin, zone) in shown.items():
            web.opened(browser, pages(name))
            text = browser.find_element("id", "seen").text
            assert (text.partition(" to ")[0], text.partition("(")[2]) == (begin, zone)
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


@pytest.mark.long
def test_brief_and_tables_need_no_script(browser, pages, run):
    """All pictures and every task are there, and no empty chart."""
    with web.without_scripts(browser):
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


@pytest.mark.parametrize("name", ["plain brief", "tuned brief", "assessment"])
def test_a_brief_is_printed_on_one_side(browser, pages, name):
    """Without scripts it is complete, and nothing sticks out on a phone; of an assessment the tables follow it."""
    with web.without_scripts(browser):
        web.shown(browser, pages(name), web.PHONE)
        whole = printed_sides(browser)
    browser.execute_script("document.querySelectorAll('main > section:not(.brief)').forEach(each => each.remove())")
    assert (printed_sides(browser), whole > 1) == (1, name == "assessment")
    bars = "return document.querySelectorAll('svg [id$=-patch_2], svg [id$=-patch_3]').length"
    assert browser.execute_script(bars) >= 2
    assert browser.execute_script("return document.documentElement.scrollWidth") <= web.PHONE[0]


@pytest.mark.long
@pytest.mark.parametrize("scheme", web.SCHEMES)
def test_pages_are_printed_whole(browser, pages, scheme):
    """On paper all is light, no region is cut, nothing is wider than the sheet or larger than text."""
    web.opened(browser, pages("odd names"), scheme=scheme)
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


@pytest.mark.long
def test_a_hundred_thousand_intervals_are_drawn_in_a_second(browser, pages):
    """Of 10,000 tasks with ten intervals each."""
    web.opened(browser, pages("many tasks"))
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
    assert web.opened(browser, page.as_uri()) == browser.execute_script(web.PAINTED) == 2
    assert browser.get_log("browser") == []
