"""The status page: what it shows, that it is safe, and that it looks right in a browser without scripts."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from itertools import product

import httpx
import pytest

from bftrainer.zeus.server.pages import SERIES, chart
from bftrainer.zeus.server.state_messages import TrialRow
from tests.browser import SCHEMES, WIDTHS, asked_for, chromium, shown, violations
from tests.waiting import until
from tests.zeus.server.processes import free_port, server
from tests.zeus.server.support import SPEC, run, serving

EVIL = "t<script>alert('x')</script>&\"'/../?a=1#b"


def fill(client):
    """Two jobs: one whose bandit plays, one with a name that is not to be trusted."""
    for name in ("t-1", EVIL):
        assert client.post("/jobs", json=SPEC | {"job_id": name, "beta_knob": None}).status_code == 201
    for number in range(120):
        run(client, "t-1", lambda size, number=number: 100.0 * size + number, converged=number != 7)
    client.get("/jobs/batch_size", params={"job_id": "t-1"})


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


def test_jobs_and_one_of_them(filled):
    """The list links to each job, which shows stage, arms, costs and the latest trials."""
    page = filled.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "t-1 MAB 121 120" in text_of(page.text)
    job = filled.get("/", params={"job_id": "t-1"}).text
    assert "Stage MAB" in text_of(job)
    assert re.search(r"Mean cost believed give or take Results 8 8\d\d(\.\d+)? J \d", text_of(job))
    assert job.count('<path class="mark') == 120 + 3
    assert job.count(" hollow") == 1 + 1  # the style's own
    assert re.findall(r"<text[^>]*>([a-z]+)</text>", job) == ["result", "cost"]
    assert job.count("<tr>") == 1 + 3 + 1 + 100
    (older,) = re.findall(r'id="older" href="([^"]+)"', job)
    rest = filled.get(older.replace("&amp;", "&")).text
    assert rest.count("<tr>") == 1 + 3 + 1 + 21
    assert "Older trials" not in rest


def test_pages_are_self_contained_and_escaped(filled):
    """No script, nothing from elsewhere, and names are text whatever they look like."""
    for params in ({}, {"job_id": EVIL}, {"job_id": f"{EVIL}no"}):
        answer = filled.get("/status", params=params)
        assert answer.status_code == (404 if params.get("job_id", "").endswith("no") else 200)
        assert "<script" not in answer.text
        assert "t&lt;script&gt;" in answer.text
        assert not re.search(r"""(src|href)=["'](https?:)?//|@import|url\(""", answer.text)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    (link,) = re.findall(r'href="([^"]*job_id=t%3C[^"]*)"', filled.get("/").text)
    assert "t&lt;script" in filled.get(link).text


def test_the_front_page_is_not_the_published_servers(tmp_path):
    """With `compat` zeus the page is at /status alone."""
    with serving(tmp_path, compat="zeus") as client:
        assert client.get("/").status_code == 404
        assert client.get("/status").status_code == 200


def test_many_jobs_take_several_pages(tmp_path):
    """A hundred a page, in the order of their names."""
    with serving(tmp_path) as client:
        for number in range(101):
            client.post("/jobs", json=SPEC | {"job_id": f"t-{number:03}"})
        first = client.get("/").text
        assert (first.count("job_id="), "t-099" in first, "t-100" in first) == (100, True, False)
        (more,) = re.findall(r'id="more" href="([^"]+)"', first)
        assert client.get(more).text.count("job_id=") == 1


def test_many_batch_sizes_take_one_line(tmp_path):
    """The list shows the first and the last of them."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC | {"batch_sizes": list(range(1, 10_001))})
        assert "12, 13, 14, ..., 10000 (10,000 in all)" in text_of(client.get("/").text)
        page = client.get("/status", params={"job_id": "t-1"}).text
        assert len(re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)) < 10_000


def result(number, cost, size=8, converged=True):
    """A trial with a result."""
    row = {"job_id": "t", "batch_size": size, "trial_number": number, "type": "MAB", "status": "Succeeded"}
    times = {"started": 0.0, "ended": 1.0, "time": 1.0, "energy": 1.0}
    return TrialRow(**row, **times, cost=cost, converged=converged, observation=number)


def test_the_chart_by_hand():
    """Costs grow upwards from 0, results go rightwards, each batch size has its colour and its shape."""
    drawn = chart([result(5, 0.0), result(6, 50.0, 16, False), result(9, 100.0)])
    assert [(mark.x, mark.y, mark.converged) for mark in drawn.marks] == [
        (90.0, 210.0, True),
        (240.0, 110.0, False),
        (690.0, 10.0, True),
    ]
    assert drawn.series == [(8, 0), (16, 1)]
    assert [mark.series for mark in drawn.marks] == [0, 1, 0]
    assert len(set(SERIES.values())) == len(SERIES)
    assert drawn.across == [(90.0, "5"), (390.0, "7"), (690.0, "9")]
    (alone,) = chart([result(1, 0.0)]).marks
    assert (alone.x, alone.y) == (390.0, 210.0)


FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1000,1600"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    """Chromium without scripts, driven as WebDriver says.

    References
    ----------
    W3C, "WebDriver" (2018), sections 8 to 17.
    """

    def __init__(self, port, folder):
        options = {
            "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
            # 2: blocked.
            "prefs": {"profile.managed_default_content_settings.javascript": 2},
        }
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        asked = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self.session = f"/session/{self.say('POST', '/session', asked)['sessionId']}"
        # A click does not wait for the page that it leads to; looking for what is there does.
        self.say("POST", f"{self.session}/timeouts", {"implicit": 30_000})

    def say(self, method, path, body=None):
        answer = self.http.request(method, path, json={} if body is None and method == "POST" else body)
        assert answer.status_code == 200, answer.text
        return answer.json()["value"]

    def open(self, address):
        self.say("POST", f"{self.session}/url", {"url": address})

    def find(self, selector):
        """What matches a CSS selector, as paths."""
        found = self.say("POST", f"{self.session}/elements", {"using": "css selector", "value": selector})
        return [f"{self.session}/element/{reference}" for each in found for reference in each.values()]

    def texts(self, selector):
        return [self.say("GET", f"{each}/text") for each in self.find(selector)]

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.say("GET", f"{self.session}/screenshot")))

    def close(self):
        self.say("DELETE", self.session)
        self.http.close()


def ready(port):
    """Whether the driver at a port takes orders."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/status").json()["value"]["ready"]
    except httpx.HTTPError:
        return False


@pytest.fixture
def browser(tmp_path):
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium chromium-driver)")
    port = free_port()
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: ready(port))
        browser = Browser(port, tmp_path)
        yield browser
        browser.close()
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_the_page_in_a_browser(browser, tmp_path):
    """Without scripts a browser lists jobs, follows the link to one, and shows arms, trials and a chart in colour."""
    with server(tmp_path, f"sqlite+aiosqlite:///{tmp_path / 'bso.db'}") as running:
        with httpx.Client(base_url=running.url) as client:
            fill(client)
        browser.open(running.url)
        assert browser.texts("#jobs tbody td:nth-child(2)") == ["MAB", "Pruning"]
        assert EVIL in browser.texts("#jobs a")
        (link,) = browser.find('#jobs a[href$="job_id=t-1"]')
        browser.say("POST", f"{link}/click")
        assert browser.texts("#stage") == ["MAB"]
        assert browser.texts("#arms tbody td:first-child") == ["8", "16", "32"]
        assert browser.texts("#trials tbody td:first-child") == [str(number) for number in range(121, 21, -1)]
        assert len(browser.find("#costs .mark")) == 120
        # Let through by its hash, the style puts numbers at the right.
        (cell, *_) = browser.find("#trials tbody td:nth-child(2)")
        assert browser.say("GET", f"{cell}/css/text-align") == "right"
        assert [browser.say("GET", f"{each}/rect")["width"] for each in browser.find("#legend svg")] == [12.0] * 3
        browser.picture(tmp_path / "job.png")
        # However long the words are, nothing is wider than the window, and names have room.
        long = {"job_id": f"t-{'W' * 390}", "gpu_model": "G" * 390, "batch_sizes": list(range(1, 1001))}
        assert httpx.post(f"{running.url}/jobs", json=SPEC | long).status_code == 201
        browser.open(running.url)
        widths = [browser.say("GET", f"{each}/rect")["width"] for each in browser.find("#jobs td:first-child, #jobs")]
        assert (max(widths) <= 1000, min(widths) >= 150) == (True, True)
        browser.open(f"{running.url}/?job_id={long['job_id']}")
        rects = [browser.say("GET", f"{each}/rect") for each in browser.find("h1, dd")]
        assert max(each["x"] + each["width"] for each in rects) <= 1000
        asked = [entry for entry in running.entries() if entry.get("message") == "answered"]
    from matplotlib.image import imread

    picture = imread(tmp_path / "job.png")[..., :3]
    assert ((picture.max(axis=2) - picture.min(axis=2)) > 0.3).sum() > 500
    assert {entry["status"] for entry in asked if entry["path"] != "/favicon.ico"} <= {200, 201}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromedriver") is None, reason="Chromium is not installed")
def test_pages_are_accessible(tmp_path):
    """On any screen axe finds nothing wrong, nothing is reported, asked of others or too wide; all is in `main`."""
    with server(tmp_path, f"sqlite+aiosqlite:///{tmp_path / 'bso.db'}") as running, chromium() as browser:
        with httpx.Client(base_url=running.url) as client:
            fill(client)
        for scheme, width, path in product(SCHEMES, WIDTHS, ("/", "/?job_id=t-1", "/?job_id=none")):
            shown(browser, running.url + path, (width, 900), scheme)
            found, passed = violations(browser)
            assert found == [], (scheme, width, path)
            assert len(passed) > 10
            outside = "return [...document.body.children].map(each => each.tagName)"
            assert browser.execute_script(outside) == ["MAIN"]
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            assert [each for each in asked_for(browser) if not each.startswith(running.url)] == []
            # That there is no such job is an answer with status 404.
            reported = [each["message"] for each in browser.get_log("browser") if "job_id=none" not in each["message"]]
            assert reported == [], (scheme, width, path)
