"""The automaton that explores batch sizes outward from the default."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import AllPrunedError, TuningError, TuningInputError
from bftrainer.zeus import PruningExploreManager
from tests.zeus.golden import units


def explore(manager, answers):
    """Answer each question until all rounds are over; what was asked."""
    asked = []
    while not manager.done:
        size = manager.next_batch_size()
        asked.append(size)
        manager.report_batch_size_result(size, *answers(size))
    return asked


def test_published_explorations():
    """200 explorations: what is asked for, who survives, where the next round would start, and when it breaks down."""
    cases = units()["pruning"]
    assert len(cases) == 200
    for case in cases:
        manager = PruningExploreManager(case["batch_sizes"], case["default"], case["num_pruning_rounds"])
        for size, cost, reached in case["trace_bs_cost_reached"]:
            assert manager.next_batch_size() == size
            manager.report_batch_size_result(size, cost, reached)
        assert manager.default == case["default_after"]
        if case["error"] is None:
            assert manager.batch_sizes == case["survivors"]
            with pytest.raises(StopIteration) as over:
                manager.next_batch_size()
            assert over.value.value == case["survivors"]
        else:
            with pytest.raises(AllPrunedError, match="first round of pruning"):
                manager.next_batch_size()


def test_without_rounds_all_survive():
    """With no round to go nothing is asked for."""
    manager = PruningExploreManager([16, 8], 8, 0)
    assert manager.done
    assert manager.batch_sizes == [8, 16]


sizes = st.sets(st.integers(1, 100), min_size=1, max_size=10).map(sorted)


@given(sizes, st.data(), st.integers(1, 4))
def test_a_cut_direction_is_never_tried_again(batch_sizes, data, rounds):
    """Beyond a batch size that missed, away from where its round started, nothing is tried in that round or later."""
    default = data.draw(st.sampled_from(batch_sizes))
    manager = PruningExploreManager(batch_sizes, default, rounds)
    below, above = 0, max(batch_sizes) + 1
    while not manager.done and manager.batch_sizes:
        start = manager.default
        size = manager.next_batch_size()
        assert below < size < above
        cost, reached = data.draw(st.floats(1.0, 10.0)), data.draw(st.booleans())
        if not reached and size <= start:
            below = size
        elif not reached:
            above = size
        manager.report_batch_size_result(size, cost, reached)
    assert all(below < size < above for size in manager.batch_sizes)


def test_calls_out_of_order_change_nothing():
    """A report on another batch size, before a question, or twice, and a second question are refused; it goes on."""
    manager = PruningExploreManager([8, 16], 8)
    with pytest.raises(TuningError, match=r"size 8 .* none was asked for"):
        manager.report_batch_size_result(8, 1.0, True)
    assert manager.next_batch_size() == 8
    with pytest.raises(TuningError, match="size 8 must be reported"):
        manager.next_batch_size()
    with pytest.raises(TuningError, match="report on batch size 8, got one on 16"):
        manager.report_batch_size_result(16, 1.0, True)
    manager.report_batch_size_result(8, 1.0, True)
    with pytest.raises(TuningError, match="none was asked for"):
        manager.report_batch_size_result(8, 1.0, True)
    assert explore(manager, lambda _: (1.0, True)) == [16, 8, 16]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([8, 16, 64], 4), r"Expected the default batch size among \[8, 16, 64\], got 4. Closest: 8, 16, 64"),
        (([8], 8, -1), "0 or more rounds of pruning, got -1"),
    ],
)
def test_impossible_explorations(arguments, message):
    """A default that is not there, and a negative number of rounds, are refused."""
    with pytest.raises(TuningInputError, match=message):
        PruningExploreManager(*arguments)
