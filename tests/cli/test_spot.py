"""`bftrainer spot simulate` and `sweep`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import check_refusal

SPOT = "".join(f"0,add,n{number}\n" for number in range(20)) + "1800000,remove,n3\n3600000,add,n20\n7200000,remove,n9\n"
PROFILE = """schema = 1
samples_per_iteration = 64
world_size = [16]
iteration_s = [18.0]
reconfiguration_s = 90.0
checkpoint_s = 80.0
"""


@pytest.fixture
def spot(call, here):
    """`spot("simulate", ...)` runs the command; s.csv holds twenty nodes of which two are lost."""
    (here / "s.csv").write_text(SPOT)
    (here / "p.toml").write_text(PROFILE)
    return lambda *words: call("spot", *words)


def test_simulate_by_hand(spot):
    """Two hours with one reconfiguration of 90 s after half an hour; the second loss comes at the very end.

    100 iterations of 18 s by 1,800 s. Checkpoints start after iteration 1 and then every 5, the last complete one
    after iteration 91, as that of 96 would need until 1,808: 9 are lost. From 1,890 to 7,200 s there are 295 more. The
    loss at 7,200 leaves those up to the 286th of them, whose checkpoint is complete at 7,118; that of the 291st would
    need until 7,208.
    """
    done = spot("simulate", "--trace", "s.csv", "--profile", "p.toml", "--json", "--price", 2)
    assert (done.status, done.err) == (0, "")
    found = done.json
    assert found["iterations_executed"] == 100 + 295
    assert found["iterations_done"] == 91 + 286
    assert (found["iterations_lost"], found["iterations_redone"]) == (9 + 9, 9)
    assert (found["training_s"], found["redoing_s"]) == (7200.0 - 90.0 - 162.0, 162.0)
    assert (found["reconfiguring_s"], found["stalled_s"]) == (90.0, 0.0)
    assert found["node_hours_held"] == pytest.approx((20 * 1800 + 19 * 1800 + 20 * 3600) / 3600)
    assert found["cost"] == pytest.approx(2 * found["node_hours_held"])


def test_simulate_writes_results(spot, here):
    """Files and a figure where asked; an existing place is refused, results are replaced by force."""
    words = ("simulate", "--trace", "s.csv", "-o", "out", "--figure", "f.svg")
    done = spot(*words)
    assert (done.status, done.err) == (0, "Results: out\nFigure: f.svg\n")
    assert {path.name for path in (here / "out").iterdir()} == {".bftrainer", "events.csv", "summary.json"}
    assert (here / "f.svg").read_text().startswith("<?xml")
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert summary["inputs"]["trace"]["path"] == "s.csv"
    assert summary["inputs"]["profile"]["path"] == "sample-spot-profile.toml"
    check_refusal(spot(*words))
    assert spot(*words, "--force").status == 0
    assert spot("simulate", "--trace", "s.csv", "--json").json == summary


@pytest.mark.long
def test_sweep(spot, here):
    """A row per pair of levels, with intervals; files where asked."""
    words = ("sweep", "--days", 0.1, "--repeats", 3, "--preemption-scale", "0.5,2", "--addition-scale", "0,1")
    done = spot(*words, "-o", "out", "--jobs", 1)
    assert done.status == 0
    assert len(done.out.splitlines()) == 5
    assert "iterations per hour, 95 % ±" in done.out
    assert {path.name for path in (here / "out").iterdir()} == {".bftrainer", "sweep.csv", "summary.json"}
    found = spot(*words, "--json").json
    assert found == json.loads((here / "out" / "summary.json").read_text())
    assert [row["repeats"] for row in found["levels"]] == [3] * 4
