"""What /metrics tells, and the queries of it that the docs name."""

from __future__ import annotations

import re
from pathlib import Path

from tests.zeus.server.support import SPEC, run, serving

PAGE = Path(__file__).parents[3] / "docs" / "server.md"


def told(client):
    """Labels of each metric that a server tells, by name; Prometheus adds which server told it."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line[0] != "#"]
    return {line.partition("{")[0]: {*re.findall(r'(\w+)="', line), "instance"} for line in lines}


def test_jobs_trials_and_results_are_counted_by_stage(tmp_path):
    """As the database has them."""
    with serving(tmp_path) as client:
        for name in ("t-1", "t-2"):
            client.post("/jobs", json=SPEC | {"job_id": name, "batch_sizes": [16], "num_pruning_rounds": 1})
        run(client, "t-1", 10.0)
        for _ in range(2):
            client.get("/jobs/batch_size", params={"job_id": "t-1"})
        lines = client.get("/metrics").text.splitlines()
    for line in (
        'jobs{stage="MAB"} 1.0',
        'jobs{stage="Pruning"} 1.0',
        'trials{stage="MAB"} 3.0',
        'trials{stage="Pruning"} 0.0',
        'results{stage="MAB"} 1.0',
    ):
        assert f"bftrainer_bso_{line}" in lines


def test_the_queries_of_the_docs_ask_for_what_is_told(tmp_path):
    """Each metric of a line of PromQL is one of the server's, and so is each of its labels."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC)
        known = told(client)
    (block,) = re.findall(r"```promql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    queries = [line for line in block.splitlines() if not line.startswith("#")]
    assert len(queries) == 5
    for query in queries:
        for name, labels in re.findall(r"(bftrainer_\w+)(?:\{([^}]*)\})?", query):
            assert name in known, query
            assert set(re.findall(r"(\w+)=~?\"", labels)) <= known[name], query
        assert [query.count(each) for each in "([{"] == [query.count(each) for each in ")]}"]
