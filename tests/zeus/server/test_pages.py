"""The status pages and figures: what they show, that they are safe, and that they look right in a browser."""

import re
import shutil
from dataclasses import replace
from itertools import chain, product

import httpx
import pytest

from bftrainer.zeus.server.job_figures import describe_savings, figures_by_size, format_si
from bftrainer.zeus.server.messages import Arm, TrialRow
from tests.browser import SCHEMES, WIDTHS, asked_for, chromium, shown, violations, without_scripts
from tests.zeus.server.support import SPEC, run, server, serving, used

EVIL = "t<script>alert('x')</script>&\"'/../?a=1#b"


def fill(client):
    """Two jobs: one whose bandit plays, and whose last trial runs, one with a name that is not to be trusted."""
    for name in ("t-1", EVIL):
        assert client.post("/jobs", json=SPEC | {"job_id": name, "beta_knob": None}).status_code == 201
    for number in range(120):
        run(client, "t-1", lambda size, number=number: 100.0 * size + number, converged=number != 7)
    void = {"job_id": "t-1", "trial_number": 100, "reason": "the meter stood still"}
    assert client.post("/trials/void", json=void).status_code == 200
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    report = trial | used(64.0) | {"metric": 0.1, "current_epoch": 1}
    assert not client.post("/report", json=report).json()["stop_train"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A client of a server that has the two jobs."""
    with serving(tmp_path_factory.mktemp("pages")) as client:
        assert "No jobs here" in client.get("/").text
        fill(client)
        yield client


def words(html):
    """The words of a page, a space for each tag."""
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)).split())


@pytest.mark.long
def test_jobs_and_one_of_them(filled):
    """The list links to each job, which shows stage, beliefs, figures by batch size, savings and the latest trials."""
    assert "t-1 – MAB 1 × V100 121 120" in words(filled.get("/").text)
    job = filled.get("/", params={"job_id": "t-1"}).text
    for shown_words in (
        "Stage MAB",
        r"Mean cost Give or take Results 8 8\d\d(\.\d+)? J \d",
        r"By batch size Means .* Batch size Results .* 8 1\d\d 1\d\d 8\d\d\.?\d? J",
        r"121 \d+ MAB Dispatched – – 28 J 1 s 0.1 1 ",
        r"100 \d+ MAB Voided yes ",
        r"Saved energy -?\d+(\.\d+)? k?J \(-?\d+\.\d%\), time -?[\d.]+ h \(",
        "How it was made bftrainer bso jobs t-1",
    ):
        assert re.search(shown_words, words(job)), shown_words
    assert len(re.findall("<tr><td", job.partition('<h2 id="section4">Latest trials')[2])) == 100
    other = words(filled.get("/", params={"job_id": EVIL}).text)
    assert "Saved not known: 0 of the 2 runs with the default" in other


def test_pages_are_self_contained_and_escaped(filled):
    """No script, nothing from elsewhere, and names are text whatever they look like."""
    for params, status in (({}, 200), ({"job_id": EVIL}, 200), ({"job_id": f"{EVIL}no"}, 404), ({"after": "a"}, 200)):
        answer = filled.get("/status", params=params)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "<script" not in answer.text
        assert "t&lt;script&gt;" in answer.text
        assert not re.search(r"""(src|href)=["'](https?:)?//|@import|url\(|style=""", answer.text)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    (link,) = re.findall(r'href="([^"]*job_id=t%3C[^"]*)"', filled.get("/").text)
    assert "t&lt;script" in filled.get(f"/{link}").text


def test_lists_are_short(tmp_path):
    """A hundred jobs a page, by name; many batch sizes take a line. With `compat` zeus the page is at /status alone."""
    with serving(tmp_path, compat="zeus") as client:
        for number in range(101):
            job = {"job_id": f"t-{number:03}", "batch_sizes": list(range(1, 10_001 if number == 7 else 20))}
            client.post("/jobs", json=SPEC | job)
        assert client.get("/").status_code == 404
        first = client.get("/status").text
        assert "12, 13, 14, ..., 10000 (10,000 in all)" in words(first)
        assert len(client.get("/status", params={"job_id": "t-007"}).text) < 30_000
        listed = r'<a href="[^"]*job_id=([^"&]+)"'
        assert re.findall(listed, first) == [f"t-{number:03}" for number in range(100)]
        (more,) = re.findall(r'href="([^"]+)">More jobs', first)
        assert re.findall(listed, client.get(f"/status{more}").text) == ["t-100"]


# --- figures -----------------------------------------------------------------------------------------------------


def results_of(size, converged, *values):
    """Results that used so much energy, in 36 times as many seconds."""
    row = TrialRow("t-1", size, 1, "MAB", "Succeeded", 0.0, converged=converged)
    return [replace(row, cost=3 * energy, energy=energy, time=36 * energy) for energy in values]


def test_figures_by_batch_size():
    """Means over the trials that reached the target; trials without a result, or that are void, do not count."""
    rows = [*results_of(64, True, 2.0, 4.0, 9.0), *results_of(8, False, 8.0)]
    running = replace(rows[0], cost=None, converged=None)
    sizes = figures_by_size([*rows[:2], replace(rows[2], excluded="Voided"), rows[3], running])
    assert list(sizes) == [8, 64]
    assert (sizes[64].results, sizes[64].converged, sizes[8].converged, sizes[8].means) == (2, 2, 0, {})
    assert sizes[64].means == {"cost": 9.0, "energy": 3.0, "time": 108.0}


def test_savings_by_hand():
    """Three runs with 16 used 10 less each than the default's mean, a failure 25: 5 J are saved."""
    groups = results_of(32, True, 90.0, 100.0, 110.0), results_of(16, True, *[90.0] * 3), results_of(8, False, 25.0)
    assert describe_savings(figures_by_size(chain(*groups)), 32) == "energy 5 J (0.8%), time 0.05 h (0.8%)"
    # One run says little of a mean.
    few = results_of(32, True, 1.0) + results_of(32, False, 9.0)
    assert describe_savings(figures_by_size(few), 32).startswith("not known: 1 of the 2 runs")


def test_beliefs_are_costs():
    """Rewards are negative costs; what is certain has no deviation, what is unknown neither; texts are short."""
    about = {"batch_size": 8, "reward_precision": None, "observations": 2}
    beliefs = {(-5.0, 0.25): (5.0, 2.0), (-5.0, None): (5.0, 0.0), (0.0, 0.0): (None, None)}
    for (mean, precision), shown_j in beliefs.items():
        arm = Arm(mean=mean, precision=precision, **about)
        assert (arm.mean_j, arm.deviation_j) == shown_j
    numbers = {None: "–", 1234.5: "1.234 kJ", -2e7: "-20 MJ", 0.5: "0.5 J"}
    assert {number: format_si(number, "J") for number in numbers} == numbers


# --- in a browser ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromedriver") is None, reason="Chromium is not installed")
@pytest.mark.xdist_group("browser")
# What the browser's client library leaves open is its own affair.
@pytest.mark.filterwarnings("default::ResourceWarning")
def test_pages_are_accessible(tmp_path):
    """On any screen axe finds nothing wrong, nothing is reported, asked of others or too wide; all is in a landmark."""
    with server(tmp_path, f"sqlite:///{tmp_path / 'bso.db'}") as running, chromium() as browser:
        with httpx.Client(base_url=running.url) as client:
            fill(client)
        # However long the words are, nothing is wider than the window.
        long = {"job_id": f"t-{'W' * 390}", "gpu_model": "G" * 390, "batch_sizes": list(range(1, 1001))}
        assert httpx.post(f"{running.url}/jobs", json=SPEC | long).is_success
        paths = ("/", "/?after=zzz", "/?job_id=t-1", "/?job_id=none", f"/?job_id={long['job_id']}")
        for scheme, width, path in product(SCHEMES, WIDTHS[:2], paths):
            shown(browser, running.url + path, (width, 900), scheme)
            found, passed = violations(browser)
            assert found == [], (scheme, width, path)
            assert len(passed) > 10
            outside = "return [...document.body.children].map(each => each.tagName)"
            assert browser.execute_script(outside) == ["MAIN", "FOOTER"]
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (width, path)
            assert [each for each in asked_for(browser) if not each.startswith(running.url)] == []
            # That there is no such job is an answer with status 404.
            reported = [each["message"] for each in browser.get_log("browser") if "job_id=none" not in each["message"]]
            assert reported == [], (scheme, width, path)
        # Let through by its hash, the style puts numbers at the right, also without scripts.
        with without_scripts(browser):
            shown(browser, f"{running.url}/?job_id=t-1")
            cell = browser.find_element("css selector", "[aria-label*=trials] td:nth-child(2)")
            assert cell.value_of_css_property("text-align") == "right"
