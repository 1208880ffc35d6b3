"""Simulated runs and sweeps, from settings to files."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from bftrainer.errors import InputError, SettingsError
from bftrainer.nodelogs.availability import read_availability, write_measured, write_spot_trace
from bftrainer.nodelogs.availability_trace import AvailabilityTrace, churned
from bftrainer.spot import CheckpointedTraining, MinuteModel, Prices, simulate
from bftrainer.spot.generation import generate_trace
from bftrainer.spot.run import load_log, load_profile, run_figures, summarise_run, write_spot
from bftrainer.spot.sweep import SWEPT, SpotSweep, sweep_spot, write_sweep

S = 10**9


def minutes(days=0.5, **options):
    return generate_trace(days, seed=1, model="minutes", **options).log


def same(one, two):
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("time_ns", "node", "idle"))


# --- simulated runs ----------------------------------------------------------------------------------------------

SETTINGS = CheckpointedTraining(load_profile(None)[0])


def test_the_embedded_profile():
    """It has the published means."""
    profile, source = load_profile(None)
    assert profile.world_size == (16, 32, 48, 64)
    assert profile.iteration_s == (17.994, 11.381, 9.318, 8.283)
    assert (profile.reconfiguration_s, profile.checkpoint_s, profile.load_s) == (87.871, 88.996, 46.831)
    assert source["path"] == "sample-spot-profile.toml"


def test_files_of_a_run(tmp_path):
    """events.csv has rows of step 0, iterations and reconfigurations; summary.json has what came of them."""
    log = minutes(0.5)
    run = simulate(log, SETTINGS)
    made = summarise_run(run, Prices(0.3), {"trace": None})
    write_spot(run, made, tmp_path)
    with (tmp_path / "events.csv").open() as file:
        rows = list(csv.DictReader(file))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(rows[0]) == ["ws", "dt", "event", "event-id"]
    assert rows[0] == {"ws": "32", "dt": "1970-01-01T00:00:00.000Z", "event": "step", "event-id": "0"}
    assert {row["event"] for row in rows} == {"step", "reconfig"}
    assert sum(row["event"] == "step" for row in rows) == 1 + summary["iterations_executed"]
    assert sum(row["event"] == "reconfig" for row in rows) == summary["reconfigurations"]
    assert [row["dt"] for row in rows] == sorted(row["dt"] for row in rows)
    assert summary["settings"]["price"] == 0.3
    assert summary == json.loads(json.dumps(made))
    again = tmp_path / "again"
    again.mkdir()
    write_spot(simulate(log, SETTINGS), made, again)
    for name in ("events.csv", "summary.json"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_which_traces_can_be_simulated(tmp_path):
    """Counts and spot traces can, terminations alone cannot; initial nodes belong to a pair."""
    log = minutes(0.1)
    write_spot_trace(tmp_path / "s.csv", log)
    assert same(load_log(tmp_path / "s.csv")[0], read_availability(tmp_path / "s.csv", print).log)
    pair = (tmp_path / "p-additions.csv", tmp_path / "p-preemptions.csv")
    write_measured(AvailabilityTrace.of_log(log), *pair)
    with pytest.raises(InputError, match=r"p-preemptions\.csv: Expected additions beside terminations"):
        load_log(tmp_path / "p-preemptions.csv")
    with pytest.raises(InputError, match="no effect: --initial-nodes"):
        load_log(tmp_path / "s.csv", None, 4)
    with pytest.raises(InputError, match="Expected 0 <= initial_nodes <= 1,000,000, got -1"):
        load_log(tmp_path / "p-preemptions.csv", tmp_path / "p-additions.csv", -1)


# --- sweeps ------------------------------------------------------------------------------------------------------


def test_a_sweep_is_the_mean_of_its_runs():
    """Each row has the mean and the interval of the runs at its levels, in the order of the levels."""
    sweep = SpotSweep(MinuteModel(), SETTINGS, (1.0, 0.5), (1.0, 0.0), days=0.1, repeats=3)
    rows = sweep_spot(sweep, jobs=1).rows
    assert [(row["preemption_scale"], row["addition_scale"]) for row in rows] == [
        *((1.0, 1.0), (1.0, 0.0), (0.5, 1.0), (0.5, 0.0)),
    ]
    runs = [sweep.run(((0.5, 1.0), repeat))["iterations_done"] for repeat in range(3)]
    assert rows[2]["iterations_done"] == pytest.approx(np.mean(runs))
    assert rows[2]["iterations_done_ci95"] == pytest.approx(4.302653 * np.std(runs, ddof=1) / 3**0.5)
    assert rows[2]["cost"] is None


@pytest.mark.long
def test_processes_change_nothing(tmp_path):
    """One process or two: the same bytes."""
    sweep = SpotSweep(MinuteModel(), SETTINGS, (0.5, 2.0), days=0.1, repeats=4, prices=Prices(0.1, 1.0))
    for jobs in (1, 2):
        (tmp_path / str(jobs)).mkdir()
        write_sweep(sweep_spot(sweep, jobs), tmp_path / str(jobs))
    for name in ("sweep.csv", "summary.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    with (tmp_path / "1" / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert set(SWEPT) <= set(rows[0])
    assert float(rows[0]["iterations_done"]) > float(rows[1]["iterations_done"])


def test_repeats_are_the_same_at_all_levels():
    """At level 1 a repeat is the trace that its seed alone gives, whatever the other levels are."""
    one = SpotSweep(MinuteModel(), SETTINGS, (1.0,), days=0.2, repeats=2)
    two = SpotSweep(MinuteModel(), SETTINGS, (0.5, 1.0), (1.0, 2.0), days=0.2, repeats=3)
    assert one.run(((1.0, 1.0), 1)) == two.run(((1.0, 1.0), 1))
    assert one.run(((1.0, 1.0), 0)) != one.run(((1.0, 1.0), 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preemption_scales": ()}, "at least one level"),
        ({"preemption_scales": (7.0,)}, r"0 <= preemption scale <= 6\.121"),
        ({"days": 0.0}, "days from one minute to 19 years"),
        ({"repeats": 0}, "1 <= repeats <= 1,000,000, got 0"),
        ({"seed": -1}, "seed >= 0, got -1"),
    ],
)
def test_bad_sweeps(options, said):
    """Numbers out of range are refused before anything is simulated."""
    with pytest.raises(SettingsError, match=said):
        SpotSweep(MinuteModel(), SETTINGS, **options)
    with pytest.raises(SettingsError, match="jobs >= 1, got 0"):
        sweep_spot(SpotSweep(MinuteModel(), SETTINGS), jobs=0)


def test_a_log_without_nodes():
    """Nothing there is nothing done, and no failure."""
    figures = run_figures(simulate(churned((0, 60 * S), 0, []), SETTINGS), Prices(1.0, 2.0))
    assert (figures["stalled_s"], figures["cost"]) == (60.0, 0.0)
