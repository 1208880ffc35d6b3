"""The client published with Zeus works with this server, its address changed and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.zeus.server.processes import server
from tests.zeus.server.support import SPEC, serving

SCRIPT = Path(__file__).with_name("zeus_client.py")


@pytest.fixture(scope="module")
def python_with_zeus(tmp_path_factory):
    """An interpreter that has the published package, which needs another pydantic than ours."""
    folder = tmp_path_factory.mktemp("zeus")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env/bin/python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "zeus[bso]"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"zeus cannot be installed: {done.stderr.splitlines()[-1:]}")
    return python


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("compat", ["none", "zeus"])
def test_the_published_client(python_with_zeus, tmp_path, compat):
    """It registers, asks, reports until it has converged or failed, and ends its trial as its process ends."""
    database = f"sqlite:///{tmp_path / 'bso.db'}"
    with server(tmp_path, database, "--compat", compat) as running:

        def ask(scenario):
            words = [python_with_zeus, SCRIPT, running.url, scenario]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        assert ask("converge") == {"batch_size": 16, "again": 16, "error": None}
        assert ask("fail") == {"batch_size": 8, "again": 8, "error": "ZeusBSOTrainFailError"}
        assert ask("leave") == {"batch_size": 32, "again": 32, "error": None}
        rows = httpx.get(f"{running.url}/state/trials", params={"job_id": "t-zeus"}).json()
    assert [(row["status"], row["converged"]) for row in rows] == [
        ("Succeeded", True),
        ("Succeeded", False),
        ("Failed", None),
    ]
    # 1.5 kJ and 3 s at 500 W, half and half.
    assert [row["cost"] for row in rows] == [1500.0, 1500.0, None]


def test_its_requests_as_they_are(tmp_path):
    """It sends JSON without saying so."""
    body = json.dumps(SPEC).encode()
    with serving(tmp_path) as client:
        request = client.build_request("POST", "/jobs", content=body)
        assert "content-type" not in request.headers
        assert client.send(request).status_code == 201
        trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
        result = json.dumps({**trial, "time": 1.0, "energy": 1.0, "metric": 0.7, "current_epoch": 1}).encode()
        assert client.post("/report", content=result).json()["converged"]
        assert client.patch("/trials", content=json.dumps(trial).encode()).status_code == 200
