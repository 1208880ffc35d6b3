"""What the OpenAPI document promises is kept, whatever is sent: schemathesis makes it up."""

from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import HealthCheck, given, settings

from bftrainer.zeus.server.app import create_app
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


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [pytest.param(3, marks=pytest.mark.long), pytest.param(60, marks=pytest.mark.slow)])
def test_promises_are_kept(tmp_path, count):
    """No answer is a failure of the server's, and each has a status, a type and a body that the document knows."""
    # Takes longer to import than all that is not about it.
    schemathesis, known = map(import_module, ("schemathesis", "schemathesis.checks"))
    checks = [getattr(known, name) for name in CHECKS]
    with listening(create_app(in_folder(tmp_path))) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        # So that some of what is made up finds a job.
        schema["/jobs"]["POST"].Case(body=SPEC, media_type="application/json").call()
        paths = create_app().openapi()["paths"]
        for path, method in ((path, method.upper()) for path, methods in paths.items() for method in methods):

            @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
            @given(case=schema[path][method].as_strategy())
            def keep(case):
                case.call_and_validate(checks=checks)

            keep()
