"""The controller: scripts of what happens, and of what is done about it."""

import pytest

from bftrainer.harvest.harvest_directory import describe_status, describe_unused
from tests.harvest.worlds_of_nodes import controller, play, table

FAST = table("b", scaling={"model": "linear", "rate_1": 1000.0})


@pytest.mark.parametrize(
    ("script", "tasks", "limits"),
    [
        pytest.param(*case[1:], *[{}] * (4 - len(case)), id=case[0])
        for case in [
            (
                "a task of at most four nodes gets carriers on four of six idle ones, and a rank on each",
                """1 idle n1 n2 n3 n4 n5 n6 -> ask n1 n2 n3 n4
                   2 up n1 n2 n3 n4 -> start a.1 n1 n2 n3 n4""",
            ),
            (
                "carriers wait for each other, but not long",
                """1 idle n1 n2 -> ask n1 n2
                   1.1 up n1 ->
                   1.2 ->
                   2.2 -> start a.1 n1""",
                {},
                {"settle_s": 1.0},
            ),
            (
                "a carrier that ends before it comes up is asked for again, however soon",
                """1 idle n1 -> ask n1
                   1.01 lost n1; idle n1 -> ask n1""",
            ),
            (
                "a node is taken once it has been idle for so long",
                """1 idle n1 ->
                   5.9 ->
                   6 -> ask n1""",
                {},
                {"offer_after_s": 5.0},
            ),
            ("no more nodes than allowed", "1 idle n1 n2 n3 -> ask n1 n2", {}, {"max_nodes": 2}),
            (
                "a node that is being left counts: another one is taken once its carrier is gone",
                """1 idle n1 n2 -> ask n1
                   2 up n1 -> start a.1 n1
                   3 leaving n1 ->
                   3.5 exit a.1 n1 ->
                   4 lost n1 -> ask n2""",
                {},
                {"max_nodes": 1},
            ),
            (
                "a leaving carrier ends the generation; when both ranks have ended the next starts on what is left",
                """1 idle n1 n2 -> ask n1 n2
                   1 up n1 n2 -> start a.1 n1 n2
                   5 leaving n1 -> stop a.1 n2
                   5.5 exit a.1 n2 ->
                   6 lost n1 -> start a.2 n2""",
            ),
            (
                "a carrier that is lost without having said that it leaves is gone with its rank",
                """1 idle n1 n2 -> ask n1 n2
                   1 up n1 n2 -> start a.1 n1 n2
                   5 lost n1 -> stop a.1 n2
                   5.5 exit a.1 n2 -> start a.2 n2""",
            ),
            (
                "a carrier of which tasks have nothing, as it has just come, leaves first for jobs that wait",
                """1 idle n1 n2 n3 -> ask n1 n2 n3
                   1.1 up n1 ->
                   7 -> start a.1 n1
                   7.1 up n2 ->
                   7.2 want 1 -> lend n2""",
                {"a": table(max_nodes=3)},
                {"settle_s": 5.0},
            ),
            (
                "generations do not overlap on a node that one task gives to another",
                """1 idle n1 n2 -> ask n1 n2
                   1 up n1 n2 -> start a.1 n1 n2
                   5 submit b -> stop a.1 n1 n2
                   5.1 exit a.1 n1 ->
                   5.2 exit a.1 n2 -> start b.1 n1 n2""",
                {"b": FAST},
            ),
            (
                "a name that is here is not added, which is said; others may be",
                """4 submit a; submit b -> say Not added: more.toml, task a: Expected a new name, it is here already.
                   5 idle n1 -> ask n1
                   6 up n1 -> start b.1 n1""",
                {"a": table(), "b": FAST},
            ),
            (
                "draining takes no more nodes, and ends without them",
                """1 idle n1 -> ask n1
                   1 up n1 -> start a.1 n1
                   2 drain; idle n2 -> say Draining: no more nodes are taken.
                   3 leaving n1; lost n1 -> over drained""",
            ),
            (
                "stopping gives all back; each carrier is told once",
                """1 idle n1 n2 -> ask n1 n2
                   1 up n1 n2 -> start a.1 n1 n2
                   2 stop -> release n1 n2
                   2.1 stop; exit a.1 n1 ->
                   2.2 lost n1 n2 -> over interrupted""",
            ),
            (
                "a task whose ranks end by themselves is done; all nodes are given back, and the harvest is over then",
                """1 idle n1 n2 -> ask n1 n2
                   1 up n1 n2 -> start a.1 n1 n2
                   9 report a.1 1e6 1e6 8 ->
                   9 exit a.1 n1 ->
                   9.1 exit a.1 n2 -> say a is done.; release n1 n2
                   9.2 lost n1 n2 -> over finished""",
            ),
            (
                "after a restart all begins with the pool: carriers and ranks are gone",
                """1 idle n1 n2 -> ask n1 n2
                   1 up n1 n2 -> start a.1 n1 n2
                   8 report a.1 500 400 7 ->
                   9 restart ->
                   12 idle n2 -> ask n2
                   12 up n2 -> start a.2 n2
                   13 report a.2 300 300 13 -> say a went on from 300, 100 before its last checkpoint.""",
            ),
            (
                "a task waits for its time",
                """1 idle n1 ->
                   30 -> ask n1""",
                {"a": table(submit=30.0)},
            ),
            (
                "three failures in a row without progress park a task",
                """1 idle n1 -> ask n1
                   1 up n1 -> start a.1 n1
                   2 crash a.1 n1 -> say a failed (1 of 3), status 1: boom
                   11 -> start a.2 n1
                   12 crash a.2 n1 -> say a failed (2 of 3), status 1: boom
                   21 -> start a.3 n1
                   22 crash a.3 n1 -> say a is parked after 3 failures without progress, status 1: boom; release n1
                   31 ->""",
            ),
            (
                "saved work that grows lets failures count from one again",
                """1 idle n1 -> ask n1
                   1 up n1 -> start a.1 n1
                   10 report a.1 10 10 10 ->
                   11 crash a.1 n1 -> say a failed (1 of 2), status 1: boom
                   15 -> start a.2 n1
                   20 report a.2 20 20 20 ->
                   21 crash a.2 n1 -> say a failed (1 of 2), status 1: boom
                   25 -> start a.3 n1""",
                {"a": table(max_failures=2)},
            ),
        ]
    ],
)
def test_what_is_done_about_it(script, tasks, limits):
    """Each line has all that is done."""
    play(controller(tasks.get("a", table()), **limits), script, tasks.values())


def test_decisions_choose_who_gives_way():
    """Of a cheap and two dear tasks on two nodes each, the cheap one leaves those that jobs want."""
    dear = {"max_nodes": 2, "shrink_cost_s": 5.0, "grow_cost_s": 5.0}
    made = controller(table("a", **dear))
    script = """
    1 idle n1 n2 -> ask n1 n2
    1 up n1 n2 -> start a.1 n1 n2
    100 submit b
    101 idle n3 n4 -> ask n3 n4
    101 up n3 n4 -> start b.1 n3 n4
    200 submit c
    201 idle n5 n6 -> ask n5 n6
    201 up n5 n6 -> start c.1 n5 n6
    500 want 2 -> lend n3 n4
    500.1 leaving n3 n4
    """
    play(made, script, [table("b", max_nodes=2), table("c", **dear)])
    assert [len(life.nodes) for life in made.tasks.values()] == [2, 0, 2]
    play(made, "600 want 1 -> lend n5\n600 want 9 -> lend n1 n2 n5 n6")


# --- what is measured -------------------------------------------------------------------------------------------------


def unscaled(**changes):
    """A task without a curve."""
    return {key: value for key, value in table(**changes).items() if key != "scaling"}


def test_what_is_measured_teaches_curves():
    """A task without a curve believes 50 work/s on one node after 60 s at that; costs of the start are booked."""
    made = controller(unscaled())
    play(made, "1 idle n1\n1 up n1\n70 report a.1 0 0 4; report a.1 3000 0 64\n71 lost n1")
    found = made.tasks["a"].measured_spec(noise=0.02)
    assert abs(found.scaling.at(1) - 50.0) < 0.5
    assert abs(found.grow_cost_s - 3.0) < 0.1


def test_nodes_that_a_flat_curve_leaves_idle():
    """A task that is seen to do no more on two nodes than on one: status says why others are not used."""
    made = controller(unscaled(max_nodes=3))
    play(made, "1 idle n1 n2 n3\n1 up n1 n2 n3\n2 report a.1 80 0 2\n700 report a.1 28000 0 700")
    assert describe_unused(describe_status(made) | {"over": None}) == ""
    script = """
    701 leaving n3; lost n3
    702 exit a.1 n1 n2
    703 report a.2 35000 0 703
    1400 report a.2 66365 0 1400
    1401 leaving n2; lost n2
    1402 exit a.2 n1
    1403 report a.3 70000 0 1403
    2100 report a.3 104850 0 2100
    2101 idle n2 n3
    """
    play(made, script)
    for node in sorted(made.pool.requested.keys() | made.pool.carriers.keys() - made.tasks["a"].nodes):
        play(made, f"2102 up {node}\n2102 leaving {node}; lost {node}")
    play(made, "2103 idle n2 n3 ->")
    said = describe_unused(describe_status(made) | {"over": None})
    assert said == "2 nodes not used: `a` is believed not to scale beyond 1"


@pytest.mark.parametrize("has_trained", [True, False])
def test_an_attempt_begins_where_the_last_one_ended(has_trained):
    """Where a script does not say where it goes on from, what an earlier attempt has reported does.

    A task that never trained is not measured: it is as it was declared, and is named.
    """
    made = controller(table(max_failures=1), stays=True)
    report = "9 report a.1 400 400 8" if has_trained else ""
    play(made, f"1 idle n1\n1 up n1 -> start a.1 n1\n{report}\n9.5 crash a.1 n1")
    assert made.tasks["a"].status == "parked"
    assert made.allocator.task("a").completed_s == pytest.approx(9.5, abs=1e-3)
    assert made.measured_specs()["a"].scaling == made.tasks["a"].task.spec.scaling
    assert not describe_status(made)["tasks"][0]["is_measured"]
    begins = "" if has_trained else "report a.2 0 0 12; "
    script = f"""
    10 lost n1; submit a -> say a is tried again.
    11 idle n1 -> ask n1
    11 up n1 -> start a.2 n1
    20 {begins}report a.2 700 700 19
    """
    play(made, script, [table(work=2e6)])
    made.finish("interrupted")
    (task,) = made.allocator.recorder.recording.tasks
    assert (task.spec.name, task.work_done, task.spec.work, task.completed_s) == ("a", 700.0, 2e6, None)
    if not has_trained:
        assert made.measured_specs()["a"].rates[1] == pytest.approx(100.0)
        assert describe_status(made)["tasks"][0]["is_measured"]
