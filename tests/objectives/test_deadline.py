"""Deadlines: the formula by hand, who comes first, and what cannot be made any more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bftrainer import Allocator, Settings
from bftrainer.model import Event
from bftrainer.objectives import deadline
from tests.examples import examples
from tests.objectives.support import at, credit, decide, plain, rate_tables

BEST_EFFORT = [0.0, 0.1, 0.2, 0.3, 0.4]


def test_what_the_deadline_needs_counts_in_full():
    """100 work in 50 s takes 2 work/s: two nodes or more earn 0.9 of these, and a tenth of all they do."""
    assert credit(deadline, plain(deadline_s=50.0)) == pytest.approx([0.0, 0.1, 0.2 + 1.8, 0.3 + 1.8, 0.4 + 1.8])


def test_time_and_progress_move_it():
    """With 40 work done at 30 s, 60 work in 20 s take 3 work/s."""
    found = credit(deadline, plain(deadline_s=50.0), now_s=30.0, progress=40.0)
    assert found == pytest.approx([0.0, 0.1, 0.2, 0.3 + 2.7, 0.4 + 2.7])


def test_rescaling_on_the_way_takes_time_too():
    """Growing from 1 node loses 10 work, so that 110 are to be done in 50 s; shrinking loses 30 s of work."""
    spec = plain(deadline_s=50.0, grow_cost_s=10.0, shrink_cost_s=30.0)
    assert credit(deadline, spec, nodes=1) == pytest.approx([0.0, 0.1, 0.2, 0.3 + 1.8, 0.4 + 1.8])
    assert credit(deadline, spec, nodes=2) == pytest.approx([0.0, 0.1, 0.2 + 1.8, 0.3 + 1.8, 0.4 + 1.8])
    assert credit(deadline, spec, nodes=3) == pytest.approx([0.0, 0.1, 0.2, 0.3 + 1.8, 0.4 + 1.8])


def test_a_task_below_its_minimum_starts_for_nothing():
    """One of the two nodes that it needs does no work, which none can be lost of."""
    spec = plain(deadline_s=50.0, grow_cost_s=10.0, min_nodes=2)
    assert credit(deadline, spec, nodes=1)[2] == pytest.approx(2.0)


@pytest.mark.parametrize("deadline_s", [None, 24.9, 0.0, -5.0])
def test_without_a_deadline_or_too_late(deadline_s):
    """No deadline, one that four nodes miss, and one that has passed: best effort."""
    assert credit(deadline, plain(deadline_s=deadline_s)) == pytest.approx(BEST_EFFORT)


def test_the_last_moment_still_counts():
    """A task that is exactly in time on all its nodes is in time, whatever its rates round to."""
    spec = plain(rates=(0.0, 0.1, 0.3), work=0.3 * 3, deadline_s=3.0)
    assert credit(deadline, spec)[2] > 5 * 0.2


def test_work_that_is_done_needs_nothing():
    """A task whose work is done, and waits to be noticed, is in no hurry."""
    assert credit(deadline, plain(deadline_s=50.0), progress=120.0) == pytest.approx(BEST_EFFORT)


def test_a_task_that_never_works_earns_nothing():
    """Without throughput on any count there is nothing to give credit for."""
    assert credit(deadline, plain(rates=(0.0, 0.0), deadline_s=50.0)) == [0.0, 0.0]


def test_dates_count_from_the_start():
    """A deadline by date is seconds after the window's start."""
    start_ns = 1_600_000_000_000_000_000
    spec = plain(deadline_ns=start_ns + 50_000_000_000)
    assert credit(deadline, spec, start_ns=start_ns) == credit(deadline, plain(deadline_s=50.0))
    dated = Allocator([spec, plain("J1")], Settings(objective=deadline, solver="dp"), start_ns=start_ns)
    assert dated.on_event(Event.join(0.0, "a", "b")).after == (2, 0)


def test_who_needs_it_now_comes_first():
    """Of two tasks the one that needs all nodes gets them; when it is done the other one is still in time."""
    urgent, relaxed = plain("urgent", deadline_s=50.0), plain("relaxed", deadline_s=1000.0)
    live = Allocator([relaxed, urgent], Settings(objective=deadline, solver="dp"))
    assert live.on_event(Event.join(0.0, "a", "b")).after == (0, 2)
    after = live.on_event(Event.completion(50.0, "urgent"))
    assert (after.tasks, after.after) == (("relaxed",), (2,))
    assert live.cluster.next_completion().time_s == 100.0


def test_no_more_than_needed_while_others_are_short():
    """Two nodes make each deadline: nobody gets more although both would work faster."""
    assert decide(deadline, [plain("J0", deadline_s=50.0), plain("J1", deadline_s=50.0)], 4).after == (2, 2)


def test_lost_causes_make_room():
    """Four nodes cannot save the first task any more: the second one, which needs three, gets them."""
    lost, saved = plain("lost", deadline_s=20.0), plain("saved", deadline_s=34.0)
    assert decide(deadline, [lost, saved], 4).after[1] >= 3
    assert decide(deadline, [replace(lost, deadline_s=25.0), saved], 4).after == (4, 0)


@examples(80)
@given(rates=rate_tables(), share=st.floats(0.01, 1.0), short=st.floats(0.01, 0.99), pool=st.integers(1, 5))
def test_who_can_make_it_beats_who_cannot(rates, share, short, pool):
    """Of two tasks that differ in their deadlines alone, where one fits, it is the one that can be in time."""
    most = len(rates) - 1
    assume(pool >= most)
    full_s = 100.0 / rates[-1]
    same = {"min_nodes": most, "rates": rates}
    made, missed = plain("made", deadline_s=full_s / share, **same), plain("missed", deadline_s=full_s * short, **same)
    counts = np.arange(most + 1)
    better, worse = (deadline(at(task), counts, 0.0) for task in (made, missed))
    assert (better >= worse).all()
    assert better[-1] > worse[-1]
    if pool < 2 * most:
        assert decide(deadline, [missed, made], pool).after == (0, most)
