"""The minute model: sizes, chances, levels, and what the bounds make of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.nodelogs.availability_trace import AvailabilityTrace, CountTrace
from bftrainer.spot import MinuteModel, SizeModel, generate_minutes, trace_statistics
from tests.examples import examples

DEFAULT = MinuteModel()


def test_expected_size_of_the_defaults():
    """Rounding up to 1 and mirroring make 2.76 of a mean of 2.41."""
    assert round(SizeModel(2.4138, 2.0862).expected, 2) == 2.76


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.3), (0.0, 5.0), (1.2, 0.57), (2.5, 0.0), (7.0, 0.4), (40.0, 12.0)])
def test_expected_size_by_counting(mean, std):
    """The series agrees with a million draws."""
    model = SizeModel(mean, std)
    drawn = model.draw(np.random.default_rng(5), 10**6)
    assert drawn.min() >= 1
    assert drawn.mean() == pytest.approx(model.expected, rel=0.005)


@examples(40)
@given(st.floats(1.0, 60.0), st.floats(0.0, 30.0))
def test_exact_means(mean, std):
    """A mean that sizes can have is met, whatever the spread."""
    assert SizeModel(mean, std).exact().expected == pytest.approx(mean, rel=1e-9)


def test_means_below_one_cannot_be_met():
    """No size is below 1, so no mean is."""
    with pytest.raises(SettingsError, match=r"Expected a mean size >= 1 to be met exactly, got 0\.5"):
        SizeModel(0.5, 1.0).exact()


def test_chances_and_sizes_over_a_million_minutes():
    """Before the bounds, chances are within 2 % of those asked for, sizes within 2 % of what the model expects."""
    drawn = DEFAULT.draw(np.random.default_rng(1), 10**6)
    assert drawn.taken_at.size / 10**6 == pytest.approx(DEFAULT.preemption_chance, rel=0.02)
    assert drawn.added_at.size / 10**6 == pytest.approx(DEFAULT.addition_chance, rel=0.02)
    assert drawn.is_big.mean() == pytest.approx(DEFAULT.big_addition_share, rel=0.02)
    assert drawn.taken.mean() == pytest.approx(DEFAULT.preemption.expected, rel=0.02)
    assert drawn.added[~drawn.is_big].mean() == pytest.approx(DEFAULT.addition.expected, rel=0.02)


@pytest.mark.parametrize("exact", [False, True])
def test_the_figures_say_what_was_drawn_and_what_the_bounds_left(exact):
    """Exact means are expected as asked; else more is; what the bounds cut off is missing in what is realised."""
    made = generate_minutes(DEFAULT, np.random.default_rng(1), 20_000, 0, (32, 64), exact_mean=exact)
    figures = {figure.name: figure for figure in made.figures}
    assert set(figures) == {
        *("preemption_chance", "addition_chance", "big_addition_share", "preemption_mean", "regular_addition_mean"),
    }
    assert round(figures["preemption_mean"].expected, 2) == (2.41 if exact else 2.76)
    assert (figures["regular_addition_mean"].expected == pytest.approx(2.5417)) is exact
    assert figures["addition_chance"].realised < figures["addition_chance"].drawn
    found = trace_statistics(AvailabilityTrace.of_log(made.log)).figures
    assert all(figure.realised == found[name] for name, figure in figures.items())


def test_big_additions_are_uniform():
    """Sizes 11 to 31, all of them, about equally often."""
    drawn = MinuteModel(big_addition_share=1.0).draw(np.random.default_rng(2), 200_000)
    sizes, number = np.unique(drawn.added, return_counts=True)
    assert sizes.tolist() == list(range(11, 32))
    assert number.min() > 0.8 * number.mean()


def log_of(model, seed, minutes=600, bounds=(32, 64)):
    return generate_minutes(model, np.random.default_rng(seed), minutes, 0, bounds).log


def test_same_seed_same_log():
    """The same generator state gives the same log, another one another."""
    one, two, other = (log_of(DEFAULT, seed) for seed in (3, 3, 4))
    for name in ("time_ns", "node", "idle"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert not np.array_equal(one.time_ns, other.time_ns)


models = st.builds(
    MinuteModel,
    st.floats(0, 1),
    st.floats(0, 1),
    st.builds(SizeModel, st.floats(0, 9), st.floats(0, 9)),
    st.builds(SizeModel, st.floats(0, 9), st.floats(0, 9)),
    st.floats(0, 1),
)


@examples(60)
@given(models, st.integers(0, 99), st.integers(1, 70), st.data())
def test_nodes_stay_within_bounds(model, seed, most, data):
    """Never fewer than none, never more than the most, and the log opens with the nodes asked for."""
    initial = data.draw(st.integers(0, most))
    count = CountTrace.of(log_of(model, seed, 200, (initial, most)))
    assert count.count.min() >= 0
    assert count.count.max() <= most
    assert count.count[0] == initial
    assert count.time_ns[-1] == 200 * 60 * 10**9


def test_higher_levels_have_the_minutes_of_lower_ones():
    """Preemptions at twice the level happen in the same minutes and in further ones; additions stay as they are."""
    one, two = (DEFAULT.scaled(level).draw(np.random.default_rng(7), 5000) for level in (1.0, 2.0))
    assert set(one.taken_at) < set(two.taken_at)
    assert np.array_equal(one.added_at, two.added_at)
    assert np.array_equal(one.added, two.added)


def test_levels_have_a_limit():
    """A chance above 1 a minute is refused, with the level that makes it 1; so is a negative one."""
    with pytest.raises(
        SettingsError, match=r"Expected 0 <= preemption scale <= 6\.121 \(a chance of 1 a minute\), got 7"
    ):
        DEFAULT.scaled(7.0)
    with pytest.raises(SettingsError, match=r"got -1"):
        DEFAULT.scaled(1.0, -1.0)
    assert DEFAULT.scaled(0.0, 0.0).preemption_chance == 0.0


def test_a_fitted_model_has_the_figures_of_its_trace():
    """Chances are those measured; with exact means a generated trace has the sizes of the one it is like."""
    figures = trace_statistics(AvailabilityTrace.of_log(log_of(DEFAULT, 5, 50_000, (500, 1000)))).figures
    model = MinuteModel.fitted(figures)
    assert model.preemption_chance == figures["preemption_chance"]
    again = generate_minutes(model, np.random.default_rng(6), 50_000, 0, (500, 1000), exact_mean=True)
    for figure in again.figures:
        # Some 300 big additions vary by 6 %, one standard deviation; of the others there are thousands.
        within = 0.2 if figure.name == "big_addition_share" else 0.06
        assert figure.drawn == pytest.approx(figures[figure.name], rel=within), figure.name


def test_what_cannot_be_fitted():
    """A trace without additions over time, or with more than one event a minute, is refused with the reason."""
    known = {"preemption_chance": 0.1, "addition_chance": None}
    with pytest.raises(SettingsError, match="that tells preemptions and additions"):
        MinuteModel.fitted(known)
    with pytest.raises(
        SettingsError, match=r"at most one event a minute.*addition_chance 1\.5; try --model supercomputer"
    ):
        MinuteModel.fitted(known | {"addition_chance": 1.5})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MinuteModel(preemption_chance=1.5), r"preemption_chance from 0 to 1, got 1\.5"),
        (lambda: MinuteModel(big_addition_share=float("nan")), r"big_addition_share from 0 to 1, got nan"),
        (lambda: SizeModel(-1.0, 1.0), r"a mean of sizes from 0 to 1e6, got -1\.0"),
        (lambda: SizeModel(1.0, float("inf")), r"a std of sizes from 0 to 1e6, got inf"),
        (lambda: log_of(DEFAULT, 1, 10, (65, 64)), r"0 <= initial nodes <= the 64 nodes there are at most, got 65"),
    ],
)
def test_bad_settings(make, said):
    """Numbers out of range are refused when they are given."""
    with pytest.raises(SettingsError, match=said):
        make()
