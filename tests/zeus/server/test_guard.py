"""Who gets in, how much may be sent, and what answers to what is wrong give away."""

import base64
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bftrainer.errors import BatchSizeServerError
from bftrainer.zeus.server import BatchSizeClient
from bftrainer.zeus.server.store import JobStore
from tests.waiting import until
from tests.zeus.server.support import SPEC, run, serving

TOKENS = ("0123456789abcdef", "fedcba9876543210")
DOCS = Path(__file__).parents[3] / "docs" / "server.md"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A client of a server that asks for tokens; it has no jobs."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "tokens").write_text(f"# of the cluster\n{TOKENS[0]}\n\n{TOKENS[1]}\n")
    with serving(folder, token_file=str(folder / "tokens")) as client:
        yield client


def basic(password):
    """Credentials as browsers send them."""
    return {"Authorization": f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"}


STRANGERS = [
    {},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer 0123456789abcdeF"},
    {"Authorization": f"Token {TOKENS[0]}"},
    {"Authorization": "Basic !!!"},
    {"Authorization": b"Bearer \xff\xfe"},
    basic("0123456789abcde"),
]


@pytest.mark.long
@pytest.mark.parametrize("headers", STRANGERS)
def test_without_a_token_nothing_is_answered(closed, headers):
    """Every route but the health checks answers 401, in the same words, whatever is sent and whether it exists."""
    routes = [("GET", "/"), ("POST", "/jobs"), ("GET", "/jobs/batch_size"), ("POST", "/report"), ("GET", "/state/jobs")]
    for method, path in [*routes, ("GET", "/openapi.json")]:
        for body in (b"{", b'{"batch_sizes": 1}') if method == "POST" else (None,):
            answer = closed.request(method, path, headers=headers, content=body)
            assert (answer.status_code, answer.json()) == (401, {"message": "Expected a bearer token."})
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert closed.get("/healthz", headers=headers).status_code == 200
    assert closed.get("/readyz", headers=headers).json() == {"message": "ready"}


def test_each_token_gets_in(closed):
    """As a bearer token, or as a browser's password, which lets nobody change anything: other sites have it sent."""
    for headers in (*({"Authorization": f"Bearer {token}"} for token in TOKENS), basic(TOKENS[1])):
        assert closed.get("/state/jobs", headers=headers).json() == []
    for method, path in (("GET", "/jobs/batch_size?job_id=t"), ("POST", "/jobs"), ("DELETE", "/jobs?job_id=t")):
        answer = closed.request(method, path, headers=basic(TOKENS[0]))
        assert (answer.status_code, "browser's password" in answer.json()["message"]) == (403, True)
    within = closed._transport
    assert BatchSizeClient("http://s", TOKENS[0], transport=within).jobs() == []
    for token, said in ((None, r"Expected a bearer token\.$"), ("0" * 32, "one that was given is unknown, revoked")):
        with pytest.raises(BatchSizeServerError, match=f"answered 401: .*{said}"):
            BatchSizeClient("http://s", token, transport=within).jobs()


def test_long_requests_are_turned_away(tmp_path):
    """10 MB are refused, whether the request says so or not; the next one is answered."""
    body = json.dumps(SPEC | {"gpu_model": "x" * 10_000_000}).encode()
    with serving(tmp_path) as client:
        for content in (body, iter([body[:600_000], body[600_000:]])):
            answer = client.post("/jobs", content=content, headers=JSON)
            assert (answer.status_code, answer.json()) == (413, {"message": "Content Too Large"})
        assert client.post("/jobs", json=SPEC).status_code == 201


def test_bodies_that_are_none(tmp_path):
    """What cannot be read is answered in JSON, without what was sent and without what the server is made of."""
    changes = (*({"job_id": name} for name in ("t\ud800", "t\0", "t" * 401)), {"number_of_gpus": 10**30})
    bodies = ["", "[]", b"\xff\xfe\x00", "[" * 100_000, '{"max_epochs": 1' + "0" * 5_000 + "}"]
    with serving(tmp_path) as client:
        for body in (*bodies, *(json.dumps(SPEC | change) for change in (*changes, {"max_power": 1e999}))):
            answer = client.post("/jobs", content=body, headers=JSON)
            assert answer.status_code in (400, 422)
            assert set(answer.json()) <= {"message", "detail"}
            assert all(set(fault) == {"loc", "msg", "type"} for fault in answer.json().get("detail", ()))
        assert client.get("/state/jobs").json() == []


@pytest.mark.long
def test_a_database_that_cannot_be_written(tmp_path):
    """Reports and trials are answered 503 and change nothing; readiness is written, once a second at most."""
    with serving(tmp_path) as client, closing(sqlite3.connect(tmp_path / "bso.db")) as connection:
        assert [client.get("/readyz").status_code for _ in range(3)] == [200] * 3
        client.post("/jobs", json=SPEC)
        trial, _ = run(client, "t-1", 100.0)
        for name in ("probe", "trial"):
            connection.execute(f"ALTER TABLE bso_{name} RENAME TO other_{name}")
        assert client.get("/readyz").status_code == 200
        until(lambda: client.get("/readyz").status_code == 503)
        answer = client.get("/jobs/batch_size", params={"job_id": "t-1"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json() == {"message": "The database cannot be used at the moment; try again."}
        assert client.get("/healthz").status_code == 200
        for name in ("probe", "trial"):
            connection.execute(f"ALTER TABLE other_{name} RENAME TO bso_{name}")
        until(lambda: client.get("/readyz").status_code == 200)
        assert run(client, "t-1", 100.0)[0]["trial_number"] == trial["trial_number"] + 1


def test_requests_for_a_trial_that_are_none(tmp_path):
    """An id that not every database keeps as it is, or a lease without measure, is refused; nothing is handed out."""
    senseless = {"request_id": ("", "\0", "a b", "ä", "x" * 65), "lease_s": ("0", "-1", "nan", "inf", "1e9", "x")}
    with serving(tmp_path, database_url="sqlite://") as client:
        client.post("/jobs", json=SPEC)
        for name, value in ((name, value) for name, values in senseless.items() for value in values):
            answer = client.get("/jobs/batch_size", params={"job_id": "t-1", name: value})
            assert answer.status_code == 422, (name, value)
        assert client.get("/state/trials", params={"job_id": "t-1"}).json() == []
        for path in ("/state/trials", "/state/job", "/status"):  # of a job that nobody registered
            assert client.get(path, params={"job_id": "t-2"}).status_code == 404


def test_numbers_beyond_measure(tmp_path):
    """Costs and beliefs stay numbers: what could make them infinite is refused, and what could not is taken."""
    measures = ("max_power", "mab_prior_mean", "mab_prior_precision")
    with serving(tmp_path) as client:
        for field in measures:
            assert client.post("/jobs", json=SPEC | {field: 1.1e50}).status_code == 422
        largest = dict.fromkeys(measures, 1e50) | {"beta_knob": 1e308, "num_pruning_rounds": 0}
        assert client.post("/jobs", json=SPEC | largest).status_code == 201
        for number in range(10):
            trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
            result = trial | {"time": 1e50, "energy": 1e50 / (1 + number), "metric": 1.0, "current_epoch": 1}
            for field in ("time", "energy"):
                assert client.post("/report", json=result | {field: 1.1e50}).status_code == 422
            assert client.post("/report", json=result).json()["converged"]
        assert all(arm["mean"] <= 1e50 for arm in client.get("/state/job", params={"job_id": "t-1"}).json()["arms"])
        assert client.get("/status", params={"job_id": "t-1"}).status_code == 200


@pytest.mark.parametrize("compat", ["none", "zeus"])
def test_infinity_is_no_target(tmp_path, compat):
    """A metric that is no number has not converged; the published server takes infinity for one."""
    with serving(tmp_path, compat=compat) as client:
        for metric, higher in (("Infinity", True), ("-Infinity", False), ("NaN", True)):
            job = {"job_id": f"t{metric}", "higher_is_better_metric": higher}
            client.post("/jobs", json=SPEC | job)
            trial = client.get("/jobs/batch_size", params={"job_id": job["job_id"]}).json()
            body = json.dumps(trial | {"time": 1, "energy": 1, "current_epoch": 1})[:-1] + f', "metric": {metric}}}'
            answer = client.post("/report", content=body, headers=JSON)
            converges = compat == "zeus" and metric != "NaN"
            assert (answer.status_code, answer.json()["converged"]) == (200, converges)


def test_other_sites_do_not_ask(tmp_path):
    """A page of another site cannot have a browser start trials, nor a name that leads here by its owner's doing."""
    with serving(tmp_path, hosts=("localhost",)) as client:
        home = {"Host": "localhost:8000"}
        assert client.get("/state/jobs", headers=home).status_code == 200
        assert client.get("/state/jobs", headers={"Host": "localhost"}).status_code == 200
        for host in ("evil.example", "localhost.evil.example:8000", ""):
            answer = client.get("/state/jobs", headers={"Host": host})
            assert (answer.status_code, list(answer.json())) == (400, ["message"])
        # A site is a domain, whatever the port and the first part of the name.
        for site in ("cross-site", "same-site"):
            crossing = home | {"Sec-Fetch-Site": site}
            following = crossing | {"Sec-Fetch-Mode": "navigate"}
            assert client.get("/", headers=following).status_code == 200
            for headers in (crossing, following):
                assert client.get("/jobs/batch_size?job_id=t", headers=headers).status_code == 403
        for origin in ("http://evil.example", "http://localhost:9000", "null"):
            assert client.post("/jobs", json=SPEC, headers=home | {"Origin": origin}).status_code == 403
        own = home | {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8000"}
        assert client.get("/state/jobs", headers=own).status_code == 200


def test_failures_give_nothing_away(tmp_path, monkeypatch):
    """What nobody thought of is answered 500 in one sentence, and logged; 404 and 405 are JSON too."""
    monkeypatch.setattr(JobStore, "find_job", None)
    with serving(tmp_path) as client:
        answer = client.get("/jobs/batch_size", params={"job_id": "secret"})
        assert (answer.status_code, answer.json()) == (500, {"message": "Internal server error."})
        assert (client.get("/nope").status_code, client.get("/nope").json()) == (404, {"message": "Not Found"})
        answer = client.get("/jobs")
    assert (answer.status_code, answer.json()) == (405, {"message": "Method Not Allowed"})
    assert answer.headers["allow"] == "DELETE, POST"


def test_requests_are_counted_and_logged(tmp_path, caplog):
    """The log has a line for each request, metrics count them and what there is; the docs' PromQL asks for such."""
    with serving(tmp_path) as client, caplog.at_level("INFO", "bftrainer.zeus.server"):
        for name in ("t-1", "t-2"):
            client.post("/jobs", json=SPEC | {"job_id": name, "batch_sizes": [16], "num_pruning_rounds": 1})
        run(client, "t-1", 10.0)
        for name in ("t-1", "t-1", "other"):
            client.get("/jobs/batch_size", params={"job_id": name})
        client.request("WHATEVER", "/nope")
        lines = [line for line in client.get("/metrics").text.splitlines() if line[0] != "#"]
    asked = [("GET", "/jobs/batch_size", status) for status in (200, 200, 400)]
    fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
    logged = [(each["method"], each["path"], each["status"]) for each in fields]
    assert logged[:4] == [*[("POST", "/jobs", 201)] * 2, asked[0], ("POST", "/report", 200)]
    assert logged[4:] == [*asked, ("WHATEVER", "/nope", 404), ("GET", "/metrics", 200)]
    counts = {("jobs", "MAB"): 1, ("jobs", "Pruning"): 1, ("trials", "MAB"): 3, ("results", "MAB"): 1}
    counted = {f'{name}{{stage="{stage}"}}': count for (name, stage), count in counts.items()}
    counted['requests_total{method="other",route="unmatched",status="404"}'] = 1
    for status, count in ((200, 3), (400, 1)):
        counted[f'requests_total{{method="GET",route="/jobs/batch_size",status="{status}"}}'] = count
    assert {f"bftrainer_bso_{name} {count}.0" for name, count in counted.items()} <= set(lines)
    # Prometheus adds which server told it.
    labels = {line.partition("{")[0]: {*re.findall(r'(\w+)="', line), "instance"} for line in lines}
    (block,) = re.findall(r"```promql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    queries = re.findall(r"(bftrainer_\w+)(?:\{([^}]*)\})?", block)
    assert len(block.splitlines()) == 5
    for name, conditions in queries:
        assert set(re.findall(r"(\w+)=~?\"", conditions)) <= labels[name], name
