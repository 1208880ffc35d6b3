"""Generated traces, from options to files."""

from __future__ import annotations

import pytest

from bftrainer.errors import SettingsError
from bftrainer.nodelogs import write_node_log
from bftrainer.nodelogs.availability import write_spot_trace
from bftrainer.nodelogs.availability_trace import AvailabilityTrace
from bftrainer.runs import run_replay
from bftrainer.spot import MinuteModel, trace_statistics
from bftrainer.spot.generation import fit_minutes, generate_trace


def minutes(days=0.5, **options):
    return generate_trace(days, seed=1, model="minutes", **options).log


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz"])
@pytest.mark.parametrize("model", ["minutes", "supercomputer"])
def test_same_seed_same_bytes(tmp_path, model, name):
    """The same seed gives the same file, another one another."""
    written = []
    for seed in (1, 1, 2):
        size = {"nodes": 50} if model == "supercomputer" else {}
        write_node_log(tmp_path / name, generate_trace(0.5, seed=seed, model=model, **size).log)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    assert written[0] != written[2]


def test_generated_logs_can_be_replayed():
    """Either model's log is an input of the replay."""
    for options in ({"model": "minutes"}, {"nodes": 64}):
        log = generate_trace(0.2, seed=1, **options).log
        assert run_replay(node_log=log, solver="dp", baseline=False, max_events=30).summary()["events"] == 30


def test_the_model_suits_the_trace(tmp_path):
    """A spot trace is fitted by minutes, a node log by holes; either may be asked for."""
    log = minutes(2.0)
    write_spot_trace(tmp_path / "spot.csv", log)
    made = generate_trace(0.5, like=tmp_path / "spot.csv")
    assert made.log.provenance["model"] == "minutes"
    assert len(made.log.nodes) <= 64
    holes = generate_trace(2.0, nodes=50).log
    write_node_log(tmp_path / "nodes.parquet", holes)
    made = generate_trace(0.5, like=tmp_path / "nodes.parquet")
    assert (made.log.provenance["model"], len(made.log.nodes)) == ("supercomputer", 50)
    made = generate_trace(0.5, model="supercomputer", like=tmp_path / "spot.csv")
    assert made.log.provenance["model"] == "supercomputer"


def test_bounds_of_a_fitted_trace():
    """Like a trace, a generated one opens with its mean number of nodes and never has more than it had."""
    log = minutes(1.0, initial_nodes=10, max_nodes=20)
    found = trace_statistics(AvailabilityTrace.of_log(log)).figures
    fitted = fit_minutes(AvailabilityTrace.of_log(log), None)
    bounds = [(round(found["mean_nodes"]), 20), (8, 8), (5, 64)]
    models = [fitted, MinuteModel().adjust(max_nodes=8), MinuteModel().adjust(initial_nodes=5)]
    assert [(model.initial_nodes, model.max_nodes) for model in models] == bounds


def test_options_of_the_supercomputer():
    """Each option changes its figure and leaves the others."""
    made = generate_trace(
        14.0, seed=3, nodes=400, idle_share=0.2, fragment_mean_s=900.0, fragment_median_s=600.0,
        daily_amplitude=0.6, peak_hour=8.0,
    )  # fmt: skip
    asked = {figure.name: figure.asked for figure in made.figures}
    assert asked == {
        "idle_share": 0.2,
        "fragment_mean_s": pytest.approx(900.0),
        "fragment_median_s": pytest.approx(600.0),
        "hole_mean_nodes": pytest.approx(asked["hole_mean_nodes"]),
        "holes_per_hour": pytest.approx(0.2 * 400 / 900 / asked["hole_mean_nodes"] * 3600),
        "hole_daily_amplitude": pytest.approx(0.6),
    }
    for figure in made.figures:
        assert figure.realised == pytest.approx(figure.asked, rel=0.05), figure
    found = trace_statistics(AvailabilityTrace.of_log(made.log)).figures
    assert found["hole_peak_hour"] == pytest.approx(8.0, abs=0.3)


def test_figures_of_ten_years():
    """The idle share that came out is told of any length: node-nanoseconds of a century of nodes exceed 64 bits."""
    lengths = {"fragment_mean_s": 30 * 86_400.0, "fragment_median_s": 20 * 86_400.0}
    made = generate_trace(3_650.0, seed=1, nodes=200, idle_share=0.5, **lengths)
    (share,) = [figure for figure in made.figures if figure.name == "idle_share"]
    assert share.realised == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: generate_trace(0.0), r"0 < days <= 36525, got 0\.0"),
        (lambda: generate_trace(float("nan")), "got nan"),
        (lambda: generate_trace(1.0, seed=-1), "seed >= 0, got -1"),
        (lambda: generate_trace(30_000.0, start_ns=9 * 10**18), "ends before the year 2262"),
        (lambda: generate_trace(1.0, fragment_mean_s=3.0), "both fragment_mean_s and fragment_median_s, or neither"),
        (lambda: generate_trace(1.0, daily_amplitude=1.0), r"0 <= daily_amplitude < 1, got 1\.0"),
        (lambda: generate_trace(1.0, peak_hour=24.0), r"0 <= peak_hour < 24, got 24\.0"),
        (lambda: generate_trace(1.0, model="minutes", nodes=4),
         r"no effect: --nodes \(of the model supercomputer alone"),
        (lambda: generate_trace(1.0, max_nodes=4), r"no effect: --max-nodes \(of the model minutes alone"),
        (lambda: minutes(max_nodes=0), "1 <= max_nodes <= 1,000,000, got 0"),
        (lambda: minutes(initial_nodes=65), "0 <= initial nodes <= the 64 nodes there are at most, got 65"),
    ],
)  # fmt: skip
def test_bad_generation(make, said):
    """Numbers out of range, and options of the other model, are refused."""
    with pytest.raises(SettingsError, match=said):
        make()


def test_terminations_alone_are_not_enough(tmp_path):
    """Neither model can be fitted to them."""
    path = tmp_path / "t.csv"
    path.write_text("timestamp,number\n2021-01-01T00:01:30Z,2\n2021-01-01T00:11:30Z,2\n")
    for model in ("minutes", "supercomputer"):
        with pytest.raises(SettingsError, match=r"t\.csv: Expected a "):
            generate_trace(1.0, model=model, like=path)
