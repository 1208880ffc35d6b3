"""What /metrics tells, and the dashboard that is made of it."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from tests.zeus.server.support import SPEC, run, serving

DASHBOARD = json.loads(files("bftrainer.zeus.server").joinpath("grafana.json").read_text())


def parts(document, name):
    """Values of all fields of a name, wherever they are."""
    if isinstance(document, dict):
        found = [value for key, value in document.items() if key == name]
        return found + [each for value in document.values() for each in parts(value, name)]
    return [each for value in document for each in parts(value, name)] if isinstance(document, list) else []


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


def test_the_dashboard_asks_for_what_is_told(tmp_path):
    """Each metric of a query is one of the server's, and so is each of its labels."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC)
        client.get("/jobs/batch_size", params={"job_id": "t-1"})
        known = told(client)
        routes = set(client.get("/openapi.json").json()["paths"])
    queries = [*parts(DASHBOARD, "expr"), *parts(DASHBOARD, "definition")]
    assert len(queries) >= len(DASHBOARD["panels"]) == 8
    for query in queries:
        for name, labels in re.findall(r"(bftrainer_\w+)(?:\{([^}]*)\})?", query):
            assert name in known, query
            assert set(re.findall(r"(\w+)=~?\"", labels)) <= known[name], query
        assert set(re.findall(r'route="([^"]*)"', query)) <= routes
        assert [query.count(each) for each in "([{"] == [query.count(each) for each in ")]}"]
    used = {name for query in queries for name in re.findall(r"bftrainer_\w+", query)}
    assert {name for name in known if not name.endswith(("_sum", "_count", "_created"))} == used


def test_the_dashboard_belongs_to_no_installation():
    """Its data source is one that the reader chooses; it has no number of its own, and panels do not overlap."""
    assert {source["uid"] for source in parts(DASHBOARD, "datasource")} == {"${datasource}"}
    assert (DASHBOARD["id"], DASHBOARD["uid"]) == (None, None)
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "instance"}
    cells = [
        (column, row)
        for place in parts(DASHBOARD, "gridPos")
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(column for column, _ in cells) == 23
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"] for panel in DASHBOARD["panels"])
