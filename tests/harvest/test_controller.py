"""The controller: tables of what happens, and of what is done about it."""

from __future__ import annotations

import pytest

from bftrainer.harvest.harvest_directory import describe_status, describe_unused
from bftrainer.harvest.harvest_events import (
    Asked,
    CarrierLeaving,
    CarrierLost,
    CarrierUp,
    HarvestEnded,
    NodesWanted,
    Note,
    PoolChanged,
    RankExited,
    Release,
    Request,
    Restarted,
    StopRank,
    Submitted,
)
from tests.harvest.worlds_of_nodes import carried, controller, exits, kinds, progress, run_on, table


def test_idle_nodes_that_tasks_want_are_asked_for():
    """A task of at most four nodes gets carriers on four of six idle ones; a rank on each, in their order."""
    made = controller()
    assert made.step(1.0, [PoolChanged(("n1", "n2", "n3", "n4", "n5", "n6"))]) == [Request(("n1", "n2", "n3", "n4"))]
    up = made.step(2.0, [CarrierUp(node, f"c-{node}") for node in ("n1", "n2", "n3", "n4")])
    assert run_on(up) == [(f"n{place}", "a", 1, place - 1, 4) for place in (1, 2, 3, 4)]


def test_carriers_wait_for_each_other_but_not_long():
    """The first of two is told to the allocator with the second one, or after a second."""
    made = controller(settle_s=1.0)
    made.step(1.0, [PoolChanged(("n1", "n2"))])
    assert run_on(made.step(1.1, [CarrierUp("n1", "c1")])) == []
    assert run_on(made.step(1.2)) == []
    assert run_on(made.step(2.2)) == [("n1", "a", 1, 0, 1)]


def test_a_carrier_that_ends_before_it_comes_up_is_asked_for_again():
    """However soon that is."""
    made = controller()
    assert made.step(1.0, [PoolChanged(("n1",))]) == [Request(("n1",))]
    assert made.step(1.01, [CarrierLost("n1", "c1"), PoolChanged(("n1",))]) == [Request(("n1",))]


def test_a_node_is_taken_once_it_has_been_idle_for_so_long():
    """`offer_after_s` of 5 s: nothing is asked for before."""
    made = controller(offer_after_s=5.0)
    assert made.step(1.0, [PoolChanged(("n1",))]) == []
    assert made.step(5.9) == []
    assert made.step(6.0) == [Request(("n1",))]


def test_a_node_that_is_being_left_counts():
    """Another one is taken once its carrier is gone: `max_nodes` is how many are held at once."""
    made = controller(max_nodes=1)
    made.step(1.0, [PoolChanged(("n1", "n2"))])
    made.step(2.0, [CarrierUp("n1", "c1")])
    assert not any(isinstance(each, Request) for each in made.step(3.0, [CarrierLeaving("n1", "c1")]))
    exits(made, 3.5, "a", 1, "n1")
    assert made.step(4.0, [CarrierLost("n1", "c1")]) == [Request(("n2",))]


def test_no_more_nodes_than_allowed():
    """`max_nodes` of 2."""
    made = controller(max_nodes=2)
    assert made.step(1.0, [PoolChanged(("n1", "n2", "n3"))]) == [Request(("n1", "n2"))]


def test_a_leaving_carrier_ends_the_generation_and_the_rest_goes_on():
    """The other rank is asked to end; when both have ended, the next generation starts on what is left."""
    made = controller()
    carried(made, 1.0, "n1", "n2")
    assert made.step(5.0, [CarrierLeaving("n1", "c-n1")]) == [StopRank("n2", "c-n2", "a", 1)]
    assert exits(made, 5.5, "a", 1, "n2") == []
    assert run_on(made.step(6.0, [CarrierLost("n1", "c-n1")])) == [("n2", "a", 2, 0, 1)]


def test_decisions_choose_who_gives_way():
    """Of a cheap and two dear tasks on two nodes each, the cheap one leaves those that jobs want."""
    dear = {"max_nodes": 2, "shrink_cost_s": 5.0, "grow_cost_s": 5.0}
    made = controller(table("a", **dear))
    carried(made, 1.0, "n1", "n2")
    made.step(100.0, [Submitted("tasks.toml", table("b", max_nodes=2))])
    carried(made, 101.0, "n3", "n4")
    made.step(200.0, [Submitted("tasks.toml", table("c", **dear))])
    carried(made, 201.0, "n5", "n6")
    left = made.step(500.0, [NodesWanted(2)])
    assert left == [Release("n3", "c-n3", for_others=True), Release("n4", "c-n4", for_others=True)]
    made.step(500.1, [CarrierLeaving("n3", "c-n3"), CarrierLeaving("n4", "c-n4")])
    assert [len(life.nodes) for life in made.tasks.values()] == [2, 0, 2]
    assert len(made.step(600.0, [NodesWanted(1)])) == 1
    assert len(made.step(600.0, [NodesWanted(9)])) == 4


def test_carriers_of_which_tasks_have_nothing_leave_first():
    """One that has just come, and waits for others."""
    made = controller(table(max_nodes=3), settle_s=5.0)
    assert made.step(1.0, [PoolChanged(("n1", "n2", "n3"))]) == [Request(("n1", "n2", "n3"))]
    made.step(1.1, [CarrierUp("n1", "c1")])
    assert run_on(made.step(7.0)) == [("n1", "a", 1, 0, 1)]
    made.step(7.1, [CarrierUp("n2", "c2")])
    assert made.step(7.2, [NodesWanted(1)]) == [Release("n2", "c2", for_others=True)]


def test_a_lost_carrier_has_no_rank():
    """Without having said that it leaves, it is gone with its rank."""
    made = controller()
    carried(made, 1.0, "n1", "n2")
    assert made.step(5.0, [CarrierLost("n1", "c-n1")]) == [StopRank("n2", "c-n2", "a", 1)]
    assert run_on(exits(made, 5.5, "a", 1, "n2")) == [("n2", "a", 2, 0, 1)]
    assert made.tasks["a"].failures == 0


def test_generations_do_not_overlap_on_a_node():
    """A node that one task gives to another is free only when the rank on it has ended."""
    made = controller()
    carried(made, 1.0, "n1", "n2")
    added = made.step(5.0, [Submitted("tasks.toml", table("b", scaling={"model": "linear", "rate_1": 1000.0}))])
    assert kinds(added) == [("stop", "n1"), ("stop", "n2")]
    assert run_on(exits(made, 5.1, "a", 1, "n1")) == []
    assert run_on(exits(made, 5.2, "a", 1, "n2")) == [("n1", "b", 1, 0, 2), ("n2", "b", 1, 1, 2)]


def test_a_task_whose_ranks_end_by_themselves_is_done():
    """All nodes are given back, and the harvest is over when they are."""
    made = controller()
    carried(made, 1.0, "n1", "n2")
    made.step(9.0, [progress("a", 1, 1e6, 1e6, 8.0)])
    assert exits(made, 9.0, "a", 1, "n1") == []
    assert kinds(exits(made, 9.1, "a", 1, "n2")) == [("note", None), ("release", "n1"), ("release", "n2")]
    assert made.step(9.2, [CarrierLost("n1", "c-n1"), CarrierLost("n2", "c-n2")]) == [HarvestEnded("finished")]
    made.finish("finished")
    assert made.allocator.recorder.recording.tasks[0].work_done == 1e6


def test_a_task_that_crashes_is_tried_again_and_then_parked():
    """Three failures in a row without progress; the last lines of its log are told."""
    made, time_s = controller(table(max_failures=3)), 1.0
    carried(made, time_s, "n1")
    for number in (1, 2, 3):
        found = exits(made, time_s + 1.0, "a", number, "n1", status=1, tail="boom")
        assert next(effect.text for effect in found if isinstance(effect, Note)).endswith("status 1: boom")
        time_s += 10.0
        started = run_on(made.step(time_s))
        assert started == ([("n1", "a", number + 1, 0, 1)] if number < 3 else [])
    assert made.tasks["a"].status == "parked"


def test_progress_between_failures_counts():
    """Saved work that grows lets failures count from one again."""
    made, saved = controller(table(max_failures=2)), 0.0
    carried(made, 1.0, "n1")
    for number in range(1, 6):
        saved += 10.0
        made.step(10.0 * number, [progress("a", number, saved, saved, 10.0 * number)])
        exits(made, 10.0 * number + 1.0, "a", number, "n1", status=1)
        made.step(10.0 * number + 5.0)
    assert (made.tasks["a"].status, made.tasks["a"].failures) == ("active", 1)


def test_names_of_tasks_are_unique():
    """A task of a name that is here is not added, which is said; others may be."""
    made = controller(table("a"))
    added = made.step(4.0, [Submitted("more.toml", table("a")), Submitted("more.toml", table("b"))])
    assert added == [Note("Not added: more.toml, task a: Expected a new name, it is here already.")]
    assert list(made.tasks) == ["a", "b"]


def test_draining_takes_no_more_and_ends_without_nodes():
    """Carriers that are there stay until they leave."""
    made = controller()
    carried(made, 1.0, "n1")
    assert kinds(made.step(2.0, [Asked("drain"), PoolChanged(("n2",))])) == [("note", None)]
    effects = made.step(3.0, [CarrierLeaving("n1", "c-n1"), CarrierLost("n1", "c-n1")])
    assert effects == [HarvestEnded("drained")]


def test_stopping_gives_all_back():
    """Each carrier is told once; when all are gone the harvest is over."""
    made = controller()
    carried(made, 1.0, "n1", "n2")
    assert made.step(2.0, [Asked("stop")]) == [Release("n1", "c-n1"), Release("n2", "c-n2")]
    assert made.step(2.1, [Asked("stop"), RankExited("a", 1, "n1", 0)]) == []
    assert made.step(2.2, [CarrierLost("n1", "c-n1"), CarrierLost("n2", "c-n2")]) == [HarvestEnded("interrupted")]


def test_after_a_restart_all_begins_with_the_pool():
    """Carriers and ranks are gone, tasks and what they have done are not."""
    made = controller()
    carried(made, 1.0, "n1", "n2")
    made.step(8.0, [progress("a", 1, 500.0, 400.0, 7.0)])
    assert made.step(9.0, [Restarted()]) == []
    assert run_on(carried(made, 12.0, "n2")) == [("n2", "a", 2, 0, 1)]
    assert made.tasks["a"].saved == 400.0


def test_a_node_log_is_not_played_on_while_no_controller_runs():
    """The time without one counts from the last step before a restart to the first one after it, which is written."""
    made = controller()
    made.step(8.0, [PoolChanged(("n1",))])
    for _ in "ab":  # the first of them was killed at once
        made.step(made.time_s, [Restarted()])
    made.step(129.5)
    assert (made.changed, made.time_s - made.down_s) == (True, pytest.approx(8.0))
    made.step(140.0)
    assert (made.changed, made.time_s - made.down_s) == (False, pytest.approx(18.5))


def test_going_back_beyond_a_checkpoint_is_told():
    """A generation that begins with less than was saved."""
    made = controller()
    carried(made, 1.0, "n1")
    made.step(5.0, [progress("a", 1, 500.0, 400.0, 4.0)])
    exits(made, 6.0, "a", 1, "n1", status=1)
    made.step(20.0)
    (note,) = made.step(21.0, [progress("a", 2, 300.0, 300.0, 20.5)])
    assert note == Note("a went on from 300, 100 before its last checkpoint.")


def test_a_task_waits_for_its_time():
    """Submitted for 30 s from now."""
    made = controller(table(submit=30.0))
    assert made.step(1.0, [PoolChanged(("n1",))]) == []
    assert made.step(30.0) == [Request(("n1",))]


def test_what_is_measured_teaches_curves():
    """A task without a curve believes 50 work/s on one node after 60 s at that; costs of the start are booked."""
    given = table()
    del given["scaling"]
    made = controller(given)
    carried(made, 1.0, "n1")
    made.step(70.0, [progress("a", 1, 0.0, 0.0, 4.0), progress("a", 1, 3000.0, 0.0, 64.0)])
    made.step(71.0, [CarrierLost("n1", "c-n1")])
    found = made.tasks["a"].measured_spec(noise=0.02)
    assert abs(found.scaling.at(1) - 50.0) < 0.5
    assert abs(found.grow_cost_s - 3.0) < 0.1


def test_nodes_that_a_flat_curve_leaves_idle():
    """A task that is seen to do no more on two nodes than on one: status says why others are not used."""
    given = table(max_nodes=3)
    del given["scaling"]
    made = controller(given)
    carried(made, 1.0, "n1", "n2", "n3")
    for time_s in (2.0, 700.0):
        made.step(time_s, [progress("a", 1, 40.0 * time_s, 0.0, time_s)])
    assert describe_unused(describe_status(made) | {"over": None}) == ""
    made.step(701.0, [CarrierLeaving("n3", "c-n3"), CarrierLost("n3", "c-n3")])
    exits(made, 702.0, "a", 1, "n1", "n2")
    for time_s in (703.0, 1400.0):
        made.step(time_s, [progress("a", 2, 35_000.0 + 45.0 * (time_s - 703.0), 0.0, time_s)])
    made.step(1401.0, [CarrierLeaving("n2", "c-n2"), CarrierLost("n2", "c-n2")])
    exits(made, 1402.0, "a", 2, "n1")
    for time_s in (1403.0, 2100.0):
        made.step(time_s, [progress("a", 3, 70_000.0 + 50.0 * (time_s - 1403.0), 0.0, time_s)])
    carried(made, 2101.0, "n2", "n3")
    for node in sorted(made.pool.carriers.keys() - made.tasks["a"].nodes):
        made.step(2102.0, [CarrierLeaving(node, f"c-{node}"), CarrierLost(node, f"c-{node}")])
    assert made.step(2103.0, [PoolChanged(("n2", "n3"))]) == []
    said = describe_unused(describe_status(made) | {"over": None})
    assert said == "2 nodes not used: `a` is believed not to scale beyond 1"
