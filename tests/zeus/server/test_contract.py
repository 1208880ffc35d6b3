"""What the OpenAPI document promises is kept, whatever is sent: schemathesis makes it up."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from bftrainer.zeus.server.app import create_app
from tests.zeus.server.processes import server
from tests.zeus.server.support import SPEC, in_folder, listening

# Not among them: whether each request that the document forbids is refused. Numbers may come as text, as they did.
CHECKS = (
    "allow_header_conformance",
    "content_type_conformance",
    "not_a_server_error",
    "response_headers_conformance",
    "response_schema_conformance",
    "status_code_conformance",
    "unsupported_method",
)


@pytest.mark.long
def test_promises_are_kept(tmp_path):
    """No answer is a failure of the server's, and each has a status, a type and a body that the document knows."""
    # Takes longer to import than all that is not about it.
    schemathesis, known = map(import_module, ("schemathesis", "schemathesis.checks"))

    with listening(create_app(in_folder(tmp_path))) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        # So that some of what is made up finds a job.
        schema["/jobs"]["POST"].Case(body=SPEC, media_type="application/json").call()
        checks = [getattr(known, name) for name in CHECKS]
        paths = create_app().openapi()["paths"]
        for path, method in ((path, method.upper()) for path, methods in paths.items() for method in methods):

            @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
            @given(case=schema[path][method].as_strategy())
            def keeps(case):
                case.call_and_validate(checks=checks)

            keeps()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_promises_are_kept_at_length(tmp_path):
    """The same with all that schemathesis has: examples, limits, what is forbidden, and requests in sequence."""
    with server(tmp_path, f"sqlite:///{tmp_path / 'bso.db'}") as running:
        httpx.post(f"{running.url}/jobs", json=SPEC | {"job_id": "bert-finetuning", "job_id_prefix": "bert"})
        program = Path(sys.executable).with_name("schemathesis")
        words = [
            program,
            "run",
            f"{running.url}/openapi.json",
            "--checks",
            ",".join(CHECKS),
            "-n",
            "60",
            "--seed",
            "1",
        ]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
