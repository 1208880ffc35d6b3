"""What the log says of choices and beliefs: the lines of the published server."""

from __future__ import annotations

import logging
import re

from tests.zeus.server.support import DATA, SPEC, run, serving

# The job and the results that the published server was given when its log was recorded.
RECORDED = SPEC | {"job_id": "t-l", "batch_sizes": [32, 64, 128], "default_batch_size": 64, "num_pruning_rounds": 1}
RECORDED |= {"max_power": 300.0, "beta_knob": None, "max_epochs": 10}


def decisions(caplog):
    """Messages about decisions."""
    return [each.getMessage() for each in caplog.records if each.name == "bftrainer.zeus.server.store"]


def test_decisions_are_logged_as_the_published_server_does(tmp_path, caplog):
    """Pruning, explorations, draws and what beliefs rest on, at level INFO: as recorded, but for the draws."""
    with serving(tmp_path, compat="zeus") as client, caplog.at_level(logging.INFO, "bftrainer"):
        assert client.post("/jobs", json=RECORDED).is_success
        for number in range(14):
            trial = client.get("/jobs/batch_size", params={"job_id": "t-l"}).json()
            used = {"time": 10.0 + number % 3, "energy": 1000.0 + number * 7 + trial["batch_size"]}
            metric = 0.1 if trial["batch_size"] == 32 else 0.6
            client.post("/report", json={**trial, **used, "metric": metric, "current_epoch": 10})
    # The published server was seeded with the clock.
    lines = [re.sub(r"(?<= -> )-\d+\.\d\d$", "DRAWN", line) for line in decisions(caplog)]
    assert lines == (DATA / "decision_log.txt").read_text().splitlines()
    assert {each.levelname for each in caplog.records if each.name.endswith("store")} == {"INFO"}


def test_lines_stay_short_and_quiet_servers_make_none(tmp_path, caplog):
    """Of many rewards the latest 16 are listed; what is not logged is not even put together."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC | {"beta_knob": None, "num_pruning_rounds": 1, "batch_sizes": [16]})
        for number in range(20):
            run(client, "t-1", 64.0 + number)
        assert decisions(caplog) == []
        with caplog.at_level(logging.INFO, "bftrainer"):
            run(client, "t-1", 99.0)
    (line,) = [line for line in decisions(caplog) if "arm_rewards" in line]
    assert line.startswith("t-1 @ 16: arm_rewards = [-83.00, -82.00, -81.00")
    assert "-69.00, -99.00] (the latest of 21), reward_prec = " in line
