"""The published server's exchanges, replayed: what differs, and only that; promises of the OpenAPI document."""

import json
import math
from importlib import import_module
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings

from bftrainer.zeus.server.app import create_app
from tests.zeus.server.support import DATA, RECORDED, ROWS, SPEC, in_folder, listening, replay

EXCHANGES = list(chain.from_iterable(RECORDED.values()))
PLACES = [(scenario, place) for scenario, exchanges in RECORDED.items() for place in range(len(exchanges))]
# Where only the status has to agree: messages of the framework, of Python and of the database.
STATUS_ONLY = {404, 405, 422, 500}
# Names that the published server made up.
MADE_UP = ("t-00739ab2", "t-5536f917")


def differences(answers):
    """Exchanges that were answered otherwise: what was recorded, and what came."""
    found = {}
    for place, exchange, (status, body) in zip(PLACES, EXCHANGES, answers, strict=True):
        if "GENERATED_ID" in (exchange.get("note") or ""):
            assert body["job_id"].startswith("t-")
            assert len(body["job_id"]) == len("t-") + 8
            body = exchange["response"]
        recorded = exchange["status"]
        if status != recorded or (status not in STATUS_ONLY and body != exchange["response"]):
            found[place] = (recorded, exchange["response"], status, body)
    return found


@pytest.mark.long
def test_compatible_answers_are_the_published_ones(tmp_path):
    """With `compat` zeus no status differs, no body but those of failures, and no cheapest run or arm at the end."""
    assert len(EXCHANGES) == 1685
    # The last one was stored although its registration failed.
    rows = [row for row in ROWS["Job"] if row["job_id"] not in MADE_UP and row["beta_knob"] != "inf"]
    asking = [{"method": "GET", "path": "/state/job", "params": {"job_id": row["job_id"]}} for row in rows]
    answers = replay(tmp_path, [*EXCHANGES, *asking], compat="zeus")
    assert differences(answers[: len(EXCHANGES)]) == {}
    for row, (_, job) in zip(rows, answers[len(EXCHANGES) :], strict=True):
        ours = (job["stage"], job["min_cost"], job["min_cost_batch_size"])
        assert ours == (row["stage"], row["min_cost"], row["min_cost_batch_size"])
        wanted = [arm for arm in ROWS["GaussianTsArmState"] if arm["job_id"] == row["job_id"]]
        for arm, other in zip(job["arms"], sorted(wanted, key=lambda arm: arm["batch_size"]), strict=True):
            assert (arm["batch_size"], arm["observations"]) == (other["batch_size"], other["num_observations"])
            for own, theirs in (("mean", "param_mean"), ("precision", "param_precision")):
                value = math.inf if arm[own] is None else arm[own]
                assert value == pytest.approx(float(other[theirs]), rel=1e-9)


REFUSED = "numbers that mean nothing are refused when they come, with 422"
CONVERGED = "only runs that converged lower the bound"
LATE = "trials of the pruning that end after it count"
NOTHING = "that no batch size converges is no failure of the server's"
RISING = "epochs rise from report to report"
AFTER = "the trial before it goes on, as its report was refused: another batch size is handed out"
# Status of the corrected answer, and why it is another one; nothing else may differ.
CORRECTED = {
    **{("sc_register", place): (409, "the settings that differ are named") for place in range(3, 22)},
    **{("sc_register", place): (422, REFUSED) for place in (25, 26, 27, 59, 60, 61, 63, 67, 68)},
    ("sc_register", 71): (200, "the status page"),
    **{("sc_report", place): (422, REFUSED) for place in (5, 6, 10, 11)},
    **{("sc_report", place): (422, RISING) for place in (8, 12, 13, 14, 27)},
    **{("sc_report", place): (200, AFTER) for place in (15, 19)},
    **{("sc_report", place): (400, AFTER) for place in (16, 17, 18, 20)},
    **{("sc_report", place): (200, CONVERGED) for place in (22, 23)},
    ("sc_end", 4): (422, REFUSED),
    ("sc_mab", 1025): (200, LATE),
    ("sc_edge", 1): (200, "without rounds of pruning the bandit plays all batch sizes"),
    **{("sc_edge", place): (409, NOTHING) for place in (7, 8, 9)},
    ("sc_edge", 22): (200, LATE),
}


@pytest.mark.slow
def test_corrected_answers_differ_where_they_are_corrected(tmp_path):
    """Without `compat` each answer that differs is one of the table's, has its status, and says why if it refuses."""
    found = differences(replay(tmp_path, EXCHANGES))
    assert {place: (answer[2], CORRECTED[place][1]) for place, answer in found.items()} == CORRECTED
    for _, _, status, body in found.values():
        assert status < 500
        if status == 422:
            assert all(fault["msg"] and "sqlite" not in fault["msg"] for fault in body["detail"])


def test_every_published_route_is_there():
    """Paths, methods, parameters and fields of the published OpenAPI document are in ours."""
    published = json.loads((DATA / "bso_openapi.json").read_text())
    ours = create_app().openapi()
    for path, methods in published["paths"].items():
        for method, operation in methods.items():
            own = ours["paths"][path][method]
            names = {parameter["name"] for parameter in operation.get("parameters", ())}
            assert names <= {parameter["name"] for parameter in own.get("parameters", ())}
            assert ("requestBody" in operation) == ("requestBody" in own)
            assert {status for status in operation["responses"] if status != "422"} <= set(own["responses"])
    for name, schema in published["components"]["schemas"].items():
        own = ours["components"]["schemas"][name.removesuffix("FromClient")]
        assert set(schema["properties"]) <= set(own["properties"])
        assert set(schema.get("required", ())) == set(own.get("required", ())) or name == "HTTPValidationError"


# --- what the OpenAPI document promises -------------------------------------------------------------------------------

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
