"""Generated traces, from options to files; the model by minutes, and that of a supercomputer."""

import hashlib
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.nodelogs.availability import AvailabilityTrace, CountTrace, write_spot_trace
from bftrainer.runs import run_replay
from bftrainer.spot import MinuteModel, SupercomputerModel, generate_holes, generate_minutes, trace_statistics
from bftrainer.spot.generation import draw_sizes, fit_minutes, generate_trace
from bftrainer.spot.statistics import DailyCycle, Fragments, hole_figures, seconds_by_hour
from bftrainer.spot.supercomputer import LogNormal, Quantiles, even_shares
from tests.examples import examples


def test_generated_logs_can_be_replayed():
    """Either model's log is an input of the replay."""
    for options in ({"model": "minutes"}, {"nodes": 64}):
        log = generate_trace(0.2, seed=1, **options).log
        assert run_replay(node_log=log, solver="dp", baseline=False, max_events=30).summary()["events"] == 30


def test_the_model_suits_the_trace(tmp_path):
    """A spot trace is fitted by minutes, a node log by holes; either may be asked for."""
    log = generate_trace(2.0, seed=1, model="minutes").log
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
    check(made)
    found = trace_statistics(AvailabilityTrace.from_log(made.log)).figures
    assert found["hole_peak_hour"] == pytest.approx(8.0, abs=0.3)


# --- the minute model -------------------------------------------------------------------------------------------------

DEFAULT = MinuteModel()


def test_sizes_are_rounded_mirrored_and_at_least_one():
    """Rounding up to 1 and mirroring at 0 make 2.76 of a mean of 2.41; big additions are 11 to 31, about equally."""
    drawn = MinuteModel(big_addition_share=1.0).draw(np.random.default_rng(2), 200_000)
    sizes, number = np.unique(drawn.added, return_counts=True)
    assert sizes.tolist() == list(range(11, 32))
    assert number.min() > 0.8 * number.mean()
    assert set(draw_sizes(np.random.default_rng(5), 2.5, 0.0, 9)) == {2}
    # Before the bounds, chances are within 2 % of those asked for, sizes within 2 % of what the model expects.
    drawn = DEFAULT.draw(np.random.default_rng(1), 10**6)
    assert drawn.taken.min() == 1
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
        *("preemption_chance", "addition_chance", "big_addition_share", "preemption_mean", "regular_addition_mean")
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
    count = CountTrace.from_log(log_of(model.adjust(initial_nodes=initial, max_nodes=most), seed, 200))
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


def test_a_fitted_model_has_the_figures_of_its_trace():
    """Chances, sizes and bounds are those measured; other bounds are those asked for, and fit together."""
    trace = AvailabilityTrace.from_log(log_of(DEFAULT.adjust(initial_nodes=500, max_nodes=1000), 5, 50_000))
    figures, model = trace_statistics(trace).figures, fit_minutes(trace, None)
    pairs = ("preemption_chance", "addition_chance", "preemption_mean", "max_nodes")
    assert [getattr(model, name) for name in pairs] == [figures[name] for name in pairs]
    assert (model.initial_nodes, model.addition_std) == (round(figures["mean_nodes"]), figures["regular_addition_std"])
    adjusted = [DEFAULT.adjust(max_nodes=8), DEFAULT.adjust(initial_nodes=5)]
    assert [(model.initial_nodes, model.max_nodes) for model in adjusted] == [(8, 8), (5, 64)]


def test_what_cannot_be_fitted(tmp_path):
    """Terminations alone, and a trace with more than one event a minute, are refused with the reason."""
    path = tmp_path / "t.csv"
    path.write_text("timestamp,number\n2021-01-01T00:01:30Z,2\n2021-01-01T00:11:30Z,2\n")
    for model, said in (("minutes", "trace that tells preemptions and additions"), ("supercomputer", "log of nodes")):
        with pytest.raises(SettingsError, match=rf"t\.csv: Expected a {said}"):
            generate_trace(1.0, model=model, like=path)
    busy = CountTrace(np.arange(7) * 20 * 10**9, np.array([9, 8, 9, 10, 11, 12, 11]))
    with pytest.raises(SettingsError, match=r"at most one event a minute.*addition_chance 2; try --model superc"):
        MinuteModel.fit(AvailabilityTrace.from_log(busy.log()))


# --- the model of a supercomputer -------------------------------------------------------------------------------------


DAY_NS = 86_400 * 10**9
WINDOW = (0, 14 * DAY_NS)
WITHIN = 0.05


def check(made, original=None):
    """Every figure within 5 % of what was asked for, or of what another trace has."""
    assert len(made.figures) == 6
    for figure in made.figures:
        wanted = figure.asked if original is None else original[figure.name]
        assert figure.realised == pytest.approx(wanted, rel=WITHIN), figure


def test_figures_come_out_as_asked():
    """Two weeks of 4,734 nodes: idle share, fragments, holes and daily cycle within 5 %, in under 20 s of computing."""
    began = time.process_time()
    check(generate_holes(SupercomputerModel(), np.random.default_rng(1), WINDOW))
    assert time.process_time() - began < 20


@pytest.fixture(scope="module")
def summit(published):
    """The figures of the Summit log, and the model that is fitted to it."""
    log = read_node_log(published / "ndstat-10sdn6-evt.tar.gz")
    return trace_statistics(AvailabilityTrace.from_log(log)).figures, SupercomputerModel.fit(log)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_figures_of_the_published_log(summit, seed):
    """Fitted to the Summit log, two weeks have its figures within 5 %."""
    original, model = summit
    made = generate_holes(model, np.random.default_rng(seed), WINDOW)
    check(made)
    found = trace_statistics(AvailabilityTrace.from_log(made.log)).figures
    for name in (
        *("idle_share", "fragment_mean_s", "fragment_median_s", "fragment_under_600_s_share", "fragment_p90_s"),
        *("holes_per_hour", "hole_mean_nodes", "hole_median_nodes", "hole_group_mean_nodes", "hole_daily_amplitude"),
    ):
        assert found[name] == pytest.approx(original[name], rel=WITHIN), name
    assert found["hole_peak_hour"] == pytest.approx(original["hole_peak_hour"], abs=0.5)


def test_a_fitted_model_has_the_figures_of_its_log():
    """A log that was generated is met by a model that is fitted to it."""
    model = SupercomputerModel(nodes=600, hole_nodes=LogNormal(5.0, 2.0), cycle=DailyCycle.cosine(0.4, 12.0))
    first = generate_holes(model, np.random.default_rng(1), WINDOW).log
    again = SupercomputerModel.fit(first)
    assert again.nodes == 600
    original = trace_statistics(AvailabilityTrace.from_log(first)).figures
    check(generate_holes(again, np.random.default_rng(2), WINDOW), original)


@examples(40)
@given(
    st.integers(1, 60),
    st.floats(0.01, 0.95),
    st.floats(1.0, 20.0),
    st.floats(1.0, 5.0),
    st.integers(3600, 200_000),
    st.integers(0, 99),
)
def test_every_machine_has_a_log(nodes, share, hole, spread, window_s, seed):
    """Small machines, long holes, short windows: a valid log comes out, or a reason."""
    sizes = LogNormal(hole * spread, hole)
    model = SupercomputerModel(nodes, share, LogNormal(600.0, 200.0), sizes, DailyCycle(), split_mean=spread)
    window = (DAY_NS // 3, DAY_NS // 3 + window_s * 10**9)
    if round(share * nodes * window_s / 600.0) < 1:
        with pytest.raises(SettingsError, match="Expected a window in which a node becomes idle"):
            model.generate(np.random.default_rng(seed), window)
        return
    log = model.generate(np.random.default_rng(seed), window)
    assert isinstance(log, NodeLog)
    assert (log.time_ns % 10**9 == 0).all()


def test_holes_by_hand():
    """Two holes, of two nodes and of one; the two are taken back apart; hours of a window that crosses midnight."""
    time = np.array([10, 10, 20, 30, 40, 60], dtype=np.int64) * 10**9
    node = np.array([0, 1, 0, 2, 1, 2], dtype=np.int32)
    log = NodeLog(("a", "b", "c"), 0, 3600 * 10**9, time, node, np.array([1, 1, 0, 1, 0, 0], dtype=bool))
    figures = hole_figures(log)
    assert [figures[name] for name in ("holes", "hole_max_nodes", "holes_per_hour")] == [2, 2, 2.0]
    assert Fragments.from_log(log).mean_group() == 1.0
    assert "hole_peak_hour" not in figures
    # From 22:30 to 01:15 there is half an hour of hour 22, an hour each of 23 and 0, a quarter of hour 1.
    start = (22 * 3600 + 1800) * 10**9
    found = seconds_by_hour(start, start + int(2.75 * 3600) * 10**9)
    assert {hour: s for hour, s in enumerate(found.tolist()) if s} == {22: 1800.0, 23: 3600.0, 0: 3600.0, 1: 900.0}


@pytest.mark.parametrize(("amplitude", "peak"), [(0.3, 0.5), (0.9, 16.4), (0.01, 23.9)])
def test_a_cycle_is_found_again(amplitude, peak):
    """Amplitude and peak of a cosine are read off its hours."""
    found = DailyCycle.cosine(amplitude, peak).harmonic()
    assert found == (pytest.approx(amplitude), pytest.approx(peak))


def test_distributions():
    """A sample's quantiles keep its mean and median, and draw within its range; so does an even log-normal sample."""
    sample = np.random.default_rng(0).lognormal(3.0, 1.5, 20_000).round() + 1
    made = Quantiles.from_sample(sample)
    assert made.mean == pytest.approx(sample.mean(), rel=0.01)
    assert float(made.values(np.array(0.5))) == np.median(sample)
    drawn = made.values(np.random.default_rng(1).random(2000))
    assert sample.min() <= drawn.min() <= drawn.max() <= sample.max()
    made = LogNormal(1191.9, 475.0)
    values = made.values(even_shares(100_001))
    assert (made.mean, np.median(values)) == (pytest.approx(1191.9), pytest.approx(475.0))
    assert values.mean() == pytest.approx(1191.9, rel=0.005)


def test_a_seed_gives_the_log_that_it_always_gave():
    """The bytes of a log, and what the generator draws next, are those of earlier versions."""
    rng = np.random.default_rng(7)
    log = SupercomputerModel(nodes=300, split_mean=2.9).generate(rng, (DAY_NS, 4 * DAY_NS))
    octets = b"".join(array.tobytes() for array in (log.time_ns, log.node, log.idle))
    assert (hashlib.sha256(octets).hexdigest()[:16], rng.integers(10**9)) == ("a31591bcf61298e5", 311_331_838)
