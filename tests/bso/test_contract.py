"""What the OpenAPI document promises is kept, whatever is sent: schemathesis makes it up."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import (
    allow_header_conformance,
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from bftrainer.bso.app import create_app
from tests.bso.processes import free_port, server
from tests.bso.support import SPEC, in_folder

# Not among them: whether each request that the document forbids is refused. Numbers may come as text, as they did.
CHECKS = [
    allow_header_conformance,
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]


@contextmanager
def listening(app):
    """The address of a server in a thread of this process."""
    port = free_port()
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, access_log=False))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started:
            assert thread.is_alive()
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(60)


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    app = create_app(in_folder(tmp_path_factory.mktemp("bso")))
    with listening(app) as url:
        loaded = schemathesis.openapi.from_url(f"{url}/openapi.json")
        # So that some of what is made up finds a job.
        loaded["/jobs"]["POST"].Case(body=SPEC, media_type="application/json").call()
        yield loaded


OPERATIONS = [(method.upper(), path) for path, methods in create_app().openapi()["paths"].items() for method in methods]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_promises_are_kept(schema, method, path):
    """No answer is a failure of the server's, and each has a status, a type and a body that the document knows."""

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(case=schema[path][method].as_strategy())
    def keeps(case):
        case.call_and_validate(checks=CHECKS)

    keeps()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_promises_are_kept_at_length(tmp_path):
    """The same with all that schemathesis has: examples, limits, what is forbidden, and requests in sequence."""
    checks = ",".join(check.__name__ for check in CHECKS)
    with server(tmp_path, f"sqlite+aiosqlite:///{tmp_path / 'bso.db'}") as running:
        httpx.post(f"{running.url}/jobs", json=SPEC | {"job_id": "bert-finetuning", "job_id_prefix": "bert"})
        program = Path(sys.executable).with_name("schemathesis")
        words = [program, "run", f"{running.url}/openapi.json", "--checks", checks, "-n", "300", "--seed", "1"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
