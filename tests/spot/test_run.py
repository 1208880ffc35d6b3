"""Simulated runs and sweeps, from settings to files and figures; what training costs."""

import csv
import json
from xml.etree import ElementTree

import numpy as np
import pytest

from bftrainer.errors import InputError, SettingsError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import availability
from bftrainer.report.drawing import plot_counts, render_figure
from bftrainer.spot import CheckpointedTraining, MinuteModel, Prices, SupercomputerModel, run_figures, simulate
from bftrainer.spot.generation import churn_log, generate_trace
from bftrainer.spot.run import (
    COST_FIGURES,
    load_log,
    load_profile,
    profile_source,
    run_figure,
    summarise_run,
    trace_figure,
    write_spot,
)
from bftrainer.spot.statistics import Survival
from bftrainer.spot.supercomputer import LogNormal
from bftrainer.spot.sweep import SpotSweep, sweep_spot
from bftrainer.tasksets.measurements import TrainingProfile

S = 10**9


def minutes(days=0.5, **options):
    return generate_trace(days, seed=1, model="minutes", **options).log


# --- simulated runs ----------------------------------------------------------------------------------------------

SETTINGS = CheckpointedTraining(load_profile(None))


def test_the_embedded_profile():
    """It has the published means."""
    profile, source = load_profile(None), profile_source(None)
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


def test_which_traces_can_be_simulated(tmp_path):
    """Counts and spot traces can, terminations alone cannot."""
    log = minutes(0.1)
    availability.write_spot_trace(tmp_path / "s.csv", log)
    ours, theirs = load_log(tmp_path / "s.csv")[0], availability.read_availability(tmp_path / "s.csv", print).log
    assert all(np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in ("time_ns", "node", "idle"))
    for name, joins in (("preemptions", False), ("additions", True)):
        changes = availability.ChangeTrace.from_log(log, joins=joins)
        availability.write_changes(tmp_path / f"p-{name}.csv", changes, ("dt", name))
    with pytest.raises(InputError, match=r"p-preemptions\.csv: Expected additions beside terminations"):
        load_log(tmp_path / "p-preemptions.csv")
    with pytest.raises(InputError, match="Expected 0 <= initial_nodes <= 1,000,000, got -1"):
        load_log(tmp_path / "p-preemptions.csv", tmp_path / "p-additions.csv", -1)


# --- sweeps ------------------------------------------------------------------------------------------------------


def test_a_sweep_is_the_mean_of_its_runs():
    """Each row has the mean and the interval of the runs at its levels, in the order of the levels."""
    sweep = SpotSweep(MinuteModel(), SETTINGS, (1.0, 0.5), (1.0, 0.0), days=0.1, repeats=3)
    rows = sweep_spot(sweep, jobs=1).rows
    assert [(row["preemption_scale"], row["addition_scale"]) for row in rows] == [
        *((1.0, 1.0), (1.0, 0.0), (0.5, 1.0), (0.5, 0.0))
    ]
    runs = [sweep.run(((0.5, 1.0), repeat))["iterations_done"] for repeat in range(3)]
    assert rows[2]["iterations_done"] == pytest.approx(np.mean(runs))
    assert rows[2]["iterations_done_ci95"] == pytest.approx(4.302653 * np.std(runs, ddof=1) / 3**0.5)
    assert rows[2]["cost"] is None


def test_repeats_are_the_same_at_all_levels():
    """At level 1 a repeat is the trace that its seed alone gives, whatever the other levels are."""
    one = SpotSweep(MinuteModel(), SETTINGS, (1.0,), days=0.2, repeats=2)
    two = SpotSweep(MinuteModel(), SETTINGS, (0.5, 1.0), (1.0, 2.0), days=0.2, repeats=3)
    assert one.run(((1.0, 1.0), 1)) == two.run(((1.0, 1.0), 1))
    assert one.run(((1.0, 1.0), 0)) != one.run(((1.0, 1.0), 1))


# --- costs ------------------------------------------------------------------------------------------------------------

PROFILE = TrainingProfile((2, 4), (36.0, 20.0), 60.0, 30.0, samples_per_iteration=8.0)
PAIRED = CheckpointedTraining(PROFILE, depth=2, max_world_size=4)


def figures(prices, nodes=3, settings=PAIRED):
    """Ten hours on so many nodes."""
    return run_figures(simulate(churn_log((0, 36_000 * S), nodes, []), settings), prices)


def test_cost_by_hand():
    """Three nodes for ten hours at 0.2 cost 6; two of them do 1,000 iterations of 8 samples.

    Four on demand at 0.5 cost 20 and do 1,800: 90 a unit, against 166.7.
    """
    found = figures(Prices(0.2, 0.5))
    assert (found["cost"], found["iterations_done"]) == (pytest.approx(6.0), 1000)
    assert found["iterations_per_currency"] == pytest.approx(1000 / 6)
    assert found["samples_per_currency"] == pytest.approx(8000 / 6)
    assert found["value_against_on_demand"] == pytest.approx(1000 / 6 / 90)
    assert found["samples_per_s"] == pytest.approx(8000 / 36_000)


def test_nodes_on_demand_train_in_whole_pipelines():
    """Of three nodes on demand two train, at 1,000 iterations in ten hours, and three are paid: 15."""
    found = figures(Prices(0.2, 0.5), settings=CheckpointedTraining(PROFILE, depth=2, max_world_size=3))
    assert found["value_against_on_demand"] == pytest.approx(1000 / 6 / (1000 / 15))


def test_figures_without_prices():
    """Without prices they are null, without a price on demand there is no comparison, without nodes no value."""
    assert {name: figures(None)[name] for name in COST_FIGURES} == dict.fromkeys(COST_FIGURES)
    assert figures(Prices(0.2))["value_against_on_demand"] is None
    assert figures(Prices(0.2, 0.5), nodes=0)["iterations_per_currency"] is None


# --- figures ----------------------------------------------------------------------------------------------------------

LOG = churn_log((0, 7200 * S), 4, [(1800 * S, 1, 0), (3600 * S, 2, 3)])
DRAWN = CheckpointedTraining(TrainingProfile((2,), (10.0,), 60.0, 30.0), depth=2)
RUN = simulate(LOG, DRAWN)


def test_traces_are_drawn():
    """The step line has the counts over hours; survival falls from 1 at its times, and may be empty."""
    line = plot_counts(availability.CountTrace.from_log(LOG)).lines[0]
    assert line.get_xdata().tolist() == [0.0, 0.5, 1.0, 2.0]
    assert line.get_ydata().tolist() == [4, 3, 4, 4]
    _, below = trace_figure(None, Survival(np.array([10.0, 20.0]), np.array([0.5, 0.0]))).axes
    assert below.lines[0].get_ydata().tolist() == [1.0, 0.5, 0.0]
    assert not trace_figure(None, Survival(np.empty(0), np.empty(0))).axes[1].lines


def test_a_run_is_drawn():
    """Active nodes over the hours of the run, and bars of shares of time that fill the axis and say what they are."""
    figure = run_figure(RUN, run_figures(RUN))
    assert any("reconfiguring" in text for text in ElementTree.fromstring(render_figure(figure, "svg")).itertext())
    above, below = figure.axes
    outline = above.collections[0].get_paths()[0].vertices
    assert outline[:, 1].max() == max(phase.world_size for phase in RUN.phases)
    assert outline[:, 0].max() == 2.0
    assert sum(bar.get_width() for bar in below.patches) == pytest.approx(100.0)
    assert [text.get_text().split()[0] for text in below.get_legend().texts] == [
        *("training", "redoing", "reconfiguring", "stalled")
    ]


# --- refusals ---------------------------------------------------------------------------------------------------------

NOBODY = NodeLog(("a",), 0, 9, *(np.empty(0, kind) for kind in (int, np.int32, bool)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CheckpointedTraining(PROFILE, depth=0), "depth >= 1, got 0"),
        (lambda: CheckpointedTraining(PROFILE, preparation_s=-1.0), r"0 <= preparation_s < 1e9, got -1\.0"),
        (lambda: CheckpointedTraining(PROFILE, on_loss_during_reconfigure="stop"), "restart or extend, got 'stop'"),
        (lambda: generate_trace(0.0), r"0 < days <= 36525, got 0\.0"),
        (lambda: generate_trace(30_000.0, start_ns=9 * 10**18), "ends before the year 2262"),
        (lambda: generate_trace(1.0, fragment_mean_s=3.0), "both fragment_mean_s and fragment_median_s, or neither"),
        (lambda: generate_trace(1.0, daily_amplitude=1.0), r"0 <= daily_amplitude < 1, got 1\.0"),
        (lambda: generate_trace(1.0, peak_hour=24.0), r"0 <= peak_hour < 24, got 24\.0"),
        (lambda: minutes(max_nodes=0), "1 <= max_nodes <= 1,000,000, got 0"),
        (lambda: MinuteModel(preemption_mean=-1.0), r"a mean of sizes from 0 to 1e6, got -1\.0"),
        (lambda: MinuteModel(initial_nodes=65), r"0 <= initial nodes <= the 64 nodes there are at most, got 65"),
        # The level that makes a chance 1 is named.
        (lambda: MinuteModel().adjust(preemption_scale=7.0), r"scale <= 6\.121 \(a chance of 1 a minute\), got 7"),
        (lambda: MinuteModel().adjust(addition_scale=-1.0), "got -1"),
        (lambda: SupercomputerModel(nodes=0), "1 <= nodes <= 1,000,000, got 0"),
        (lambda: SupercomputerModel(split_mean=0.5), r"split after 1 node or more, got 0\.5"),
        (lambda: LogNormal(1.0, 0.0), r"log-normal distribution, got 0\.0 and 1\.0"),
        (lambda: SupercomputerModel.fit(NOBODY), "nodes that become idle and are taken back"),
        (lambda: SpotSweep(MinuteModel(), SETTINGS, ()), "at least one level"),
        (lambda: SpotSweep(MinuteModel(), SETTINGS, (7.0,)), r"0 <= preemption scale <= 6\.121"),
        (lambda: SpotSweep(MinuteModel(), SETTINGS, repeats=0), "1 <= repeats <= 1,000,000, got 0"),
        (lambda: SpotSweep(MinuteModel(), SETTINGS, seed=-1), "seed >= 0, got -1"),
        (lambda: sweep_spot(SpotSweep(MinuteModel(), SETTINGS), jobs=0), "jobs >= 1, got 0"),
    ],
)
def test_what_is_refused(make, said):
    """Numbers out of range, and logs of which nothing is learned, in one line; `tests/cli` has those of commands."""
    with pytest.raises(SettingsError, match=said):
        make()
