"""What objectives add beyond sums: rows that bind, who stands in which column, and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import Allocator, Settings
from bftrainer.errors import ObjectiveError, SolverUnavailableError
from bftrainer.model import Event, TaskSpec, TaskState
from bftrainer.objectives import Priority, Quota, as_given, get_objective, throughput
from solvers import AllocationProblem, Limits, LinearRow, TaskOptions, counts_on_offer
from tests.examples import examples
from tests.objectives.support import at, decide, plain, rate_tables


class AtMostThree:
    """Throughput, and not more than three nodes in all."""

    def __call__(self, task: TaskState, counts: np.ndarray, now_s: float) -> np.ndarray:
        return throughput(task, counts, now_s)

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[LinearRow]:  # noqa: ARG002
        return [LinearRow(np.ones(len(problem.tasks)), upper=3.0)]


class Twins(AtMostThree):
    """Throughput, and the second task has as many nodes as the first one."""

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[LinearRow]:  # noqa: ARG002
        return [LinearRow(np.array([1.0, -1.0]), lower=0.0, upper=0.0)]


def two_tasks() -> list[TaskSpec]:
    """The first one is faster, and would take all four nodes."""
    return [plain("J0", rates=(0, 2, 4, 6, 8)), plain("J1")]


@pytest.mark.parametrize("solver", ["cbc", "highs", "exhaustive"])
@pytest.mark.parametrize("prune", [True, False])
def test_rows_bind(solver, prune):
    """Solvers that take rows keep them, pruned or not, where the optimum without would break them."""
    for objective, after in ((throughput, (4, 0)), (AtMostThree(), (3, 0)), (Twins(), (2, 2))):
        options = Settings(objective=objective, solver=solver, limits=Limits(prune=prune))
        decision = Allocator(two_tasks(), options).on_event(Event.join(0.0, *"abcd"))
        assert decision.after == after
        assert decision.result.held == "optimal"


@pytest.mark.parametrize("solver", ["dp", "equal-share"])
def test_rows_are_refused_by_capability(solver):
    """Solvers that take none say so, with the reason and another one to try."""
    with pytest.raises(SolverUnavailableError, match=f"{solver}: takes no extra rows, which .* adds; try --solver cbc"):
        decide(AtMostThree(), two_tasks(), 4, solver)


def test_rows_of_the_wrong_length():
    """Rows that do not fit the tasks are the objective's fault."""
    with pytest.raises(ObjectiveError, match=r"objective Twins: .*ValueError"):
        decide(Twins(), two_tasks()[:1], 4, "cbc")


@pytest.mark.parametrize("row", [{"coefficients": np.nan}, {"coefficients": np.inf}, {"upper": np.nan}])
def test_rows_that_are_no_numbers(row):
    """NaN in a row is the objective's fault, whatever a solver would make of it."""

    class Vague(AtMostThree):
        def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[LinearRow]:  # noqa: ARG002
            return [LinearRow(np.full(2, row.get("coefficients", 1.0)), upper=row.get("upper", 3.0))]

    for solver in ("cbc", "highs"):
        with pytest.raises(ObjectiveError, match=r"objective Vague: Expected finite coefficients .* in row 0"):
            decide(Vague(), two_tasks(), 4, solver)


def test_long_answers_are_cut():
    """What an objective raises ends up in one short line."""

    def wordy(task, counts, now_s):  # noqa: ARG001
        raise ValueError("far too\nmuch " * 100)

    with pytest.raises(ObjectiveError) as refused:
        decide(wordy, two_tasks(), 4)
    assert " ... (test_constraints.py, line " in str(refused.value)
    assert len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)


def test_constraints_that_are_none():
    """Anything but rows is refused by the objective's name."""

    class Wrong(AtMostThree):
        def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> Any:  # noqa: ARG002
            return [3]

    with pytest.raises(
        ObjectiveError, match="objective Wrong: Expected constraints to be LinearRows or a Floor, got int"
    ):
        decide(Wrong(), two_tasks(), 4, "cbc")


def test_constraints_see_who_stands_where():
    """Each task of the problem comes with its state: spec, nodes held, progress, submission, in the same order."""
    seen: list[TaskState] = []

    class Curious(AtMostThree):
        def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[LinearRow]:
            assert [options.current for options in problem.tasks] == [task.nodes for task in tasks]
            seen[:] = tasks
            return []

    start_ns = 10**18
    live = Allocator([plain("J1", user="bio", submit_s=-3.0), plain("J0")], Settings(Curious(), "dp"), (), start_ns)
    live.on_event(Event.join(0.0, *"abcde"))
    live.on_event(Event.join(10.0, *"fgh"))
    found = [(task.spec.name, task.spec.user, task.nodes, task.progress, task.submitted_s) for task in seen]
    assert found == [("J1", "bio", 4, 40.0, -3.0), ("J0", None, 1, 10.0, 0.0)]
    assert [task.start_ns for task in seen] == [start_ns, start_ns]
    assert [task.modes for task in seen] == [(task.spec,) for task in seen]


# --- quotas ------------------------------------------------------------------------------------------------------


def owned() -> list[TaskSpec]:
    """Two tasks of astro, one of bio, one of nobody's; the two of group hpo stand first and third."""
    owners = [("astro", "hpo"), ("astro", None), ("bio", "hpo"), (None, None)]
    return [plain(f"J{number}", user=user, group=group) for number, (user, group) in enumerate(owners)]


def rows(limits: dict[str, int | str], pool: int = 10) -> list[tuple[list[float], float]]:
    """Coefficients and upper limits of the rows that a quota adds for the tasks above."""
    tasks = owned()
    counts = counts_on_offer(1, 4)
    problem = AllocationProblem(tuple(TaskOptions(counts, task.rates) for task in tasks), pool)
    added = Quota(throughput, limits).constraints(problem, [at(task) for task in tasks])
    assert all(row.lower == -np.inf for row in added)
    return [(row.coefficients.tolist(), row.upper) for row in added]


def test_a_quota_is_a_row_an_owner():
    """Each user's tasks together; tasks without a user are free."""
    assert rows({"user": 3}) == [([1, 1, 0, 0], 3), ([0, 0, 1, 0], 3)]
    assert rows({"group": 3}) == [([1, 0, 1, 0], 3)]
    assert rows({"user": 3, "group": 2}) == [([1, 1, 0, 0], 3), ([0, 0, 1, 0], 3), ([1, 0, 1, 0], 2)]


def test_an_owner_may_have_a_quota_of_its_own():
    """It then is under no other one of its kind."""
    assert rows({"user/bio": 1}) == [([0, 0, 1, 0], 1)]
    assert rows({"user": 3, "user/bio": 5}) == [([1, 1, 0, 0], 3), ([0, 0, 1, 0], 5)]


@pytest.mark.parametrize(("share", "pool", "most"), [("25%", 10, 2), ("29%", 100, 29), ("0%", 10, 0), ("100%", 7, 7)])
def test_shares_of_the_pool(share, pool, most):
    """Rounded down to whole nodes, without rounding of floats."""
    assert rows({"group": share}, pool) == [([1, 0, 1, 0], most)]


@pytest.mark.parametrize("solver", ["cbc", "highs", "exhaustive"])
def test_quotas_decide(solver):
    """Two nodes a user: four of seven stay with those who have none, and one idle."""
    tasks = owned()
    decision = decide(Quota(throughput, {"user": 2, "user/bio": 1}), tasks, 7, solver)
    first, second, third, fourth = decision.after
    assert (first + second, third, fourth) == (2, 1, 4)


@examples(25)
@given(tables=st.lists(rate_tables(4), min_size=1, max_size=3), limit=st.integers(0, 6), pool=st.integers(1, 8))
def test_quotas_are_kept(tables, limit, pool):
    """However nodes come and go no user holds more after a decision; the first one is the best of those."""
    users = ("astro", "bio", "astro")[: len(tables)]
    tasks = [
        plain(f"J{number}", table, user=user, grow_cost_s=3.0, work=1e6)
        for number, (table, user) in enumerate(zip(tables, users, strict=True))
    ]
    objective = Quota(as_given, {"user": limit})
    best = decide(objective, tasks, pool, "exhaustive").result.objective
    assert decide(objective, tasks, pool, "highs").result.objective == pytest.approx(best, rel=1e-9)
    live = Allocator(tasks, Settings(objective, "highs"))
    nodes = [f"n{number}" for number in range(pool)]
    for event in (Event.join(0.0, *nodes), Event.leave(60.0, nodes[0]), Event.join(90.0, *"xy")):
        live.on_event(event)
        counts = live.cluster.hold().after
        for user in set(users):
            assert sum(count for count, owner in zip(counts, users, strict=True) if owner == user) <= limit


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expected limits"),
        (":energy", "Expected limits"),
        ("user", "got 'user'"),
        ("user=", "got 'user='"),
        ("user=-1", "got 'user=-1'"),
        ("user=0.5", "got 'user=0.5'"),
        ("user/=3", "got 'user/=3'"),
        ("owner=3", "got 'owner=3'"),
        ("user=3,group=101%", "up to 100%, got 'group=101%'"),
    ],
)
def test_quotas_that_say_nothing(text, found):
    """What is not an owner and a limit is refused with the form that is expected."""
    with pytest.raises(ObjectiveError, match=f"objective quota: .*{found}"):
        get_objective(f"quota:{text}")


def test_owners_that_nobody_is():
    """A quota of a user or group that the task set does not know is told before a replay, with the nearest name."""
    Quota(limits={"user": 1, "user/astro": 2, "group/hpo": "50%"}).check(owned())
    for limits, said in (
        ({"user/asto": 2}, "Expected the user of a task, got 'asto'. Did you mean 'astro'"),
        ({"group/nas": 2}, "Expected the group of a task, got 'nas'. Known: hpo"),
    ):
        with pytest.raises(ObjectiveError, match=said):
            Quota(limits=limits).check(owned())
    with pytest.raises(ObjectiveError, match="Expected tasks with a group, got none"):
        Priority(Quota(limits={"group": 2})).check([plain()])


def test_constraints_nest():
    """A modifier keeps the constraints and the check of what it modifies; without any, decisions stay sums."""
    both = Quota(Quota(throughput, {"group": 1}), {"user": 2})
    problem_rows = [row.upper for row in _added(both)]
    assert problem_rows == [1, 2, 2]
    assert [row.upper for row in _added(Priority(both))] == problem_rows
    assert decide(Priority(throughput), owned()[:1], 3, "dp").after == (3,)


def _added(objective: Quota | Priority) -> list[LinearRow]:
    tasks = owned()
    problem = AllocationProblem(tuple(TaskOptions(counts_on_offer(1, 4), task.rates) for task in tasks), 9)
    return objective.constraints(problem, [at(task) for task in tasks])
