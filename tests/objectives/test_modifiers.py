"""Objectives by name, their modifiers, and what they add beyond sums: rows that bind, quotas, fairness."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import Allocator, Settings, plugins
from bftrainer.errors import SettingsError
from bftrainer.model import Event, TaskSpec, TaskState
from bftrainer.objectives import (
    FairShare,
    Priority,
    Quota,
    as_given,
    energy,
    get_objective,
    objective_names,
    throughput,
)
from solvers import AllocationProblem, LinearRow, TaskOptions, counts_on_offer
from tests.examples import examples
from tests.objectives.support import at, credit, decide, plain, rate_tables
from tests.reference.exhaustive import Exhaustive
from tests.shipped import shipped
from tests.solvers.support import TAKES_FLOOR, usable

# --- names -------------------------------------------------------------------------------------------------------


def test_names():
    """The shipped ones."""
    names = "as-given deadline energy energy-delay fair-share priority quota scaling-efficiency throughput"
    assert sorted(shipped("bftrainer.objectives") + shipped("bftrainer.objective_modifiers")) == names.split()
    assert set(objective_names()) >= set(names.split())


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("energy", energy),
        ("priority", Priority()),
        ("priority:priority:throughput", Priority(Priority(throughput))),
        ("quota:user=16", Quota(limits={"user": "16"})),
        ("quota:user=25%,group/hpo=8:throughput", Quota(throughput, {"user": "25%", "group/hpo": "8"})),
        ("priority:quota:group=8", Priority(Quota(limits={"group": "8"}))),
        ("fair-share", FairShare()),
        ("fair-share:user", FairShare(by="user")),
        ("fair-share:group:priority:throughput", FairShare(Priority(throughput), "group")),
        ("quota:user=2:fair-share:task:throughput", Quota(FairShare(throughput), {"user": "2"})),
    ],
)
def test_modifiers_nest(name, objective):
    """A modifier's parameters follow its name, then the name of the objective that it modifies; all have defaults."""
    assert get_objective(name) == objective


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current directory, which is not on the path, forgotten afterwards."""
    (tmp_path / "my_goals.py").write_text(
        "def credit(task, counts, now_s):\n    return (counts * 1.0).tolist()\nnumber = 3\ndef _own():\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    yield "my_goals"
    sys.modules.pop("my_goals", None)


def test_any_callable_works(module):
    """`module:callable` is found in the current directory, which does not stay on the path; it can be modified."""
    before = list(sys.path)
    assert credit(get_objective(f"priority:{module}:credit"), plain(weight=2.0)) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert sys.path == before
    assert get_objective("quota:user=16:priority").__name__ == "quota:priority:as_given"


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("priority:enery", r"got 'enery'\. Did you mean 'energy'"),
        ("proirity:energy-delay", r"got 'proirity:energy-delay'\. Did you mean 'priority'"),
        ("my_goals:profit", "to define 'profit'. Known: credit"),
        *[
            (f"quota:{text}", f"objective quota: .*{said}")
            for text, said in (
                ("", "Expected limits"),
                (":energy", "Expected limits"),
                ("user", "got 'user'"),
                ("user=-1", "got 'user=-1'"),
                ("user=0.5", "got 'user=0.5'"),
                ("user/=3", "got 'user/=3'"),
                ("owner=3", "got 'owner=3'"),
                ("user=3,group=101%", "up to 100%, got 'group=101%'"),
            )
        ],
    ],
)
def test_names_of_nothing(name, said):
    """Also behind a modifier a near miss gets the name that was meant; limits of a quota get the form."""
    with pytest.raises(SettingsError, match=said):
        get_objective(name)


class Doubled:
    """A modifier of somebody else's: ``doubled:OBJECTIVE``, unless it is asked for nonsense."""

    @staticmethod
    def parse(text):
        if text == "nonsense":
            raise KeyError(text)
        return (lambda inner: lambda task, counts, now_s: 2.0 * inner(task, counts, now_s)), text


def test_other_peoples_modifiers(monkeypatch):
    """A modifier that a package registers nests like ours, and what it raises is told in one line."""
    group = "bftrainer.objective_modifiers"
    monkeypatch.setitem(plugins.entries_of(group), "doubled", (EntryPoint("doubled", f"{__name__}:Doubled", group),))
    assert credit(get_objective("priority:doubled:throughput"), plain(weight=3.0))[1:3] == [6.0, 12.0]
    with pytest.raises(SettingsError, match=r"objective doubled: .*KeyError: 'nonsense'"):
        get_objective("doubled:nonsense")


# --- rows --------------------------------------------------------------------------------------------------------


class Bound:
    """Throughput, and whatever rows it is made with."""

    def __init__(self, *rows: Any) -> None:
        self.rows = rows

    def __call__(self, task: TaskState, counts: np.ndarray, now_s: float) -> np.ndarray:
        return throughput(task, counts, now_s)

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> Sequence[Any]:  # noqa: ARG002
        return self.rows


TWINS = Bound(LinearRow(np.array([1.0, -1.0]), lower=0.0, upper=0.0))


def wordy(task, counts, now_s):  # noqa: ARG001
    """Raise at length."""
    raise ValueError("far too\nmuch " * 100)


@pytest.mark.parametrize(
    ("objective", "solver", "said"),
    [
        (TWINS, "highs", r"objective Bound: .*ValueError"),
        *[
            (Bound(LinearRow(np.full(1, entry), upper=upper)), "cbc", "Bound: Expected finite coefficients .* in row 0")
            for entry, upper in ((np.nan, 3.0), (np.inf, 3.0), (1.0, np.nan))
        ],
        (Bound(3), "cbc", "objective Bound: Expected constraints to be LinearRows or a Floor, got int"),
        (FairShare(FairShare(throughput)), "cbc", "fair-share:fair-share:throughput: Expected at most one Floor"),
        (wordy, "dp", r"^[^\n]{1,240} \.\.\. \(test_modifiers.py, line \d+\)\.$"),
    ],
)
def test_wrong_constraints_are_the_objectives_fault(objective, solver, said):
    """Rows of the wrong length, no numbers, two floors: one short line by the objective's name."""
    with pytest.raises(SettingsError, match=said):
        decide(objective, [plain()], 4, solver)


# --- quotas ------------------------------------------------------------------------------------------------------

# Two tasks of astro, one of bio, one of nobody's; the two of group hpo stand first and third.
OWNERS = [("astro", "hpo"), ("astro", None), ("bio", "hpo"), (None, None)]
OWNED = [plain(f"J{number}", user=user, group=group) for number, (user, group) in enumerate(OWNERS)]
FAIR = Quota(Quota(throughput, {"group": 1}), {"user": 2})


@pytest.mark.parametrize(
    ("objective", "pool", "expected"),
    [
        (Quota(throughput, {"user": 3}), 10, [([1, 1, 0, 0], 3), ([0, 0, 1, 0], 3)]),
        (Quota(throughput, {"group": 3}), 10, [([1, 0, 1, 0], 3)]),
        # An owner may have a quota of its own; it then is under no other one of its kind.
        (Quota(throughput, {"user/bio": 1}), 10, [([0, 0, 1, 0], 1)]),
        (Quota(throughput, {"user": 3, "user/bio": 5}), 10, [([1, 1, 0, 0], 3), ([0, 0, 1, 0], 5)]),
        # Shares of the pool are rounded down to whole nodes, without rounding of floats.
        (Quota(throughput, {"group": "25%"}), 10, [([1, 0, 1, 0], 2)]),
        (Quota(throughput, {"group": "29%"}), 100, [([1, 0, 1, 0], 29)]),
        (Quota(throughput, {"group": "0%"}), 10, [([1, 0, 1, 0], 0)]),
        # A modifier keeps the constraints of what it modifies.
        *[(each, 9, [([1, 0, 1, 0], 1), ([1, 1, 0, 0], 2), ([0, 0, 1, 0], 2)]) for each in (FAIR, Priority(FAIR))],
    ],
)
def test_a_quota_is_a_row_an_owner(objective, pool, expected):
    """Coefficients and upper limits: each owner's tasks together; tasks without an owner are free."""
    problem = AllocationProblem(tuple(TaskOptions(counts_on_offer(1, 4), task.rates) for task in OWNED), pool)
    rows = objective.constraints(problem, [at(task) for task in OWNED])
    assert all(row.lower == -np.inf for row in rows)
    assert [(row.coefficients.tolist(), row.upper) for row in rows] == expected


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
    best = decide(objective, tasks, pool, Exhaustive()).result.objective
    assert decide(objective, tasks, pool, "highs").result.objective == pytest.approx(best, rel=1e-9)
    live = Allocator(tasks, Settings(objective, "highs"))
    nodes = [f"n{number}" for number in range(pool)]
    for event in (Event.join(0.0, *nodes), Event.leave(60.0, nodes[0]), Event.join(90.0, *"xy")):
        live.on_event(event)
        counts = live.cluster.hold().after
        for user in set(users):
            assert sum(count for count, owner in zip(counts, users, strict=True) if owner == user) <= limit


def test_owners_that_nobody_is():
    """A quota of a user or group that the task set does not know is told before a replay, with the nearest name."""
    Quota(limits={"user": 1, "user/astro": 2, "group/hpo": "50%"}).check(OWNED)
    for limits, tasks, said in (
        ({"user/asto": 2}, OWNED, "Expected the user of a task, got 'asto'. Did you mean 'astro'"),
        ({"group/nas": 2}, OWNED, "Expected the group of a task, got 'nas'. Known: hpo"),
        ({"group": 2}, [plain()], "Expected tasks with a group, got none"),
    ):
        with pytest.raises(SettingsError, match=said):
            Priority(Quota(limits=limits)).check(tasks)
    assert decide(Priority(throughput), OWNED[:1], 3, "dp").after == (3,)  # without rows decisions stay sums


# --- fairness ----------------------------------------------------------------------------------------------------


def least(tasks: Sequence[TaskSpec], counts: Sequence[int], by: str = "task") -> float:
    """What the worst-off owner gets in ten seconds, from nothing."""
    sums: dict[object, float] = {}
    for task, count in zip(tasks, counts, strict=True):
        owner = getattr(task, by) if by != "task" and getattr(task, by) is not None else (task.name,)
        sums[owner] = sums.get(owner, 0.0) + 10.0 * float(task.rates[count])
    return min(sums.values())


def total(tasks: Sequence[TaskSpec], counts: Sequence[int]) -> float:
    """What all get in a second."""
    return sum(float(task.rates[count]) for task, count in zip(tasks, counts, strict=True))


@st.composite
def owned_tasks(draw: st.DrawFn) -> list[TaskSpec]:
    """One to four tasks of two users or nobody, with whole rates."""
    tasks = []
    for number in range(draw(st.integers(1, 4))):
        rates, user = draw(rate_tables(4)), draw(st.sampled_from(["astro", "bio", None]))
        tasks.append(plain(f"J{number}", rates, user=user, min_nodes=draw(st.integers(1, len(rates) - 1)), work=1e6))
    return tasks


@pytest.mark.parametrize("name", TAKES_FLOOR)
@examples(50)
@given(tasks=owned_tasks(), pool=st.integers(1, 9), by=st.sampled_from(["task", "user"]))
def test_the_minimum_is_the_largest(name, tasks, pool, by):
    """No allocation gives the worst-off task or user more, and of those that give as much none gives more in all."""
    decision = decide(FairShare(throughput, by), tasks, pool, usable(name))
    offers = [(0, *range(task.min_nodes, task.max_nodes + 1)) for task in tasks]
    every = [counts for counts in itertools.product(*offers) if sum(counts) <= pool]
    best = max(least(tasks, counts, by) for counts in every)
    assert least(tasks, decision.after, by) == pytest.approx(best)
    most = max(total(tasks, counts) for counts in every if least(tasks, counts, by) == best)
    assert total(tasks, decision.after) == pytest.approx(most)
    assert decision.result.objective == pytest.approx(best + 1e-4 * 10.0 * most)


SLOW, FAST = plain("slow", user="astro"), plain("fast", rates=(0, 2, 4, 6, 8), user="bio")
ALIKE = [plain(f"J{number}", user=user) for number, user in enumerate(["astro", "astro", "astro", "bio"])]
ALONE = [replace(task, user=None) for task in ALIKE]
NAMED = [replace(ALIKE[0], name="bio", user=None), *(replace(task, user="bio") for task in ALIKE[1:3])]
WEIGHED = [plain("light", rates=range(9)), plain("heavy", rates=range(9), weight=3.0)]
LIGHT = [replace(task, weight=weight) for task, weight in zip(WEIGHED, (0.5, 1.0), strict=True)]


@pytest.mark.parametrize(
    ("objective", "tasks", "pool", "after"),
    [
        # The slow task gets four nodes for 4 work/s, the fast one two for 4; by the sum it would be two and four.
        (throughput, [SLOW, FAST], 6, (2, 4)),
        (FairShare(throughput), [SLOW, FAST], 6, (4, 2)),
        # Speed-up is compared by default: tasks that scale alike share alike.
        (FairShare(), [SLOW, FAST], 6, (3, 3)),
        # Three tasks of one user get together what the only one of another gets; those of nobody stand for themselves.
        (FairShare(throughput, "user"), ALONE, 8, (2, 2, 2, 2)),
        # Who weighs three times as much is owed that; fairness over priority evens it out.
        (Priority(FairShare(throughput)), WEIGHED, 8, (2, 6)),
        (FairShare(Priority(throughput)), WEIGHED, 8, (6, 2)),
        (Priority(Priority(FairShare(throughput))), LIGHT, 5, (1, 4)),
        # A quota holds, whichever of both is named first.
        (get_objective("quota:user/astro=3:fair-share:throughput"), [SLOW, FAST], 6, (3, 3)),
        (get_objective("fair-share:quota:user/astro=3:throughput"), [SLOW, FAST], 6, (3, 3)),
    ],
)
def test_fair_shares_by_hand(objective, tasks, pool, after):
    """Nodes of the first decision."""
    assert decide(objective, tasks, pool, "highs").after == after


def test_users_share_and_not_their_tasks():
    """A task of nobody's is not taken for a user of its name; a kind of owner that does not exist is refused."""
    assert decide(FairShare(throughput, "user"), ALIKE, 8, "highs").after[3] == 4
    assert decide(FairShare(throughput, "user"), NAMED, 4, "highs").after[0] == 2
    with pytest.raises(SettingsError, match="Expected one of task, user, group, got 'team'"):
        FairShare(throughput, "team")
