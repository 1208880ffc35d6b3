"""`bftrainer bso`: what a server keeps is listed, shown, written and deleted; a sample job is tuned."""

import csv
import json

import httpx
import pyarrow.csv
import pytest

from bftrainer.zeus.server import TrialRow
from bftrainer.zeus.server import client as client_module
from bftrainer.zeus.server.app import create_app
from bftrainer.zeus.server.job_figures import write_job
from tests.cli.conftest import assert_matches, check_refusal
from tests.zeus.server.support import SPEC, in_folder, listening, run

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server with two jobs: one whose bandit plays, and one of which nothing is known."""
    folder = tmp_path_factory.mktemp("bso")
    (folder / "tokens").write_text(TOKEN)
    with listening(create_app(in_folder(folder, token_file=str(folder / "tokens")))) as url:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers) as client:
            for name in ("t-1", "t-2"):
                assert client.post("/jobs", json=SPEC | {"job_id": name, "beta_knob": None}).status_code == 201
            for number in range(10):
                run(client, "t-1", lambda size, number=number: 100.0 * size + number)
        yield url


@pytest.fixture
def bso(call, running, here):
    """`bso("jobs")` runs `bftrainer bso jobs` on the server, with its token."""
    (here / "tokens").write_text(TOKEN)

    def asked(*words):
        return call("bso", *words, "--server", running, "--token-file", "tokens")

    return asked


def test_jobs_are_listed_and_shown(bso):
    """A line a job; of one its settings, state, and what is believed of each batch size."""
    done = bso("jobs")
    assert (done.status, done.err) == (0, "")
    heading, first, second = done.out.splitlines()
    assert heading.split()[:4] == ["job", "stage", "trials", "results"]
    assert first.split() == ["t-1", "MAB", "10", "10", "8", "16", "32", "8", "801"]
    assert second.split() == ["t-2", "Pruning", "0", "0", "8", "16", "32", "-", "-"]
    assert [job["spec"]["job_id"] for job in bso("jobs", "--json").json] == ["t-1", "t-2"]
    done = bso("jobs", "t-1")
    assert done.status == 0
    for pattern in (r"stage +MAB", r"target +at least 0.5 within 100 epochs", r"stops at +never"):
        assert_matches(rf"{pattern}\n", done.out)
    assert_matches(r"saved +energy -?\d.*J \(.*\), time -?\d.*h \(.*\)\n", done.out)
    *_, eight, sixteen, large = done.out.splitlines()
    assert [line.split()[0] for line in (eight, sixteen, large)] == ["8", "16", "32"]
    assert sixteen.split()[1] == "1,602"  # explored first and fifth of all
    assert bso("jobs", "t-1", "--json").json["observations"] == 10


def test_trials_are_exported(bso, here):
    """All of them, as JSON and CSV; an existing file stays unless it may be replaced."""
    for name in ("t.json", "t.csv"):
        done = bso("jobs", "t-1", "-o", name)
        assert (done.status, done.out) == (0, f"Wrote 10 trials to {name}.\n")
    document = json.loads((here / "t.json").read_text())
    rows = document["trials"]
    assert document["job"]["spec"]["job_id"] == "t-1"
    assert [row["trial_number"] for row in rows] == list(range(1, 11))
    assert pyarrow.csv.read_csv(here / "t.csv")["cost"].to_pylist() == [row["cost"] for row in rows]
    check_refusal(bso("jobs", "t-1", "-o", "t.json"), "t.json: ", "--force")
    assert bso("jobs", "t-1", "-o", "t.json", "--force").status == 0
    check_refusal(bso("jobs", "t-1", "-o", "t.xlsx"))
    assert bso("jobs", "t-2", "-o", "none.csv").out == "Wrote 0 trials to none.csv.\n"


@pytest.mark.parametrize("sign", ["=", "\r"])
def test_names_are_no_formulas(tmp_path, sign):
    """A spreadsheet that opens an export computes nothing that a job's name says."""
    name = f"{sign}HYPERLINK(A1)"
    assert write_job(tmp_path / "t.csv", None, [TrialRow(name, 8, 1, "MAB", "Dispatched", -1.0)]) == 1
    with (tmp_path / "t.csv").open(newline="") as file:
        written = next(csv.DictReader(file))["job_id"]
    assert written == (f"'{name}" if sign != "\r" else repr(f"'{name}"))


def test_a_job_is_deleted(bso, running):
    """Not without a yes."""
    spec = SPEC | {"job_id": "t-3"}
    httpx.post(f"{running}/jobs", json=spec, headers={"Authorization": f"Bearer {TOKEN}"})
    check_refusal(bso("jobs", "t-3", "--delete"), "Expected --yes to delete t-3 with its 0 trials.")
    assert bso("jobs", "t-3", "--delete", "--yes").out == "Deleted t-3.\n"
    check_refusal(bso("jobs", "t-3", "--delete", "--yes"), "'t-3'. Did you mean 't-")


def test_servers_that_do_not_answer(call, here, running, monkeypatch):
    """No server, no token, a wrong address and no certificates are told in one line; how one's own server is started.

    The error of the system names neither the variable nor the file of certificates.
    """
    monkeypatch.setenv("BFTRAINER_BSO_SERVER", "")
    monkeypatch.setattr(client_module, "USUAL_ADDRESS", "http://127.0.0.1:9")
    check_refusal(call("bso", "jobs"), "refused. `bftrainer bso serve` starts one.\n", status=1)
    check_refusal(call("bso", "jobs", "--server", "http://127.0.0.1:9"), "http://127.0.0.1:9: No answer", status=1)
    check_refusal(call("bso", "jobs", "--server", running), "answered 401: Expected a bearer token", status=1)
    check_refusal(call("bso", "jobs", "--server", "localhost:8000"))
    check_refusal(call("bso", "jobs", "--token-file", "none"))
    (here / "nope.pem").write_text("no certificate")
    for name in ("none.pem", "nope.pem"):
        monkeypatch.setenv("SSL_CERT_FILE", name)
        said = f"SSL_CERT_FILE {name}: cannot be read as certificates ("
        check_refusal(call("bso", "jobs", "--server", "https://127.0.0.1:9"), said)


def test_a_trial_is_voided(bso):
    """The job is what it is without it; trials that are not there are refused."""
    done = bso("jobs", "t-1", "--void", "10", "--reason", "why not")
    assert (done.status, done.out) == (0, "Voided trial 10 of t-1, which is in stage MAB now.\n")
    assert_matches(r"trials +10, 10 with a result, 1 voided\n", bso("jobs", "t-1").out)
    refused = bso("jobs", "t-1", "--void", "99", "--reason", "why not")
    check_refusal(refused, "Error: Could not find trial 99 of job t-1.\n")


def test_tokens_are_added_and_revoked(call, here, running):
    """The token alone is printed, so that it can be kept; lists have ids, roles and ends."""

    def token_command(*words):
        return call("bso", "token", *words, "--token-file", "file")

    done = token_command("add", "alice", "--role", "trainer", "--days", 90)
    token = done.out.removesuffix("\n")
    assert (done.status, len(token), token in (here / "file").read_text()) == (0, 43, False)
    assert_matches(r"^alice is let in as trainer \([0-9a-f]{8}\) for 90 days\.\n$", done.err)
    (row,) = token_command("list", "--json").json
    assert (row["user"], row["role"], row["valid"]) == ("alice", "trainer", True)
    listed = rf"\n{row['id']} +alice +trainer +\d{{4}}-\d\d-\d\d \d\d:\d\d UTC +yes\n"
    assert_matches(listed, token_command("list").out)
    (here / "mine").write_text(f"{token}\n")
    assert call("bso", "jobs", "--server", running, "--token-file", "mine").status == 1
    assert token_command("revoke", row["id"]).out == f"Revoked {row['id']} of alice, trainer.\n"
    check_refusal(token_command("revoke", "alice"), "Unknown user or token 'alice'.")
    check_refusal(token_command("add", "b ob"), "USER begins with a letter or digit, has at most 64 of them")


@pytest.mark.long
def test_batch_sizes_are_tried_and_one_is_chosen(call, here):
    """Each run has its line; the second one tries another batch size; nothing is left behind."""
    pytest.importorskip("sklearn")
    before = sorted(here.iterdir())
    done = call("bso", "quickstart", "--runs", 2, "--json")
    assert done.status == 0, done.err
    assert_matches(r"run +1: batch size +16, +\d+ epochs, .* J: reached the target", done.err)
    assert_matches(r"run +2: batch size +8, ", done.err)
    assert [each["batch_size"] for each in done.json["batch_sizes"]] == [8, 16]
    assert done.json["default"] == 16
    assert done.json["chosen"] in (8, 16)
    assert sorted(here.iterdir()) == before
