"""Who gets in, how much may be sent, and what answers to what is wrong give away."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing

import httpx
import pytest

from bftrainer.errors import ServerRequestError, SettingsError
from bftrainer.zeus.server import BatchSizeClient
from bftrainer.zeus.server.app import ServerSettings, create_app
from tests.waiting import until
from tests.zeus.server.support import SPEC, Within, in_folder, serving

TOKENS = ("0123456789abcdef", "fedcba9876543210")
ROUTES = [("GET", "/"), ("POST", "/jobs"), ("GET", "/jobs/batch_size"), ("POST", "/report"), ("GET", "/openapi.json")]


@pytest.fixture(scope="module")
def token_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"# of the cluster\n{TOKENS[0]}\n\n{TOKENS[1]}\n")
    return str(path)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, token_file):
    """A client of a server that asks for tokens; it has no jobs."""
    with serving(tmp_path_factory.mktemp("guarded"), token_file=token_file) as client:
        yield client


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A client of a server that has no jobs, and gets none."""
    with serving(tmp_path_factory.mktemp("plain")) as client:
        yield client


def basic(password):
    """Credentials as browsers send them."""
    return {"Authorization": f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"}


STRANGERS = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer 0123456789abcdeF"},
    {"Authorization": "Bearer 0123456789abcdef0"},
    {"Authorization": f"Token {TOKENS[0]}"},
    {"Authorization": "Basic !!!"},
    {"Authorization": b"Bearer \xff\xfe"},
    basic("0123456789abcde"),
]


@pytest.mark.parametrize("body", [b"{", b'{"batch_sizes": 1}', b"\xff"])
def test_what_strangers_send_is_not_read(guarded, body):
    """It may be anything: the answer is that of any request without a token."""
    answers = [guarded.request("POST", path, content=body) for path in ("/jobs", "/report", "/trials/void")]
    assert [answer.status_code for answer in answers] == [401] * 3
    bearer = {"Authorization": f"Bearer {TOKENS[0]}"}
    assert guarded.post("/jobs", content=body, headers=bearer).status_code in (400, 422)


@pytest.mark.long
def test_without_a_token_nothing_is_answered(guarded):
    """Every route but the health checks answers 401, in the same words, whether it exists or not."""
    said = set()
    requests = [(*route, STRANGERS[number % len(STRANGERS)]) for number, route in enumerate(ROUTES)]
    for method, path, headers in [*requests, *(("GET", "/state/jobs", headers) for headers in STRANGERS)]:
        answer = guarded.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        said.add(answer.text)
    assert said == {'{"message":"Expected a bearer token."}'}
    for headers in STRANGERS:
        assert guarded.get("/healthz", headers=headers).status_code == 200
        assert guarded.get("/readyz", headers=headers).json() == {"message": "ready"}


@pytest.mark.parametrize("headers", [{"Authorization": f"Bearer {token}"} for token in TOKENS] + [basic(TOKENS[1])])
def test_each_token_gets_in(guarded, headers):
    """As a bearer token, or as a browser's password."""
    assert guarded.get("/state/jobs", headers=headers).json() == []


def test_a_password_lets_nobody_change_anything(guarded):
    """Browsers send it along with what other sites have them ask, also where they do not mark such requests."""
    for method, path in (("GET", "/jobs/batch_size?job_id=t"), ("POST", "/jobs"), ("DELETE", "/jobs?job_id=t")):
        answer = guarded.request(method, path, headers=basic(TOKENS[0]))
        assert (answer.status_code, "browser's password" in answer.json()["message"]) == (403, True)


def test_the_client_gives_its_token(tmp_path, token_file):
    """With it requests get through, without it the error says what is missing."""
    with Within(create_app(in_folder(tmp_path, token_file=token_file))) as within:
        assert BatchSizeClient("http://s", TOKENS[0], transport=within).jobs() == []
        with pytest.raises(ServerRequestError, match=r"answered 401: Expected a bearer token\."):
            BatchSizeClient("http://s", transport=within).jobs()
        with pytest.raises(ServerRequestError, match=r"token\. The one that was given is unknown, revoked or over\."):
            BatchSizeClient("http://s", "0" * 32, transport=within).jobs()


def test_long_requests_are_turned_away(tmp_path):
    """10 MB are refused, whether the request says so or not; the next one is answered."""
    body = json.dumps(SPEC | {"gpu_model": "x" * 10_000_000})
    with serving(tmp_path) as client:
        answer = client.post("/jobs", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()) == (413, {"message": "Expected at most 1048576 bytes."})
        parts = iter([body[:600_000].encode(), body[600_000:].encode()])
        answer = client.post("/jobs", content=parts, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()) == (413, {"message": "Expected at most 1048576 bytes."})
        assert client.post("/jobs", json=SPEC).status_code == 201


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ("{", "application/json", 422),
        ("", "application/json", 422),
        ("[]", "application/json", 422),
        ('"job"', "application/json", 422),
        ("null", "application/json", 422),
        (json.dumps(SPEC), "text/plain", 422),
        (json.dumps(SPEC), "application/x-www-form-urlencoded", 422),
        (b"\xff\xfe\x00", "application/json", (400, 422)),
        ("[" * 100_000, "application/json", (400, 422)),
        ('{"max_epochs": 1' + "0" * 5_000 + "}", "application/json", (400, 422)),
        (json.dumps(SPEC | {"job_id": "t\ud800"}), "application/json", 422),
        (json.dumps(SPEC | {"job_id": "t\0"}), "application/json", 422),
        (json.dumps(SPEC | {"max_power": 1e999}), "application/json", 422),
        (json.dumps(SPEC | {"number_of_gpus": 10**30}), "application/json", 422),
        (json.dumps(SPEC | {"job_id": "t" * 401}), "application/json", 422),
    ],
)
def test_bodies_that_are_none(plain, body, kind, status):
    """What cannot be read is answered in JSON, without what was sent and without what the server is made of."""
    answer = plain.post("/jobs", content=body, headers={"Content-Type": kind})
    assert answer.status_code in (status if isinstance(status, tuple) else (status,))
    assert set(answer.json()) <= {"message", "detail"}
    for fault in answer.json().get("detail", ()):
        assert set(fault) == {"loc", "msg", "type"}
    assert "Traceback" not in answer.text
    assert plain.get("/state/jobs").json() == []


def test_unknown_fields_and_fractions(tmp_path):
    """The server reads requests as the published one does: unknown fields are ignored, fractions cut off."""
    with serving(tmp_path) as client:
        job = SPEC | {"max_epoch": 7, "max_epochs": 12.9, "higher_is_better_metric": "yes", "eta_knob": "0.25"}
        registered = client.post("/jobs", json=job).json()
        assert (registered["max_epochs"], registered["higher_is_better_metric"]) == (12, True)
        assert "max_epoch" not in registered
        asked = client.get("/jobs/batch_size", params={"job_id": "t-1", "requestid": "a"})
        trial = asked.json() | {"batch_size": "16", "batchsize": 7}
        assert client.patch("/trials", json=trial).status_code == 200


@pytest.mark.parametrize("name", ["x\0", "x" * 401, "%ud800", "'; DROP TABLE bso_job; --"])
def test_names_that_no_job_has(plain, name):
    """They are unknown, or refused, on every route that takes one."""
    trial = {"job_id": name, "batch_size": 8, "trial_number": 1}
    result = trial | {"time": 1, "energy": 1, "metric": 1, "current_epoch": 1}
    params = {"job_id": name}
    assert plain.get("/jobs/batch_size", params=params).status_code in (400, 422)
    assert plain.post("/report", json=result).status_code in (400, 422)
    assert plain.patch("/trials", json=trial).status_code in (404, 422)
    assert plain.delete("/jobs", params=params).status_code in (404, 422)
    assert plain.get("/state/job", params=params).status_code in (404, 422)
    assert plain.get("/state/trials", params=params).json() == [] or len(name) > 400
    assert plain.get("/status", params=params).status_code in (404, 422)


@pytest.mark.long
def test_readiness_is_written(tmp_path):
    """The database is written to, once a second at most: an unwritable one is told, whoever asks."""
    path = tmp_path / "bso.db"
    with serving(tmp_path) as client:
        assert [client.get("/readyz").status_code for _ in range(3)] == [200] * 3
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("ALTER TABLE bso_probe RENAME TO other")
            assert client.get("/readyz").status_code == 200
            until(lambda: client.get("/readyz").status_code == 503)
            connection.execute("ALTER TABLE other RENAME TO bso_probe")
        until(lambda: client.get("/readyz").status_code == 200)


def test_requests_that_cannot_be_told_apart(tmp_path):
    """What every database keeps as it is names a request; all else is refused, and nothing handed out."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC)
        for request_id in ("", "\0", "a b", "ä", "x" * 65):
            params = {"job_id": "t-1", "request_id": request_id}
            assert client.get("/jobs/batch_size", params=params).status_code == 422
        assert client.get("/state/trials", params={"job_id": "t-1"}).json() == []


def test_numbers_beyond_measure(tmp_path):
    """Costs and beliefs stay numbers: what could make them infinite is refused, and what could not is taken."""
    with serving(tmp_path) as client:
        for field in ("max_power", "mab_prior_mean", "mab_prior_precision"):
            assert client.post("/jobs", json=SPEC | {field: 1.1e50}).status_code == 422
        largest = {"max_power": 1e50, "mab_prior_mean": 1e50, "mab_prior_precision": 1e50, "beta_knob": 1e308}
        assert client.post("/jobs", json=SPEC | largest | {"num_pruning_rounds": 0}).status_code == 201
        for number in range(10):
            trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
            result = trial | {"time": 1e50, "energy": 1e50 / (1 + number), "metric": 1.0, "current_epoch": 1}
            assert client.post("/report", json=result | {"time": 1.1e50}).status_code == 422
            assert client.post("/report", json=result | {"energy": 1.1e50}).status_code == 422
            assert client.post("/report", json=result).json()["converged"]
        assert all(arm["mean"] <= 1e50 for arm in client.get("/state/job", params={"job_id": "t-1"}).json()["arms"])
        assert client.get("/status", params={"job_id": "t-1"}).status_code == 200


def test_infinity_is_no_target(tmp_path):
    """A metric that is no number has not converged; the published server takes infinity for one."""
    for compat in ("none", "zeus"):
        with serving(tmp_path / compat, compat=compat) as client:
            for metric, higher in (("Infinity", True), ("-Infinity", False), ("NaN", True)):
                job = {"job_id": f"t{metric}", "higher_is_better_metric": higher}
                client.post("/jobs", json=SPEC | job)
                trial = client.get("/jobs/batch_size", params={"job_id": job["job_id"]}).json()
                body = json.dumps(trial | {"time": 1, "energy": 1, "current_epoch": 1})[:-1] + f', "metric": {metric}}}'
                answer = client.post("/report", content=body, headers={"Content-Type": "application/json"})
                converges = compat == "zeus" and metric != "NaN"
                assert (answer.status_code, answer.json()["converged"]) == (200, converges)


def test_other_sites_do_not_ask(tmp_path):
    """A page of another site cannot have a browser start trials, nor a name that leads here by its owner's doing."""
    with serving(tmp_path, hosts=("localhost",)) as client:
        home = {"Host": "localhost:8000"}
        assert client.get("/state/jobs", headers=home).status_code == 200
        assert client.get("/state/jobs", headers={"Host": "evil.example"}).status_code == 400
        # A site is a domain, whatever the port and the first part of the name.
        for site in ("cross-site", "same-site"):
            crossing = home | {"Sec-Fetch-Site": site}
            assert client.get("/jobs/batch_size?job_id=t", headers=crossing).status_code == 403
            following = crossing | {"Sec-Fetch-Mode": "navigate"}
            assert client.get("/", headers=following).status_code == 200
            assert client.get("/jobs/batch_size?job_id=t", headers=following).status_code == 403
        for origin in ("http://evil.example", "http://localhost:9000", "null"):
            assert client.post("/jobs", json=SPEC, headers=home | {"Origin": origin}).status_code == 403
        own = home | {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8000"}
        assert client.get("/state/jobs", headers=own).status_code == 200


def test_unknown_routes_and_methods(plain):
    """404 and 405 are JSON too."""
    assert (plain.get("/nope").status_code, plain.get("/nope").json()) == (404, {"message": "Not Found"})
    answer = plain.get("/jobs")
    assert (answer.status_code, answer.json()) == (405, {"message": "Method Not Allowed"})
    assert answer.headers["allow"] == "DELETE, POST"


def test_failures_give_nothing_away(tmp_path):
    """What nobody thought of is answered 500 in one sentence, and logged."""
    app = create_app(in_folder(tmp_path))
    with httpx.Client(transport=Within(app), base_url="http://server") as client:
        app.state.optimizer.service = None
        answer = client.get("/jobs/batch_size", params={"job_id": "secret"})
    assert (answer.status_code, answer.json()) == (500, {"message": "Internal server error."})


def test_requests_are_counted_and_logged(tmp_path, caplog):
    """Metrics tell requests by route and status, and jobs by stage; the log has a line for each request."""
    with serving(tmp_path) as client, caplog.at_level("INFO", "bftrainer.zeus.server"):
        client.post("/jobs", json=SPEC)
        client.get("/jobs/batch_size", params={"job_id": "t-1"})
        client.get("/jobs/batch_size", params={"job_id": "other"})
        lines = client.get("/metrics").text.splitlines()
    assert 'bftrainer_bso_requests_total{method="GET",route="/jobs/batch_size",status="200"} 1.0' in lines
    assert 'bftrainer_bso_requests_total{method="GET",route="/jobs/batch_size",status="400"} 1.0' in lines
    assert 'bftrainer_bso_jobs{stage="Pruning"} 1.0' in lines
    fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert [(each["method"], each["path"], each["status"]) for each in fields] == [
        ("POST", "/jobs", 201),
        ("GET", "/jobs/batch_size", 200),
        ("GET", "/jobs/batch_size", 400),
        ("GET", "/metrics", 200),
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"compat": "zues"}, "Expected a known compatibility, got 'zues'. Did you mean 'zeus'?"),
        ({"trial_timeout_s": -1.0}, "Expected a trial timeout of 0 (never) or more seconds, got -1.0."),
        ({"trial_timeout_s": float("nan")}, "Expected a trial timeout of 0 (never) or more seconds, got nan."),
    ],
)
def test_settings_that_are_none(values, message):
    """Each is refused with what was expected."""
    with pytest.raises(SettingsError) as got:
        ServerSettings(**values)
    assert str(got.value) == message
