"""Max-min fairness: against every allocation of small worlds, by hand, and with weights and quotas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import Allocator, Settings
from bftrainer.errors import ObjectiveError, SolverUnavailableError
from bftrainer.model import Event, TaskSpec
from bftrainer.objectives import FairShare, Priority, Quota, get_objective, throughput
from tests.examples import examples
from tests.objectives.support import decide, plain, rate_tables
from tests.solvers.support import TAKES_FLOOR, usable

FORWARD_S = 10.0


def least(tasks: Sequence[TaskSpec], counts: Sequence[int], by: str = "task") -> float:
    """What the worst-off owner gets in ten seconds, from nothing."""
    got: dict[object, float] = {}
    for task, count in zip(tasks, counts, strict=True):
        owner = getattr(task, by) if by != "task" and getattr(task, by) is not None else (task.name,)
        got[owner] = got.get(owner, 0.0) + FORWARD_S * float(task.rates[count])
    return min(got.values())


def allocations(tasks: Sequence[TaskSpec], pool: int) -> list[tuple[int, ...]]:
    """All that there are."""
    offers = [(0, *range(task.min_nodes, task.max_nodes + 1)) for task in tasks]
    return [counts for counts in itertools.product(*offers) if sum(counts) <= pool]


@st.composite
def owned_tasks(draw: st.DrawFn) -> list[TaskSpec]:
    """One to four tasks of two users or nobody, with whole rates."""
    tasks = []
    for number in range(draw(st.integers(1, 4))):
        rates = draw(rate_tables(4))
        user = draw(st.sampled_from(["astro", "bio", None]))
        tasks.append(plain(f"J{number}", rates, user=user, min_nodes=draw(st.integers(1, len(rates) - 1)), work=1e6))
    return tasks


@pytest.mark.parametrize("name", TAKES_FLOOR)
@examples(50)
@given(tasks=owned_tasks(), pool=st.integers(1, 9), by=st.sampled_from(["task", "user"]))
def test_the_minimum_is_the_largest(name, tasks, pool, by):
    """No allocation gives the worst-off task or user more, and of those that give as much none gives more in all."""
    decision = decide(FairShare(throughput, by), tasks, pool, usable(name))
    every = allocations(tasks, pool)
    best = max(least(tasks, counts, by) for counts in every)
    assert least(tasks, decision.after, by) == pytest.approx(best)
    most = max(_total(tasks, counts) for counts in every if least(tasks, counts, by) == best)
    assert _total(tasks, decision.after) == pytest.approx(most)
    assert decision.result.objective == pytest.approx(best + 1e-4 * FORWARD_S * most)


def _total(tasks: Sequence[TaskSpec], counts: Sequence[int]) -> float:
    return sum(float(task.rates[count]) for task, count in zip(tasks, counts, strict=True))


def test_by_hand():
    """Six nodes: the slow task gets four for 4 work/s, the fast one two for 4; by the sum it would be four and two."""
    slow, fast = plain("slow"), plain("fast", rates=(0, 2, 4, 6, 8))
    assert decide(throughput, [slow, fast], 6).after == (2, 4)
    assert decide(FairShare(throughput), [slow, fast], 6, "cbc").after == (4, 2)


def test_speed_up_is_compared_by_default():
    """Tasks that scale alike share alike, however fast they are."""
    slow, fast = plain("slow"), plain("fast", rates=(0, 2, 4, 6, 8))
    assert decide(FairShare(), [slow, fast], 6, "cbc").after == (3, 3)


def test_users_share_and_not_their_tasks():
    """Three tasks of one user get together what the only one of another gets; tasks of nobody stand for themselves."""
    tasks = [plain(f"J{number}", user=user) for number, user in enumerate(["astro", "astro", "astro", "bio"])]
    assert decide(FairShare(throughput, "user"), tasks, 8, "highs").after[3] == 4
    alone = [replace(task, user=None) for task in tasks]
    assert decide(FairShare(throughput, "user"), alone, 8, "highs").after == (2, 2, 2, 2)
    named = [replace(tasks[0], name="bio", user=None), replace(tasks[1], user="bio"), replace(tasks[2], user="bio")]
    assert decide(FairShare(throughput, "user"), named, 4, "highs").after[0] == 2


def test_weights_say_what_is_owed():
    """Priority over fairness: who weighs three times as much is owed that; fairness over priority evens it out."""
    tasks = [plain("light", rates=range(9)), plain("heavy", rates=range(9), weight=3.0)]
    assert decide(Priority(FairShare(throughput)), tasks, 8, "highs").after == (2, 6)
    assert decide(FairShare(Priority(throughput)), tasks, 8, "highs").after == (6, 2)
    twice = Priority(Priority(FairShare(throughput)))
    assert decide(twice, [replace(tasks[0], weight=0.5), replace(tasks[1], weight=1.0)], 5, "highs").after == (1, 4)


def test_fairness_within_quotas():
    """A quota holds, whichever of both is named first; without it the slow task would get four of six nodes."""
    tasks = [plain("slow", user="astro"), plain("fast", rates=(0, 2, 4, 6, 8), user="bio")]
    assert decide(FairShare(throughput), tasks, 6, "highs").after == (4, 2)
    for name in ("quota:user/astro=3:fair-share:throughput", "fair-share:quota:user/astro=3:throughput"):
        assert decide(get_objective(name), tasks, 6, "highs").after == (3, 3)


def test_rescaling_counts_for_the_worst_off():
    """Who holds all nodes gives some up only if that pays in time for who has none; until then the shares stay."""
    tasks = [plain("J0", shrink_cost_s=30.0), plain("J1", submit_s=60.0)]
    for forward_s, after in ((10.0, (4, 0)), (1000.0, (2, 2))):
        live = Allocator(tasks, Settings(FairShare(throughput), "highs", forward_time_s=forward_s))
        live.on_event(Event.join(0.0, *"abcd"))
        assert live.on_event(Event.submission(60.0)).after == after


def test_solvers_without_a_floor_refuse():
    """They say so, and which one to try."""
    for solver in ("dp", "equal-share"):
        with pytest.raises(SolverUnavailableError, match=f"{solver}: .*try --solver cbc"):
            decide(FairShare(throughput), [plain()], 4, solver)


def test_at_most_one_floor():
    """Fairness over fairness is refused, as is fairness over what there is not."""
    with pytest.raises(ObjectiveError, match="objective fair-share:fair-share:throughput: Expected at most one Floor"):
        decide(FairShare(FairShare(throughput)), [plain()], 4, "cbc")
    with pytest.raises(ObjectiveError, match="Expected one of task, user, group, got 'team'"):
        FairShare(throughput, "team")


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("fair-share", FairShare()),
        ("fair-share:user", FairShare(by="user")),
        ("fair-share:throughput", FairShare(throughput)),
        ("fair-share:group:priority:throughput", FairShare(Priority(throughput), "group")),
        ("quota:user=2:fair-share:task:throughput", Quota(FairShare(throughput), {"user": "2"})),
    ],
)
def test_names(name, objective):
    """Whose share and of what follow the name, in that order, and either may be left out."""
    assert get_objective(name) == objective


def test_credit_is_that_of_the_other_objective():
    """On a scale on which the sum decides only among decisions that are equally fair."""
    task = plain()
    live = Allocator([task], Settings(FairShare(throughput), "cbc"))
    decision = live.on_event(Event.join(0.0, "a", "b"))
    assert decision.result.objective == pytest.approx(20.0 * (1.0 + 1e-4))
