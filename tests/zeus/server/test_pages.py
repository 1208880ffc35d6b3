"""The status pages: what they show, that they are safe, and that they look right in a browser without scripts."""

from __future__ import annotations

import re
import shutil
from itertools import product

import httpx
import pytest

from tests.browser import SCHEMES, WIDTHS, asked_for, chromium, shown, violations, without_scripts
from tests.waiting import until
from tests.zeus.server.processes import server
from tests.zeus.server.support import SPEC, run, serving, used

EVIL = "t<script>alert('x')</script>&\"'/../?a=1#b"


def fill(client):
    """Two jobs: one whose bandit plays, and whose last trial runs, one with a name that is not to be trusted."""
    for name in ("t-1", EVIL):
        assert client.post("/jobs", json=SPEC | {"job_id": name, "beta_knob": None}).status_code == 201
    for number in range(120):
        run(client, "t-1", lambda size, number=number: 100.0 * size + number, converged=number != 7)
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    for epoch in (1, 2, 3):
        report = trial | used(64.0 * epoch) | {"metric": 0.1 * epoch, "current_epoch": epoch}
        assert not client.post("/report", json=report).json()["stop_train"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A client of a server that has the two jobs."""
    with serving(tmp_path_factory.mktemp("pages")) as client:
        assert "No jobs here" in client.get("/").text
        fill(client)
        yield client


def text_of(html):
    """The words of a page, a space for each tag."""
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)).split())


def rows_of(html):
    """Rows of the table of trials."""
    (table,) = re.findall(r'<table id="trials">.*?</table>', html, re.DOTALL)
    return re.findall(r"<tr>\s*<td>", table)


def page_of(client, **params):
    """The words of a page."""
    return text_of(client.get("/", params=params).text)


@pytest.mark.long
def test_jobs_and_one_of_them(filled):
    """The list links to each job, which shows stage, beliefs, figures by batch size and the latest trials."""
    page = filled.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "t-1 – MAB 1 × V100 121 120" in text_of(page.text)
    job = filled.get("/", params={"job_id": "t-1"}).text
    assert "Stage MAB" in text_of(job)
    assert re.search(r"Mean cost Give or take Results 8 8\d\d(\.\d+)? J \d", text_of(job))
    assert re.search(r"By batch size Batch size Results .* 8 1\d\d 1\d\d 8\d\d\.?\d? J", text_of(job))
    assert re.search(r"121 \d+ MAB Dispatched ", text_of(job))
    assert len(rows_of(job)) == 100


def test_a_page_starts_nothing_and_draws_nothing(tmp_path):
    """Whoever looks at a job has it hand out what it would have."""
    sizes = []
    for looks in (False, True):
        with serving(tmp_path / str(looks)) as client:
            client.post("/jobs", json=SPEC | {"beta_knob": None})
            for number in range(12):
                trial, _ = run(client, "t-1", 100.0 + 7 * number % 40)
                sizes.append(trial["batch_size"])
                assert not looks or client.get("/", params={"job_id": "t-1"}).status_code == 200
    assert sizes[:12] == sizes[12:]


def test_savings(filled):
    """Energy and time against the default, in one line."""
    assert re.search(
        r"Saved energy -?\d+(\.\d+)? k?J \(-?\d+\.\d%\), time -?[\d.]+ h \(", page_of(filled, job_id="t-1")
    )
    assert "Saved not known: 0 of the 2 runs with the default" in page_of(filled, job_id=EVIL)


def test_pages_are_self_contained_and_escaped(filled):
    """No script, nothing from elsewhere, and names are text whatever they look like."""
    hostile = ({}, {"job_id": EVIL}, {"job_id": f"{EVIL}no"}, {"after": "a"})
    for params in hostile:
        answer = filled.get("/status", params=params)
        assert answer.status_code == (404 if params.get("job_id", "").endswith("no") else 200)
        assert "<script" not in answer.text
        assert "t&lt;script&gt;" in answer.text
        assert not re.search(r"""(src|href)=["'](https?:)?//|@import|url\(|style=""", answer.text)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    (link,) = re.findall(r'href="([^"]*job_id=t%3C[^"]*)"', filled.get("/").text)
    assert "t&lt;script" in filled.get(link).text


def test_the_front_page_is_not_the_published_servers(tmp_path):
    """With `compat` zeus the page is at /status alone."""
    with serving(tmp_path, compat="zeus") as client:
        assert client.get("/").status_code == 404
        assert client.get("/status").status_code == 200


def listed(html):
    """Names of the jobs in a list."""
    return re.findall(r'<a href="[^"]*job_id=([^"&]+)"', html)


def test_many_jobs_take_several_pages(tmp_path):
    """A hundred a page, in the order of their names."""
    with serving(tmp_path) as client:
        for number in range(101):
            client.post("/jobs", json=SPEC | {"job_id": f"t-{number:03}"})
        first = client.get("/").text
        assert listed(first) == [f"t-{number:03}" for number in range(100)]
        (more,) = re.findall(r'id="more" href="([^"]+)"', first)
        assert listed(client.get(more).text) == ["t-100"]
        assert client.get("/", params={"after": "\0"}).status_code == 422


def test_many_batch_sizes_take_one_line(tmp_path):
    """The list shows the first and the last of them."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC | {"batch_sizes": list(range(1, 10_001))})
        assert "12, 13, 14, ..., 10000 (10,000 in all)" in text_of(client.get("/").text)
        page = client.get("/status", params={"job_id": "t-1"}).text
        assert len(re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)) < 10_000


def test_a_voided_trial_counts_in_no_figure(tmp_path):
    """And its row says that it is one."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC)
        for cost in (10.0, 15.0):
            run(client, "t-1", cost)
        void = {"job_id": "t-1", "trial_number": 2, "reason": "the meter stood still"}
        assert client.post("/trials/void", json=void).status_code == 200
        page = page_of(client, job_id="t-1")
        assert "2 8 Exploration Voided yes 15 J" in page
        assert re.search(r"By batch size Batch size .* 16 \(default\) 1 1 10 J", page)
        client.delete("/jobs", params={"job_id": "t-1"})
        gone = client.get("/", params={"job_id": "t-1"})
        assert (gone.status_code, "There is no job t-1." in text_of(gone.text)) == (404, True)


BROWSED = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="Chromium is not installed"),
    pytest.mark.xdist_group("browser"),
    # What the browser's client library leaves open is its own affair.
    pytest.mark.filterwarnings("default::ResourceWarning"),
]


@pytest.fixture(scope="module")
def browsed(tmp_path_factory):
    """A server with the two jobs, and a browser."""
    folder = tmp_path_factory.mktemp("browsed")
    with server(folder, f"sqlite:///{folder / 'bso.db'}") as running, chromium() as browser:
        with httpx.Client(base_url=running.url) as client:
            fill(client)
        yield running, browser


def texts(browser, selector):
    """Texts of what matches a CSS selector; none while a page goes and another comes."""
    from selenium.common.exceptions import StaleElementReferenceException

    try:
        return [each.text for each in browser.find_elements("css selector", selector)]
    except StaleElementReferenceException:
        return []


def typed(browser, selector, *keys, selected, wanted):
    """Type into what matches a selector, and wait until the page that comes has the wanted texts."""
    browser.find_element("css selector", selector).send_keys(*keys)
    until(lambda: texts(browser, selected) == wanted)


@pytest.mark.parametrize("_", [pytest.param(None, marks=BROWSED)])
def test_pages_in_a_browser(browsed, _):
    """Without scripts a browser follows the link to a job by keyboard."""
    from selenium.webdriver.common.keys import Keys

    running, browser = browsed
    with without_scripts(browser):
        shown(browser, running.url)
        assert texts(browser, "#jobs tbody td:nth-child(3)") == ["MAB", "Pruning"]
        assert EVIL in texts(browser, "#jobs a")
        typed(browser, "#jobs a", Keys.ENTER, selected="#stage", wanted=["MAB"])
        assert texts(browser, "#arms tbody td:first-child") == ["8", "16", "32"]
        assert texts(browser, "#trials tbody td:first-child") == [str(number) for number in range(121, 21, -1)]
        # Let through by its hash, the style puts numbers at the right.
        cell = browser.find_element("css selector", "#trials tbody td:nth-child(2)")
        assert cell.value_of_css_property("text-align") == "right"
        assert texts(browser, "#saved")[0].startswith("energy ")
    asked = [entry for entry in running.entries() if entry.get("message") == "answered"]
    assert {entry["status"] for entry in asked if entry["path"] != "/favicon.ico"} <= {200, 201}


@pytest.mark.parametrize("_", [pytest.param(None, marks=BROWSED)])
def test_pages_are_accessible(browsed, _):
    """On any screen axe finds nothing wrong, nothing is reported, asked of others or too wide; all is in `main`."""
    running, browser = browsed
    # However long the words are, nothing is wider than the window.
    long = {"job_id": f"t-{'W' * 390}", "gpu_model": "G" * 390, "batch_sizes": list(range(1, 1001))}
    assert httpx.post(f"{running.url}/jobs", json=SPEC | long).is_success
    paths = ("/", "/?after=zzz", "/?job_id=t-1", "/?job_id=none")
    paths += (f"/?job_id={long['job_id']}",)
    for scheme, width, path in product(SCHEMES, WIDTHS[:2], paths):
        shown(browser, running.url + path, (width, 900), scheme)
        found, passed = violations(browser)
        assert found == [], (scheme, width, path)
        assert len(passed) > 10
        outside = "return [...document.body.children].map(each => each.tagName)"
        assert browser.execute_script(outside) == ["MAIN"]
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (width, path)
        assert [each for each in asked_for(browser) if not each.startswith(running.url)] == []
        # That there is no such job is an answer with status 404.
        reported = [each["message"] for each in browser.get_log("browser") if "job_id=none" not in each["message"]]
        assert reported == [], (scheme, width, path)
