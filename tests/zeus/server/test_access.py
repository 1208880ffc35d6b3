"""Who may do what: every route with every role, the file that says so, what is logged; and users of one machine."""

import os
import re
import socket
import stat
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx
import pytest

from bftrainer.errors import SettingsError
from bftrainer.zeus.server import BatchSizeClient, JobSpec, access
from bftrainer.zeus.server import client as client_module
from bftrainer.zeus.server.access import AccessFile, Role, add_user, first_token, own_path, read_users, revoke
from bftrainer.zeus.server.app import create_app
from bftrainer.zeus.server.client import find_token
from bftrainer.zeus.server.store import open_store
from tests.zeus.server.support import SPEC, free_port, in_folder, server, serving

PLAIN = "0123456789abcdef"
READER, TRAINER, OWNER, ADMIN = Role
TRIAL = {"batch_size": 16, "trial_number": 1}
RESULT = TRIAL | {"time": 1.0, "energy": 1.0, "metric": 0.1, "current_epoch": 1}
NAMED, NOTHING = {"job_id"}, set()
# Each route: the least role that it takes on an own job and on a foreign one, and how it is told of a job: by
# parameters, or by a body with these fields beside its name.
TABLE = {
    ("GET", "/"): (READER, READER, NOTHING),
    ("GET", "/status"): (READER, READER, NAMED),
    ("GET", "/metrics"): (READER, READER, NOTHING),
    ("GET", "/openapi.json"): (READER, READER, NOTHING),
    ("GET", "/state/jobs"): (READER, READER, NOTHING),
    ("GET", "/state/job"): (READER, READER, NAMED),
    ("GET", "/state/trials"): (READER, READER, NAMED),
    ("GET", "/jobs/batch_size"): (TRAINER, TRAINER, NAMED),
    ("POST", "/report"): (TRAINER, TRAINER, RESULT),
    ("POST", "/trials/heartbeat"): (TRAINER, TRAINER, TRIAL),
    ("PATCH", "/trials"): (TRAINER, TRAINER, TRIAL),
    ("POST", "/jobs"): (TRAINER, TRAINER, SPEC),
    ("DELETE", "/jobs"): (OWNER, ADMIN, NAMED),
    ("POST", "/trials/void"): (OWNER, ADMIN, {"trial_number": 1, "reason": "noise"}),
}


@contextmanager
def serve_roles(folder, **settings):
    """A client, and headers by user and role: one user has every role, another one is an owner."""
    folder.mkdir(exist_ok=True)
    path = folder / "tokens"
    users = [("me", role) for role in Role] + [("other", OWNER)]
    tokens = {who: {"Authorization": f"Bearer {add_user(path, *who).token}"} for who in users}
    with serving(folder, token_file=str(path), **settings) as client:
        yield client, tokens


def send(client, route, job_id, headers):
    """The answer to a route's request about a job."""
    method, path = route
    how = TABLE[route][2]
    body = {"json": {**how, "job_id": job_id}} if isinstance(how, dict) else {}
    params = {name: value for name, value in (TRIAL | {"job_id": job_id}).items() if name in how and not body}
    return client.request(method, path, headers=headers, params=params, **body)


@pytest.mark.long
def test_every_route_with_every_role(tmp_path):
    """A role does what the table says with own and foreign jobs and no more; a route that is not in it has no tests."""
    routes = {(method, route.path) for route in create_app().routes for method in route.methods - {"HEAD"}}
    assert routes - {("GET", "/healthz"), ("GET", "/readyz")} == set(TABLE)
    admin, wrong = ("me", ADMIN), []
    with serve_roles(tmp_path, database_url="sqlite://") as (client, tokens):
        for route, (own, foreign, _) in TABLE.items():
            for role in Role:
                for owner, least in (("me", own), ("other", foreign)):
                    job_id = f"t-{owner}"
                    client.delete("/jobs", params={"job_id": job_id}, headers=tokens[admin])
                    made = client.post("/jobs", json=SPEC | {"job_id": job_id}, headers=tokens[owner, OWNER])
                    given = client.get("/jobs/batch_size", params={"job_id": job_id}, headers=tokens[admin])
                    assert (made.status_code, given.json()) == (201, {"job_id": job_id, **TRIAL})
                    status = send(client, route, job_id, tokens["me", role]).status_code
                    if status not in ((200, 201) if role >= least else (403,)):
                        wrong.append((*route, role.name, owner, status))
            assert send(client, route, "t-me", {}).status_code == 401
    assert wrong == []


def test_owners_register(tmp_path):
    """A job is its registrant's; a trainer makes sure of a job and registers none; jobs of nobody are the admins'."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC | {"job_id": "t-nobody"})
    with serve_roles(tmp_path) as (client, tokens):
        for role, status in ((READER, 403), (TRAINER, 403), (OWNER, 201), (TRAINER, 200), (ADMIN, 200)):
            assert client.post("/jobs", json=SPEC, headers=tokens["me", role]).status_code == status
        for path in ("/jobs", "/report", "/trials/void"):  # of whoever may not, no body is read
            assert client.post(path, content="{", headers=tokens["me", READER]).status_code == 403
        changed = SPEC | {"max_epochs": 7}
        assert client.post("/jobs", json=changed, headers=tokens["me", TRAINER]).status_code == 409
        owners = {
            job["spec"]["job_id"]: job["owner"]
            for job in client.get("/state/jobs", headers=tokens["me", READER]).json()
        }
        assert owners == {"t-1": "me", "t-nobody": None}
        for name, message in (("t-1", "which is me's"), ("t-nobody", "which is nobody's")):
            answer = client.delete("/jobs", params={"job_id": name}, headers=tokens["other", OWNER])
            assert (answer.status_code, message in answer.json()["message"]) == (403, True)
        assert client.delete("/jobs", params={"job_id": "t-nobody"}, headers=tokens["me", ADMIN]).status_code == 200


def test_what_is_changed_is_logged_with_who_did(tmp_path, caplog):
    """Whatever the level, a line says who asked for which change of which job, done or refused; looking is not told."""
    with serve_roles(tmp_path) as (client, tokens), caplog.at_level("INFO", "bftrainer.zeus.server.app.audit"):
        client.post("/jobs", json=SPEC, headers=tokens["me", OWNER])
        client.get("/jobs/batch_size", params={"job_id": "t-1"}, headers=tokens["me", TRAINER])
        client.post("/report", json={"job_id": "t-1", **RESULT}, headers=tokens["other", OWNER])
        client.delete("/jobs", params={"job_id": "t-1"}, headers=tokens["other", OWNER])
        void = {"job_id": "t-1", "trial_number": 1, "reason": "a broken meter"}
        client.post("/trials/void", json=void, headers=tokens["me", OWNER])
        client.get("/state/jobs", headers=tokens["me", READER])
        assert client.post("/nowhere", headers=tokens["me", ADMIN]).status_code == 404
    lines = [each.fields for each in caplog.records if each.name == "bftrainer.zeus.server.app.audit"]
    names = ("actor", "role", "method", "path", "status", "job_id", "trial")
    assert [tuple(line.get(name) for name in names) for line in lines] == [
        ("me", "owner", "POST", "/jobs", 201, "t-1", None),
        ("me", "trainer", "GET", "/jobs/batch_size", 200, "t-1", 1),
        ("other", "owner", "POST", "/report", 200, "t-1", 1),
        ("other", "owner", "DELETE", "/jobs", 403, "t-1", None),
        ("me", "owner", "POST", "/trials/void", 200, "t-1", 1),
    ]
    assert lines[-1]["reason"] == "a broken meter"


def test_changes_hold_at_once(tmp_path):
    """Who is added, revoked or expires is let in, or not, from the next request on; a broken file lets nobody in."""
    path = tmp_path / "tokens"
    path.write_text(f"# of the cluster\n{PLAIN}\n")
    with serving(tmp_path, token_file=str(path)) as client:

        def status(token):
            return client.get("/state/jobs", headers={"Authorization": f"Bearer {token}"}).status_code

        new, brief = add_user(path, "new", READER).token, add_user(path, "brief", READER, days=1.0).token
        assert (status(PLAIN), status(new), status(brief)) == (200, 200, 200)
        lines = path.read_text().splitlines()
        assert (lines[:2], len(lines)) == (["# of the cluster", PLAIN], 4)
        path.write_text("\n".join(re.sub(r"(brief .*) .*", r"\1 2020-01-01T00:00:00Z", line) for line in lines))
        assert (status(new), status(brief)) == (200, 401)
        revoke(path, "new")
        assert (status(PLAIN), status(new)) == (200, 401)
        kept = path.read_text()
        for broken in ("me owner what never", None):
            path.unlink() if broken is None else path.write_text(broken)
            assert status(PLAIN) == 503
            path.write_text(kept)
            assert status(PLAIN) == 200


def test_tokens_are_kept_as_digests(tmp_path):
    """A new token stands nowhere but in the answer; files are their owner's to read, and lines of others stay."""
    path = tmp_path / "tokens"
    first, second = add_user(path, "me", OWNER), add_user(path, "me", READER, days=2.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first.token not in path.read_text()
    assert [(each.id, each.role) for each in read_users(path)] == [(first.id, OWNER), (second.id, READER)]
    assert second.expires == pytest.approx(time.time() + 2 * 86_400, abs=60)
    assert [each.id for each in revoke(path, first.id)] == [first.id]
    with pytest.raises(SettingsError, match=r"Unknown user or token 'mee'. Did you mean 'me'"):
        revoke(path, "mee")
    assert revoke(path, "me")[0].id == second.id
    assert path.read_text() == ""
    for name, role in (("Admin", OWNER), ("b ob", READER), ("me\n", READER)):
        with pytest.raises(SettingsError, match="Expected USER ROLE"):
            add_user(path, name, role)
    with pytest.raises(SettingsError, match="No token found"):
        AccessFile(str(path))


def test_the_own_file_is_made_once(tmp_path, monkeypatch):
    """A user's own servers have a file with a token, made at first, readable by them alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = access.own_file()
    token = first_token(path)
    add_user(path, "me", READER)
    assert (access.own_file(), first_token(path), len(token)) == (path, token, 43)
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    "line",
    [
        "short",
        "0123456789äbcdef",
        "0123456789 abcdef",
        f"me ownr {DIGEST} never",
        "me owner sha256:0 never",
        f"me owner {DIGEST} 2027-13-31T00:00:00Z",
        f"me owner {DIGEST} 2027-01-31T00:00:00",  # of which zone?
        f"me owner {DIGEST} 2027-01-31",
        f"m/e owner {DIGEST} never",
        f"Admin owner {DIGEST} never",  # jobs and logs name those so whose token stands in the file
    ],
)
def test_lines_that_mean_nothing(tmp_path, line):
    """A file with one is refused with its number, without what may be a token, and nobody is added to it."""
    path, text = tmp_path / "tokens", f"{PLAIN}\n{line}\n"
    path.write_text(text, encoding="utf-8")
    for use in (lambda: create_app(in_folder(tmp_path, token_file=str(path))), lambda: add_user(path, "zoe", OWNER)):
        with pytest.raises(SettingsError) as caught:
            use()
        assert str(caught.value).startswith(f"{path}:2: Expected USER ROLE KEY EXPIRES, or a token of at least 16 ")
        assert "0123456789" not in str(caught.value)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("zone", ["Z", "+00:00", "+02:00", "+0200", "+02", "-02"])
def test_zones_of_expiry(tmp_path, zone):
    """Each way of ISO 8601 to write one is understood."""
    (tmp_path / "tokens").write_text(f"me owner {DIGEST} 2027-01-31T00:00:00{zone}\n")
    (user,) = read_users(tmp_path / "tokens")
    hours = 0 if zone == "Z" else int(zone[:3])
    assert user.expires == datetime(2027, 1, 31, tzinfo=UTC).timestamp() - 3600 * hours


# --- users of one machine ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_another_user_is_not_let_in(tmp_path, monkeypatch):
    """By default files are this user's alone, and so is the port: this user's clients find it and the token."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with server(tmp_path, f"sqlite:///{tmp_path / 'bso.db'}", opened=False) as running:
        with BatchSizeClient(running.url) as client:
            client.register_job(JobSpec(**SPEC))
            assert [(job.spec.job_id, job.owner) for job in client.jobs()] == [("t-1", "admin")]
        files = [own_path(), *(tmp_path / f"bso.db{suffix}" for suffix in ("", "-wal", "-shm"))]
        assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 4
        assert httpx.get(f"{running.url}/state/jobs").status_code == 401
    announced = [entry for entry in running.entries() if entry["message"] == "serving"]
    assert [(entry["address"], entry["token_file"]) for entry in announced] == [(running.url, str(own_path()))]


def test_tokens_are_given_to_own_servers_alone(tmp_path, monkeypatch):
    """The own token goes to a port of this machine at which this user alone listens; the environment's to any."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for value, found in (("", "http://127.0.0.1:8000"), ("http://head:8000/", "http://head:8000")):
        monkeypatch.setenv("BFTRAINER_BSO_SERVER", value)
        assert BatchSizeClient().server_url == found
    own_path().parent.mkdir()
    own_path().write_text("a-token-of-my-own\n")
    port, tokens = free_port(), []

    def seen(request):
        tokens.append(request.headers.get("Authorization"))
        return httpx.Response(200, json=[])

    address = f"http://127.0.0.1:{port}"
    assert find_token(address) is None
    early = BatchSizeClient(address, transport=httpx.MockTransport(seen), backoff_s=0.0)
    with socket.create_server(("127.0.0.1", port)):
        assert find_token(address) == "a-token-of-my-own"
        assert early.jobs() == []
        assert tokens == ["Bearer a-token-of-my-own"]
        assert find_token(f"http://localhost:{port}/") == "a-token-of-my-own"
        with monkeypatch.context() as patch:
            patch.setattr(client_module, "_is_own", lambda port: port == 443)
            assert find_token("https://localhost") == "a-token-of-my-own"
            assert find_token("http://localhost") is None
        assert find_token(f"http://example.org:{port}") is None
        client = BatchSizeClient(address, retries=0)
        assert client._http.headers["Authorization"] == "Bearer a-token-of-my-own"
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert find_token(address) is None
    (tmp_path / "other").write_text("another-token-of-some-length")
    monkeypatch.setenv("BFTRAINER_BSO_TOKEN_FILE", str(tmp_path / "other"))
    assert find_token("http://example.org") == "another-token-of-some-length"


def test_a_database_of_another_user_is_refused(tmp_path):
    """Who owns the file may change it, whatever this user does."""
    if os.geteuid():
        pytest.skip("only root can give a file away")
    path = tmp_path / "bso.db"
    with open_store(f"sqlite:///{path}"):
        pass
    os.chown(path, 65534, 65534)
    with pytest.raises(SettingsError, match="Expected a database of this user's"), open_store(f"sqlite:///{path}"):
        pass
