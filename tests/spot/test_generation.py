"""Generated traces, from options to files; the minute model: sizes, chances, levels, and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.nodelogs import write_node_log
from bftrainer.nodelogs.availability import write_spot_trace
from bftrainer.nodelogs.availability_trace import AvailabilityTrace, ChangeTrace, CountTrace
from bftrainer.runs import run_replay
from bftrainer.spot import MinuteModel, generate_minutes, trace_statistics
from bftrainer.spot.generation import draw_sizes, fit_minutes, generate_trace
from tests.examples import examples


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
    found = trace_statistics(AvailabilityTrace.from_log(log)).figures
    fitted = fit_minutes(AvailabilityTrace.from_log(log), None)
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
    found = trace_statistics(AvailabilityTrace.from_log(made.log)).figures
    assert found["hole_peak_hour"] == pytest.approx(8.0, abs=0.3)


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


# --- the minute model -------------------------------------------------------------------------------------------------

DEFAULT = MinuteModel()


def test_sizes_are_rounded_mirrored_and_at_least_one():
    """Rounding up to 1 and mirroring at 0 make 2.76 of a mean of 2.41; big additions are 11 to 31, about equally."""
    drawn = MinuteModel(big_addition_share=1.0).draw(np.random.default_rng(2), 200_000)
    sizes, number = np.unique(drawn.added, return_counts=True)
    assert sizes.tolist() == list(range(11, 32))
    assert number.min() > 0.8 * number.mean()
    drawn = draw_sizes(np.random.default_rng(5), 2.4138, 2.0862, 10**6)
    assert drawn.min() == 1
    assert drawn.mean() == pytest.approx(2.7594, rel=0.005)
    assert set(draw_sizes(np.random.default_rng(5), 2.5, 0.0, 9)) == {2}


def test_chances_and_sizes_over_a_million_minutes():
    """Before the bounds, chances are within 2 % of those asked for, sizes within 2 % of what the model expects."""
    drawn = DEFAULT.draw(np.random.default_rng(1), 10**6)
    assert drawn.taken_at.size / 10**6 == pytest.approx(DEFAULT.preemption_chance, rel=0.02)
    assert drawn.added_at.size / 10**6 == pytest.approx(DEFAULT.addition_chance, rel=0.02)
    assert drawn.is_big.mean() == pytest.approx(DEFAULT.big_addition_share, rel=0.02)
    assert drawn.taken.mean() == pytest.approx(2.7594, rel=0.02)
    assert drawn.added[~drawn.is_big].mean() == pytest.approx(2.7972, rel=0.02)


def test_the_figures_are_those_of_the_trace():
    """Beside what was asked for is what its statistics say; preemptions that find no node are missing."""
    made = generate_minutes(DEFAULT.adjust(preemption_scale=2.0), np.random.default_rng(1), 20_000)
    figures = {figure.name: figure for figure in made.figures}
    assert set(figures) == {
        *("preemption_chance", "addition_chance", "big_addition_share", "preemption_mean", "regular_addition_mean"),
    }
    assert figures["preemption_chance"].realised < figures["preemption_chance"].asked == 2 * DEFAULT.preemption_chance
    found = trace_statistics(AvailabilityTrace.from_log(made.log)).figures
    assert all(figure.realised == found[name] for name, figure in figures.items())


def log_of(model, seed, minutes=600):
    return generate_minutes(model, np.random.default_rng(seed), minutes).log


chances, sizes = st.floats(0, 1), st.floats(0, 9)
models = st.builds(MinuteModel, chances, chances, chances, sizes, sizes, sizes, sizes)


@examples(60)
@given(models, st.integers(0, 99), st.integers(1, 70), st.data())
def test_nodes_stay_within_bounds(model, seed, most, data):
    """Never fewer than none, never more than the most, and the log opens with the nodes asked for."""
    initial = data.draw(st.integers(0, most))
    count = CountTrace.of(log_of(model.adjust(initial_nodes=initial, max_nodes=most), seed, 200))
    assert count.count.min() >= 0
    assert count.count.max() <= most
    assert count.count[0] == initial
    assert count.time_ns[-1] == 200 * 60 * 10**9


def test_higher_levels_have_the_minutes_of_lower_ones():
    """Preemptions at twice the level happen in the same minutes and in further ones; additions stay as they are."""
    one, two = (DEFAULT.adjust(preemption_scale=level).draw(np.random.default_rng(7), 5000) for level in (1.0, 2.0))
    assert set(one.taken_at) < set(two.taken_at)
    assert np.array_equal(one.added_at, two.added_at)
    assert np.array_equal(one.added, two.added)


def test_levels_have_a_limit():
    """A chance above 1 a minute is refused, with the level that makes it 1; so is a negative one."""
    with pytest.raises(
        SettingsError, match=r"Expected 0 <= preemption scale <= 6\.121 \(a chance of 1 a minute\), got 7"
    ):
        DEFAULT.adjust(preemption_scale=7.0)
    with pytest.raises(SettingsError, match=r"got -1"):
        DEFAULT.adjust(addition_scale=-1.0)
    assert DEFAULT.adjust(preemption_scale=0.0).preemption_chance == 0.0


def test_a_fitted_model_has_the_figures_of_its_trace():
    """Chances, sizes and bounds are those measured."""
    trace = AvailabilityTrace.from_log(log_of(DEFAULT.adjust(initial_nodes=500, max_nodes=1000), 5, 50_000))
    figures, model = trace_statistics(trace).figures, MinuteModel.fit(trace)
    assert (model.preemption_chance, model.addition_chance) == (
        figures["preemption_chance"],
        figures["addition_chance"],
    )
    assert (model.preemption_mean, model.addition_std) == (figures["preemption_mean"], figures["regular_addition_std"])
    assert (model.initial_nodes, model.max_nodes) == (round(figures["mean_nodes"]), figures["max_nodes"])


def test_what_cannot_be_fitted():
    """A trace without additions over time, or with more than one event a minute, is refused with the reason."""
    minute_ns = 60 * 10**9
    with pytest.raises(SettingsError, match="that tells preemptions and additions"):
        MinuteModel.fit(AvailabilityTrace("terminations", ChangeTrace(np.array([0, 9 * minute_ns]), np.array([1, 2]))))
    busy = CountTrace(np.arange(7) * minute_ns // 3, np.array([9, 8, 9, 10, 11, 12, 11]))
    with pytest.raises(
        SettingsError, match=r"at most one event a minute.*addition_chance 2; try --model supercomputer"
    ):
        MinuteModel.fit(AvailabilityTrace.from_counts(busy))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MinuteModel(preemption_chance=1.5), r"preemption_chance from 0 to 1, got 1\.5"),
        (lambda: MinuteModel(big_addition_share=float("nan")), r"big_addition_share from 0 to 1, got nan"),
        (lambda: MinuteModel(preemption_mean=-1.0), r"a mean of sizes from 0 to 1e6, got -1\.0"),
        (lambda: MinuteModel(addition_std=float("inf")), r"a std of sizes from 0 to 1e6, got inf"),
        (lambda: MinuteModel(initial_nodes=65), r"0 <= initial nodes <= the 64 nodes there are at most, got 65"),
    ],
)
def test_bad_settings(make, said):
    """Numbers out of range are refused when they are given."""
    with pytest.raises(SettingsError, match=said):
        make()
