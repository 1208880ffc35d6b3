"""The explorer in a browser: linked, fast with many intervals, and whole for runs and names of every kind."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.report.finished_run import Holdings
from bftrainer.report.run_page import run_page
from bftrainer.runs.run_files import read_run
from tests.browser import IN_BROWSER, PAINTED, PHONE, WIDE, chromium, opened, settled, violations, without_scripts
from tests.finished import write_sample_run

pytestmark = IN_BROWSER

LONG, RIGHT_TO_LEFT, EVIL = "n" * 300, "مهمة تدريب على العقد", "</script><b>&amp;$x_"
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
def run(tmp_path_factory):
    """A run of the sample, in which tasks complete."""
    return read_run(write_sample_run(tmp_path_factory.mktemp("explorer") / "run", events=1500))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where a page of runs is written."""

    def written(*runs):
        place = tmp_path_factory.mktemp("page") / "page.html"
        place.write_text(run_page(runs).html(), encoding="utf-8")
        return place.as_uri()

    return written


def many_tasks(run, count, pieces):
    """The run with so many tasks, of which each holds a node of its own in so many intervals."""
    tasks = {key: np.resize(column, count) for key, column in run.tasks.items()}
    tasks["name"] = np.array([f"T{number}" for number in range(count)], dtype=object)
    time_s = np.tile(np.linspace(0, run.window_s, 2 * pieces, endpoint=False), count)
    task, held = np.repeat(np.arange(count), 2 * pieces), np.tile([1, 0], count * pieces)
    return replace(run, tasks=tasks, holdings=Holdings(time_s, task, held))


def of_one_event(run):
    """The run as it was after its first event."""
    tasks = {key: column.copy() for key, column in run.tasks.items()}
    tasks["started_s"][:] = tasks["completed_s"][:] = np.nan
    empty = np.zeros(0)
    return replace(
        run,
        summary={**run.summary, "tasks_completed": 0, "makespan_s": None, "partial": True},
        steps={key: column[:1] for key, column in run.steps.items()},
        decisions={key: column[:0] for key, column in run.decisions.items()},
        tasks=tasks,
        holdings=Holdings(empty, empty.astype(int), empty.astype(int)),
    )


def odd_names(run):
    """The run with names of tasks and of itself that are long, written from right to left, and look like markup."""
    names = run.tasks["name"].copy()
    names[:3] = LONG, RIGHT_TO_LEFT, EVIL
    return replace(run, name=f"{EVIL}{RIGHT_TO_LEFT}{LONG}", tasks={**run.tasks, "name": names})


@pytest.mark.parametrize(
    "kind",
    [
        "one event",
        "odd names",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ten thousand tasks", "twenty runs")),
    ],
)
def test_every_kind_of_run_is_shown(browser, address, run, kind):
    """All is drawn, accessible, no wider than the screen, and without an error."""
    runs = {
        "one event": lambda: [of_one_event(run)],
        "odd names": lambda: [odd_names(run)],
        "ten thousand tasks": lambda: [many_tasks(run, 10_000, 10)],
        "twenty runs": lambda: [replace(run, name=f"run {number}") for number in range(20)],
    }[kind]()
    size = PHONE if kind == "odd names" else WIDE
    charts = opened(browser, address(*runs), size)
    assert browser.execute_script(PAINTED) == charts == 3
    assert browser.get_log("browser") == []
    assert violations(browser)[0] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    if kind == "odd names":
        assert LONG in browser.execute_script(
            "return document.querySelector('[aria-label=\"Table: Tasks\"]').textContent"
        )
        assert browser.execute_script("return document.querySelectorAll('b').length") == len(
            browser.find_elements("css selector", ".cards b")
        )


@pytest.mark.long
def test_a_hundred_thousand_intervals_are_drawn_in_a_second(browser, address, run):
    """Of 10,000 tasks with ten intervals each."""
    opened(browser, address(many_tasks(run, 10_000, 10)))
    took = "const before = performance.now(); explorer.draw(); return performance.now() - before"
    assert browser.execute_script(took) < 1000
    assert browser.find_element("id", "gantt-count").text == "10,000 tasks in view"


@pytest.mark.long
def test_a_row_says_what_it_held(browser, address, run):
    """Where the mouse points, the task and the time in which it held nodes, or that it held none."""
    from selenium.webdriver.common.action_chains import ActionChains

    opened(browser, address(run))
    chart = browser.find_element("css selector", "#gantt-chart .u-over")
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", chart)
    ActionChains(browser).move_to_element(chart).perform()
    assert re.search(r"held (\d+ nodes? from .* to|no node then)", browser.find_element("id", "gantt-tip").text)


@pytest.mark.long
def test_times_are_those_of_the_site(browser, address, run):
    """In the zone that the log tells, else in UTC, wherever the reader is; from the start where starts differ."""
    later = {**run.summary, "window_start": "2021-02-11T00:00:00Z"}
    there = replace(run, summary={**run.summary, "node_log_zone": "America/Chicago"})
    texts, zones = [], []
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        for runs in ([run], [there], [run, replace(run, name="later", summary=later)]):
            opened(browser, address(*runs))
            first, _, last = browser.find_element("id", "seen").text.partition(" to ")
            texts.append(first)
            zones.append(last.partition("(")[2])
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    assert run.summary["window_start"].startswith("2021-02-10T00:00:00")
    assert texts == ["10 Feb 2021, 00:00:00", "9 Feb 2021, 18:00:00", "0.00 h after the start"]
    assert zones == ["UTC)", "America/Chicago)", ""]


@pytest.mark.long
def test_nothing_moves_where_motion_is_reduced(browser, address, run):
    """Pages scroll smoothly to a section, but not for those who ask for less motion; nothing else is animated."""
    found = []
    for wish in ("reduce", "no-preference"):
        opened(browser, address(run))
        media = {"features": [{"name": "prefers-reduced-motion", "value": wish}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        found.append(browser.execute_script("return getComputedStyle(document.documentElement).scrollBehavior"))
        assert browser.execute_script("return document.getAnimations().length") == 0
    assert found == ["auto", "smooth"]


@pytest.mark.long
def test_without_scripts_brief_and_tables_are_whole(browser, address, run):
    """All pictures and every task are there, and no empty chart."""
    place = address(run)
    with without_scripts(browser):
        browser.get(place)
    visible = "return [...document.querySelectorAll(arguments[0])].filter(each => each.checkVisibility()).length"
    assert browser.execute_script(visible, ".brief svg") == 2
    assert browser.execute_script(visible, '[aria-label="Table: Tasks"] tbody tr') == len(run.tasks["name"])
    assert browser.execute_script(visible, ".chart, .tools") == 0
    assert browser.execute_script(visible, "noscript p") == 1


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_printed_whole(browser, address, run, scheme):
    """On paper all is light, no region is cut, nothing is wider than the sheet, and the screen is as before."""
    opened(browser, address(odd_names(run)), scheme=scheme)
    dark_or_light = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"} | dark_or_light)
    cut = "return [...document.querySelectorAll('.scroll')].filter(each => each.checkVisibility() && "
    cut += "getComputedStyle(each).overflowY !== 'visible').length"
    assert browser.execute_script(cut) == 0
    split = "return [...document.querySelectorAll('figure')].map(each => getComputedStyle(each).breakInside)"
    assert set(browser.execute_script(split)) == {"avoid"}
    sheet = {"width": 700, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sheet)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 700
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""} | dark_or_light)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert len(re.findall(rb"/Type /Page\b", base64.b64decode(printed["data"]))) > 3
    assert not browser.execute_script("return document.documentElement.classList.contains('light')")
    assert browser.get_log("browser") == []


def test_labels_of_seconds_do_not_run_into_each_other(browser, run, address):
    """Where the charts show a minute and a half, on a screen and on a phone, dates have room between them."""
    browser.get(address(run))
    for size in (WIDE, PHONE):
        browser.set_window_size(*size)
        settled(browser)
        browser.execute_script("explorer.show(0, 98)")
        settled(browser)
        rooms, widths = browser.execute_script(ROOM)
        assert len(rooms) > 1
        assert min(rooms) > max(widths) + 8
