"""Checkpointed training: scenarios computed by hand, a plain second simulation, and invariants."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import NodeLog
from bftrainer.spot import CheckpointedTraining, run_figures, simulate
from bftrainer.spot.generation import churn_log
from bftrainer.spot.run import TIME_ACCOUNTS
from bftrainer.tasksets.measurements import TrainingProfile
from tests.examples import examples
from tests.reference.checkpointing import Reference, run

S = 10**9
PROFILE = TrainingProfile((2, 4), (10.0, 6.0), reconfiguration_s=30.0, checkpoint_s=15.0, load_s=8.0)


def log_of(span, *changes):
    """A log of (second, "+ab") or (second, "-a") changes."""
    names = sorted({node for _, text in changes for node in text[1:]}) or ["a"]
    rows = [(time, names.index(node), text[0] == "+") for time, text in changes for node in text[1:]]
    time, node, idle = (np.array(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return NodeLog(
        tuple(names), 0, span * S, np.array(time, dtype=np.int64) * S, np.array(node, dtype=np.int32),
        np.array(idle, dtype=np.bool_),
    )  # fmt: skip


def train(log, **options):
    """A run with pipelines of two nodes, which prepare for 20 s, and at most four active ones."""
    return simulate(
        log, CheckpointedTraining(PROFILE, **{"depth": 2, "max_world_size": 4, "preparation_s": 20.0} | options)
    )


def done(log, **options):
    return run_figures(train(log, **options))


def times(figures):
    return tuple(figures[name] for name in TIME_ACCOUNTS)


def steps(log, **options):
    return [(step.time_ns / S, step.event, step.number, step.world_size) for step in train(log, **options).steps()]


def test_preemption_in_an_iteration_with_a_checkpoint_in_flight():
    """Nodes a, b train at 10 s an iteration, c stands by; a is lost at 37 s.

    Iterations end at 10, 20, 30. The checkpoint of iteration 1 is written from 10 to 25, that of iteration 3 from 30
    on: at 37 it is lost, 3 are done, 1 is saved, 2 are lost, and 7 s of iteration 4. From 37 to 67 b and c reconfigure,
    then redo iterations 2 and 3 until 87 (20 s), and do iteration 4 until 97. The checkpoint of iteration 2 is written
    from 77 to 92. At 100 s: 37 + 13 s training, 20 redoing, 30 reconfiguring.
    """
    figures = done(log_of(100, (0, "+abc"), (37, "-a")))
    assert times(figures) == (50.0, 20.0, 30.0, 0.0)
    assert (figures["iterations_done"], figures["iterations_executed"]) == (4, 6)
    assert (figures["iterations_lost"], figures["iterations_redone"], figures["iterations_saved"]) == (2, 2, 2)
    assert (figures["checkpoints"], figures["checkpoints_lost"]) == (2, 1)
    assert (figures["preemptions"], figures["active_preemptions"]) == (1, 1)
    assert done(log_of(100, (0, "+abc"), (37, "-a")), load_on_reconfigure=True)["reconfiguring_s"] == 38.0
    assert figures["node_hours_held"] * 3600 == pytest.approx(237.0)
    assert figures["node_hours_used"] * 3600 == pytest.approx(140.0)
    assert steps(log_of(100, (0, "+abc"), (37, "-a"))) == [
        (0.0, "step", 0, 2),
        *((10.0, "step", 1, 2), (20.0, "step", 2, 2), (30.0, "step", 3, 2), (37.0, "reconfig", 1, 2)),
        *((77.0, "step", 2, 2), (87.0, "step", 3, 2), (97.0, "step", 4, 2)),
    ]


def test_a_cold_start_prepares_and_forms():
    """Nodes that are there at the start prepare until 20 and reconfigure until 50; iteration 1 ends at 60."""
    log = log_of(65, (0, "+ab"))
    assert times(done(log)) == (65.0, 0.0, 0.0, 0.0)
    assert times(done(log, cold_start=True)) == (15.0, 0.0, 30.0, 20.0)
    assert steps(log, cold_start=True) == [*((0.0, "step", 0, 0), (20.0, "reconfig", 1, 2), (60.0, "step", 1, 2))]


def test_who_is_not_active():
    """Losing a node that stands by or prepares changes nothing; beyond the largest world size pipelines stand by."""
    calm = done(log_of(100, (0, "+abc"), (12, "-c"), (13, "+d"), (15, "-d")))
    assert times(calm) == times(done(log_of(100, (0, "+abc")))) == (100.0, 0.0, 0.0, 0.0)
    assert (calm["preemptions"], calm["active_preemptions"]) == (2, 0)
    figures = done(log_of(100, (0, "+abcdefgh"), (50, "-a")))
    assert (figures["largest_world_size"], figures["reconfigurations"]) == (4, 1)
    assert done(log_of(100, (0, "+abc")), max_world_size=3)["largest_world_size"] == 2


def test_ticks_delay_what_is_noticed():
    """At ticks of 8 s iterations of 10 s take 10, and a loss at 37 is noticed at 40.

    Iterations end at 10, 20, 30 and 40; the checkpoint of iteration 1 is written from 10 to 25, that of 3 from
    30 on is lost: at 40 three iterations are. The reconfiguration of 30 s is over at 70, which is noticed at 72. Until
    102: iterations 2 and 3 redone to 92, iteration 4 at 102. The last look is at 96, so that it was never noticed.
    """
    log = log_of(104, (0, "+abc"), (37, "-a"))
    figures = done(log, tick_s=8.0)
    assert times(figures) == (40.0 + 2.0, 30.0, 32.0, 0.0)
    assert (figures["iterations_done"], figures["iterations_lost"], figures["iterations_executed"]) == (3, 3, 6)
    assert steps(log, tick_s=8.0) == [
        (0.0, "step", 0, 2),
        *((16.0, "step", 1, 2), (24.0, "step", 2, 2), (32.0, "step", 3, 2), (40.0, "step", 4, 2)),
        *((40.0, "reconfig", 1, 2), (88.0, "step", 2, 2), (96.0, "step", 3, 2)),
    ]


@pytest.mark.parametrize(("tick_s", "iterations"), [(None, 3163), (5.0, 3162), (15.0, 3161), (3600.0, 2846)])
def test_ticks_leave_iterations_as_long_as_they_are(tick_s, iterations):
    """Ten hours of 11.381 s an iteration hold 3,163 of them; the last look at ticks of 5 s, at 35,995 s, sees 3,162."""
    settings = CheckpointedTraining(TrainingProfile((32,), (11.381,), 87.871, 88.996), tick_s=tick_s)
    figures = run_figures(simulate(churn_log((0, 36_000 * S), 32, []), settings))
    assert figures["iterations_done"] == iterations
    assert figures["training_s"] == 36_000.0


def test_within_a_tick_coming_and_going_is_told_apart():
    """Who is gone and back within a tick was lost; who came and is gone was never there."""
    back = done(log_of(100, (0, "+abc"), (11, "-a"), (13, "+a")), tick_s=10.0)
    assert (back["active_preemptions"], back["preemptions"]) == (1, 1)
    never = done(log_of(100, (0, "+ab"), (11, "+c"), (13, "-c")), tick_s=10.0)
    assert (never["preemptions"], never["reconfigurations"]) == (0, 0)


def test_iterations_that_take_no_time_to_speak_of():
    """Far beyond the profile iterations are as short as they get, and finite in number."""
    chosen = CheckpointedTraining(TrainingProfile((1,), (1e-6,), 0.0, 0.0), depth=4000, max_world_size=4000)
    log = churn_log((0, 1000), 4000, [])
    assert run_figures(simulate(log, chosen))["iterations_done"] == 1000


# --- against a second simulation, and over many traces -----------------------------------------------------------


def world(draw):
    """A small world: `draw(low, high)` gives whole numbers. Rows by second, their log, settings, plain simulation."""
    depth = draw(1, 3)
    most = depth * draw(1, 3) + draw(0, 1)
    span = draw(0, 80)
    rows: dict[int, tuple[list[int], list[int]]] = {}
    for node in range(draw(0, 8)):
        flips = sorted({draw(0, span) for _ in range(draw(0, 6))})
        for number, second in enumerate(flips):
            rows.setdefault(second, ([], []))[number % 2].append(node)
    changes = [
        (second, sign + "".join("abcdefgh"[node] for node in nodes))
        for second, pair in sorted(rows.items())
        for sign, nodes in zip("+-", pair, strict=True)
    ]
    seconds = {size: draw(1, 6) for size in range(1, 11)}
    reconfiguration, checkpoint, preparation = draw(0, 8), draw(0, 12), draw(0, 6)
    extend, cold = bool(draw(0, 1)), bool(draw(0, 1))
    profile = TrainingProfile(
        tuple(seconds), tuple(map(float, seconds.values())), float(reconfiguration), float(checkpoint)
    )
    chosen = CheckpointedTraining(
        profile, depth, most, float(preparation),
        on_loss_during_reconfigure="extend" if extend else "restart", cold_start=cold,
    )  # fmt: skip
    plain = Reference(depth, most, preparation, reconfiguration, checkpoint, seconds, extend)
    return rows, log_of(span, *changes), chosen, plain


@examples(200)
@given(st.randoms(use_true_random=False))
def test_agrees_with_a_plain_simulation(rng):
    """Second by second, by the rules alone, the same happens: times, iterations, saved ones, and every step."""
    rows, log, chosen, plain = world(rng.randint)
    simulated = simulate(log, chosen)
    run(plain, rows, log.end_ns // S, chosen.cold_start)
    figures = run_figures(simulated)
    assert times(figures) == tuple(plain.seconds[name.removesuffix("_s")] for name in TIME_ACCOUNTS)
    assert (figures["iterations_done"], figures["iterations_executed"]) == (plain.done, plain.executed)
    found = [(step.world_size, step.time_ns / S, step.event, step.number) for step in simulated.steps()]
    # At one instant the end of an iteration and of a reconfiguration are in no order.
    assert Counter(found) == Counter(plain.steps)


@examples(200)
@given(st.randoms(use_true_random=False))
def test_accounts_add_up(rng):
    """On every trace, with ticks too: phases follow each other, and nothing saved was never done."""
    _, log, chosen, _ = world(rng.randint)
    if rng.randint(0, 1):
        chosen = CheckpointedTraining(
            chosen.profile, chosen.depth, chosen.max_world_size, tick_s=float(rng.randint(1, 9))
        )
    simulated = simulate(log, chosen)
    figures, moments = run_figures(simulated), [step.time_ns for step in simulated.steps()]
    assert sum(times(figures)) == pytest.approx(figures["span_s"], abs=1e-6)
    assert all(one.end_ns == two.start_ns for one, two in zip(simulated.phases, simulated.phases[1:], strict=False))
    sizes = {phase.world_size for phase in simulated.phases}
    assert all(size % chosen.depth == 0 and size <= chosen.max_world_size for size in sizes)
    assert figures["iterations_executed"] - figures["iterations_lost"] == figures["iterations_done"]
    assert figures["iterations_saved"] <= figures["iterations_done"]
    assert figures["iterations_redone"] <= figures["iterations_lost"]
    # A loss that is noticed late is training that was never there.
    assert figures["node_hours_used"] <= figures["node_hours_held"] + 1e-9 or chosen.tick_s is not None
    assert moments == sorted(moments)
