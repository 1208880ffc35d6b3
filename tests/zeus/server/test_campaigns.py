"""Load, death and a full disk: nothing is lost, counted twice, or half-written."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.waiting import until
from tests.zeus.server.books import check_books as audit
from tests.zeus.server.databases import running_postgresql
from tests.zeus.server.load import LOADED, load, register
from tests.zeus.server.processes import server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
# Of each of 64 clients at once.
CYCLES = int(os.environ.get("BFTRAINER_SOAK_CYCLES", "20"))
ROOT = Path(__file__).parents[3]
JOB = {"job_id": LOADED["job_id"]}


def rows(url):
    """All trials of the job, by number."""
    found = []
    with httpx.Client(base_url=url, timeout=60) as client:
        while page := client.get("/state/trials", params=JOB | {"after": len(found)}).json():
            found += page
    return {row["trial_number"]: row for row in found}


def check_books(url, told):
    """Trials are numbered without a gap, and what was acknowledged is there, once, with a number of its own."""
    trials = rows(url)
    assert sorted(trials) == list(range(1, len(trials) + 1))
    handed_out = [number for each in told for number in each["handed_out"]]
    assert len(set(handed_out)) == len(handed_out)
    assert set(handed_out) <= set(trials)
    acknowledged = {number for each in told for number in each["acknowledged"]}
    finished = {number: row for number, row in trials.items() if row["status"] == "Succeeded"}
    assert acknowledged <= set(finished)
    assert sorted(row["observation"] for row in finished.values()) == list(range(1, len(finished) + 1))
    for row in trials.values():
        whole = [row[name] is not None for name in ("cost", "energy", "time", "converged", "observation")]
        assert all(whole) if row["status"] == "Succeeded" else not any(whole)
    job = httpx.get(f"{url}/state/job", params=JOB, timeout=60).json()
    assert (job["trials"], job["observations"]) == (len(trials), len(finished))
    assert job["min_cost"] == min(row["cost"] for row in finished.values())
    # All observations of the arm that was told of last are in its belief.
    last = max(finished.values(), key=lambda row: row["observation"])
    if last["type"] == "MAB":
        own = [row["cost"] for row in finished.values() if row["batch_size"] == last["batch_size"]]
        (arm,) = [arm for arm in job["arms"] if arm["batch_size"] == last["batch_size"]]
        assert (arm["observations"], arm["mean"]) == (len(own), pytest.approx(-sum(own) / len(own), rel=1e-9))
    return trials


def test_64_clients_on_postgresql(tmp_path):
    """All at once on one job, CYCLES each: nothing is lost, doubled or contradicted, and the books agree to the bit."""
    with running_postgresql() as database:
        with server(tmp_path, database.url, "--log-level", "warning") as running:
            register(running.url)
            with ThreadPoolExecutor(64) as pool:
                lives = [pool.submit(load, running.url, CYCLES, seed) for seed in range(64)]
                told = [vars(life.result()) for life in lives]
            assert [(each["broken"], each["refused"]) for each in told] == [(None, [])] * 64
            assert sum(len(each["acknowledged"]) for each in told) == 64 * CYCLES
            assert len(check_books(running.url, told)) == 64 * CYCLES
        audit(database.url)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of twelve megabytes: the log that SQLite writes ahead takes four."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount a file system can fill one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path):
    """Write a file until there is no room left, page by page."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_full_disk(small_disk, tmp_path):
    """Reports that cannot be written are answered 503 and change nothing; with room again they are taken."""
    with server(tmp_path, f"sqlite:///{small_disk / 'bso.db'}") as running:
        register(running.url)
        ballast = small_disk / "ballast"
        assert vars(load(running.url, 20, 0))["refused"] == []
        fill(ballast)
        full = vars(load(running.url, 30, 1))
        assert set(full["refused"]) == {503}
        answer = httpx.get(f"{running.url}/jobs/batch_size", params=JOB)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json() == {"message": "The database cannot be used at the moment; try again."}
        assert httpx.get(f"{running.url}/healthz").status_code == 200
        ballast.unlink()
        after = vars(load(running.url, 20, 2))
        assert (after["broken"], after["refused"], len(after["acknowledged"])) == (None, [], 20)
        check_books(running.url, [after])


def test_a_database_that_goes_away(tmp_path):
    """While PostgreSQL is down requests are answered 503, and the server is not ready; then all goes on."""
    with running_postgresql() as database, server(tmp_path, database.url) as running:
        register(running.url)
        assert vars(load(running.url, 20, 0))["refused"] == []
        database.stop()
        try:
            assert vars(load(running.url, 3, 1))["refused"] == [503] * 3
            # It is tried once a second at most.
            until(lambda: httpx.get(f"{running.url}/readyz").status_code == 503)
            assert httpx.get(f"{running.url}/status").status_code == 503
            assert httpx.get(f"{running.url}/healthz").status_code == 200
            assert "bftrainer_bso_requests_total" in httpx.get(f"{running.url}/metrics").text
        finally:
            database.start()
        until(lambda: httpx.get(f"{running.url}/readyz").status_code == 200)
        after = vars(load(running.url, 20, 2))
        assert (after["broken"], after["refused"], len(after["acknowledged"])) == (None, [], 20)
        check_books(running.url, [after])
