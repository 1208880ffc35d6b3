"""Replays in the compiled core: the records of the general loop, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.published import published
from bftrainer._core import core, why_not
from bftrainer.model import NodeLog, ScalingCurve, TaskSpec, static
from bftrainer.model.records import Recording
from bftrainer.objectives import as_given, get_objective, throughput
from bftrainer.replay import Allocator, Observer, Settings, compiled
from bftrainer.replay.compiled import recorded
from bftrainer.runs import ReplayConfig
from bftrainer.runs.run_inputs import load_inputs
from solvers import Limits
from tests.worlds import World, worlds

pytestmark = pytest.mark.skipif(core is None, reason=why_not)

NS = 1_000_000_000


def plain(value: object) -> object:
    """What is compared of a record: all but the time that solving took."""
    if isinstance(value, np.ndarray):
        return (value.dtype, value.tolist())
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name not in ("solve_s", "backend_s")]
        return type(value), [plain(getattr(value, name)) for name in names]
    if isinstance(value, list | tuple):
        return type(value), [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return (type(value), repr(value))  # the representation tells 0.0 from -0.0, and NaN equals itself


def assert_alike(found: Recording, wanted: Recording) -> None:
    """Compare two recordings; the message names what differs first."""
    assert found.reason == wanted.reason
    for name in ("timeline", "decisions", "allocation", "tasks"):
        mine, yours = getattr(found, name), getattr(wanted, name)
        for number, (one, other) in enumerate(zip(mine, yours, strict=False)):
            assert plain(one) == plain(other), (name, number)
        assert len(mine) == len(yours), name


def both(make: Callable[[], Allocator], log: NodeLog, **options: object) -> tuple[Recording, Recording]:
    """The record of the core, and that of the general loop."""
    rows = log.row_arrays()
    found, engine = recorded(rows, log.window_s, make(), **options)
    assert engine == "compiled"
    wanted, other = recorded(rows, log.window_s, make(), observers=[Observer()], **options)
    assert other == "general"
    return found, wanted


@pytest.mark.parametrize("decide_on", ["all", "nodes"])
def test_records_on_disk_are_the_same(monkeypatch: pytest.MonkeyPatch, decide_on: str) -> None:
    """Records taken from the core a few instants at a time, and kept in files, are those of the general loop."""
    monkeypatch.setattr(compiled, "STEPS_AT_ONCE", 7)
    monkeypatch.setattr("bftrainer.files.mapped.MOST_BYTES", 1_000)
    inputs = load_inputs(ReplayConfig(solver="dp", baseline=False, max_events=200))

    def make() -> Allocator:
        return Allocator(inputs.tasks, inputs.settings, inputs.log.nodes, inputs.log.start_ns)

    found, wanted = both(make, inputs.log, max_events=200, decide_on=decide_on)
    assert_alike(found, wanted)
    with pytest.raises(ValueError, match="read-only"):
        found.timeline["time_s"][0] = 1.0


CHOICES = st.fixed_dictionaries(
    {
        "startup_cost": st.sampled_from(["none", "full"]),
        "initial": st.sampled_from(["solve", "empty"]),
        "objective": st.sampled_from([as_given, throughput]),
        "solver": st.sampled_from(["dp", "dp", "highs", "equal-share"]),
    }
)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(world=worlds(), changes=CHOICES, most=st.none() | st.integers(0, 20), until=st.none() | st.integers(1, 700))
def test_small_worlds(world: World, changes: dict[str, object], most: int | None, until: int | None) -> None:
    """Every record of a small world is equal, whatever solver, start-up costs, first allocation and end."""
    options = {"decide_on": world.decide_on, "max_events": most, "until_s": math.inf if until is None else float(until)}
    assert_alike(*both(lambda: world.allocator(**changes), world.log, **options))


def large_world(seed: int, nodes: int, tasks: int, flips: int, longer: float = 1.0) -> tuple[NodeLog, list[TaskSpec]]:
    """Many nodes that flip at times of any fraction, many at once, and tasks of real sizes and odd rates."""
    rng = np.random.default_rng(seed)
    instants = np.sort(rng.integers(0, 6 * 3600 * NS, size=flips))
    node = rng.integers(0, nodes, size=30 * flips)
    time = np.repeat(instants, 30)
    _, first = np.unique(np.stack((time, node)), axis=1, return_index=True)
    first.sort()
    time, node = time[first], node[first].astype(np.int32)
    turn = np.zeros(nodes, dtype=bool)
    idle = np.empty(node.size, dtype=bool)
    for place, number in enumerate(node.tolist()):
        idle[place] = turn[number] = not turn[number]
    log = NodeLog(tuple(f"n{number}" for number in range(nodes)), 0, 6 * 3600 * NS, time, node, idle)
    specs = []
    for number in range(tasks):
        most = int(rng.integers(1, 65))
        counts = np.arange(most + 1)
        rates = rng.uniform(50, 150) * counts / (1.0 + rng.uniform(0, 0.02) * counts)
        specs.append(
            TaskSpec(
                f"J{number}",
                int(rng.integers(1, most // 4 + 2)) if most > 1 else 1,
                most,
                float(rng.uniform(1e4, 3e6)) * longer,
                ScalingCurve(tuple(counts.tolist()), tuple(rates.tolist())),
                grow_cost_s=float(rng.uniform(5, 25)),
                shrink_cost_s=float(rng.uniform(2, 15)),
                submit_s=float(rng.uniform(-1000, 15_000)),
            )
        )
    return log, specs


@pytest.mark.parametrize("decide_on", ["all", "nodes"])
@pytest.mark.parametrize(("nodes", "tasks", "flips", "max_tasks"), [(60, 40, 300, 9), (700, 200, 150, 140)])
def test_large_worlds(decide_on: str, nodes: int, tasks: int, flips: int, max_tasks: int) -> None:
    """Sums over more tasks than NumPy adds in one go, and over several halves of them, are equal as well."""
    log, specs = large_world(nodes, nodes, tasks, flips, longer=20.0 if max_tasks > 100 else 1.0)
    chosen = Settings(
        as_given,
        "dp",
        forward_time_s=60.0,
        max_tasks=max_tasks,
        completions="noticed" if decide_on == "nodes" else "reported",
    )
    found, wanted = both(lambda: Allocator(specs, chosen, log.nodes), log, decide_on=decide_on)
    assert_alike(found, wanted)
    assert max(len(event.tasks) for event in found.timeline) == max_tasks
    assert sum(event.preempted for event in found.timeline) > 10


@pytest.mark.parametrize(
    "limits", [Limits(prune=False), Limits(gap=0.05), Limits(time_s=1e-9)], ids=["whole", "gap", "no time"]
)
def test_limits(limits: Limits) -> None:
    """Decisions without pruning, within a gap, and those for which there is no time, are equal."""
    log, specs = large_world(5, 40, 12, 120)
    chosen = Settings(as_given, "dp", forward_time_s=60.0, limits=limits)
    found, wanted = both(lambda: Allocator(specs, chosen, log.nodes), log)
    assert_alike(found, wanted)


@pytest.mark.long
def test_only_what_pruning_leaves_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backend, the core decides what pruning decides, and asks for the rest."""
    log, specs = large_world(6, 60, 30, 200)
    chosen = Settings(as_given, "highs", forward_time_s=60.0)
    asked = []
    answer = Allocator.solve
    monkeypatch.setattr(Allocator, "solve", lambda self, problem: asked.append(problem) or answer(self, problem))
    found, engine = recorded(log.row_arrays(), log.window_s, Allocator(specs, chosen, log.nodes))
    in_core = len(asked)
    assert engine == "compiled"
    wanted, _ = recorded(log.row_arrays(), log.window_s, Allocator(specs, chosen, log.nodes), observers=[Observer()])
    assert_alike(found, wanted)
    assert 0 < in_core < len(found.decisions) == len(asked) - in_core


def test_interruption() -> None:
    """`interrupted` is asked before each event, and ends both at the same one."""
    log, specs = large_world(7, 30, 10, 60)
    calls = [iter(range(100)), iter(range(100))]
    chosen = Settings(as_given, "dp")
    rows = log.row_arrays()
    made = [
        recorded(
            rows,
            log.window_s,
            Allocator(specs, chosen, log.nodes),
            observers=observers,
            interrupted=lambda count=count: next(count) == 20,
        )[0]
        for count, observers in zip(calls, ([], [Observer()]), strict=True)
    ]
    assert_alike(*made)
    assert made[0].reason == "interrupted"
    with pytest.raises(ZeroDivisionError):
        recorded(rows, log.window_s, Allocator(specs, chosen, log.nodes), interrupted=lambda: 1 / 0)


def test_what_the_core_cannot_do_takes_the_general_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objectives that are not static or fail, constraints, random allocations, caps, and no core at all."""
    failing = static(lambda task, counts, now_s: as_given(task, counts / 0.0, now_s))
    log, specs = large_world(8, 5, 2, 5)
    rows, base = log.row_arrays(), Settings(as_given, "dp")
    changed = [
        replace(base, objective=lambda task, counts, now_s: as_given(task, counts, now_s)),
        replace(base, initial="random"),
        replace(base, objective=get_objective("fair-share"), solver="highs"),
    ]
    for chosen in changed:
        assert recorded(rows, log.window_s, Allocator(specs, chosen, log.nodes))[1] == "general"
    capped = recorded(rows, log.window_s, Allocator(specs, base, log.nodes), power_caps_w=[(1e9, 5.0)])
    assert capped[1] == "general"
    never = Allocator([replace(specs[0], submit_s=1e9)], replace(base, objective=failing), log.nodes)
    assert recorded(rows, log.window_s, never)[1] == "general"
    monkeypatch.setattr(compiled, "core", None)
    assert recorded(rows, log.window_s, Allocator(specs, base, log.nodes))[1] == "general"


def replay_arguments(**changes: object) -> dict[str, object]:
    """Arguments of a replay of one task on two nodes, with changes."""
    given = {
        "row_s": np.array([0.0, 5.0]),
        "row_from": np.array([0, 2, 3]),
        "node": np.array([0, 1, 0], dtype=np.int32),
        "idle": np.array([True, True, False]),
        "nodes": 2,
        "end_s": 10.0,
        "until_s": math.inf,
        "submit_s": np.zeros(1),
        "min_nodes": np.ones(1, dtype=np.int64),
        "max_nodes": np.full(1, 2),
        "work": np.full(1, 1e3),
        "grow_cost_s": np.zeros(1),
        "shrink_cost_s": np.zeros(1),
        "order": np.zeros(1, dtype=np.int64),
        "credits": [np.arange(3.0)],
        "rates": [np.arange(3.0)],
        "max_tasks": 1,
        "forward_s": 10.0,
        "time_limit_s": 1.0,
        "max_events": -1,
        "gap": 0.0,
        "prune": True,
        "by_rows_only": False,
        "noticed": False,
        "full_startup": False,
        "first_empty": False,
        "decider": 2,
    }
    return given | changes


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"row_s": np.array([5.0, 0.0])}, ValueError),
        ({"row_s": np.array([0.0, math.nan])}, ValueError),
        ({"row_s": [0.0, 5.0]}, ValueError),
        ({"row_from": np.array([0, 2])}, ValueError),
        ({"row_from": np.array([0, 4, 3])}, ValueError),
        ({"row_from": np.array([-1, 2, 3])}, ValueError),
        ({"node": np.array([0, 2, 0], dtype=np.int32)}, ValueError),
        ({"node": np.array([0, 0, 0], dtype=np.int32)}, ValueError),
        ({"node": np.array([-1, 0, 0], dtype=np.int32)}, ValueError),
        ({"node": np.array([0, 1, 0])}, ValueError),
        ({"idle": np.array([True, True])}, ValueError),
        ({"idle": np.array([1, 1, 0])}, ValueError),
        ({"nodes": -1}, ValueError),
        ({"nodes": 2**40}, ValueError),
        ({"end_s": math.inf}, ValueError),
        ({"until_s": math.nan}, ValueError),
        ({"submit_s": np.zeros(2)}, ValueError),
        ({"submit_s": np.full(1, math.nan)}, ValueError),
        ({"min_nodes": np.zeros(1, dtype=np.int64)}, ValueError),
        ({"min_nodes": np.full(1, 3)}, ValueError),
        ({"max_nodes": np.full(1, 2**40)}, ValueError),
        ({"max_nodes": np.full(1, 3)}, ValueError),
        ({"order": np.ones(1, dtype=np.int64)}, ValueError),
        ({"credits": []}, ValueError),
        ({"rates": [np.arange(2.0)]}, ValueError),
        ({"rates": 1}, TypeError),
        ({"max_tasks": 0}, ValueError),
        ({"decider": 3}, ValueError),
        ({"decider": "dp"}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, object], error: type[Exception]) -> None:
    """Arrays of another type, length or content are an error, and never a crash."""
    with pytest.raises(error):
        core.Replay(**replay_arguments(**changes))


def test_wrong_transitions_are_refused() -> None:
    """A node that leaves while busy, or joins while idle, ends the replay with an error that says which."""
    replay = core.Replay(**replay_arguments(idle=np.array([True, False, False])))
    with pytest.raises(ValueError, match="transition 1"):
        replay.run(10, None)
    with pytest.raises(RuntimeError, match="failed"):
        replay.run(10, None)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("node", 2, 2**30), ("node", 2, -1), ("row_from", 1, -3), ("row_from", 2, 2**40), ("row_from", 2, 0)],
)
def test_rows_that_change_are_noticed(name: str, place: int, value: int) -> None:
    """Rows that another program changes after they were checked, as those of a mapped file, are an error."""
    given = replay_arguments()
    replay = core.Replay(**given)
    assert replay.run(10, None) == 1
    given[name][place] = value
    replay.answer([2], 20.0, 20.0, 0, 0, 0, 0.5)
    with pytest.raises(ValueError, match=r"rows that stay as they are|transition 2"):
        replay.run(10, None)


def test_answers_are_checked() -> None:
    """Answers that nobody asked for, of other lengths, not on offer or beyond the pool are refused, then mended."""
    replay = core.Replay(**replay_arguments())
    with pytest.raises(RuntimeError):
        replay.asked()
    assert replay.run(0, None) == 0
    assert replay.run(10, None) == 1
    assert replay.asked() == (2, (0,), (0,), (np.array([0.0, 10.0, 20.0]).tobytes(),))
    with pytest.raises(RuntimeError):
        replay.run(10, None)
    for counts in ([], [1, 1], [-1], [3], [2**70], ["x"], None, 3):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            replay.answer(counts, 0.0, 0.0, 0, 0, 0, 0.0)
    replay.answer([2], 20.0, 20.0, 0, 0, 0, 0.5)
    with pytest.raises(ValueError, match="asked"):
        replay.answer([2], 20.0, 20.0, 0, 0, 0, 0.5)
    assert replay.run(10, None) == 1
    replay.answer(None, math.nan, math.inf, 2, 1, 4, 0.25)
    assert replay.run(10, lambda: False) == 2
    columns = {name: np.asarray(values) for name, values in replay.columns().items()}
    assert columns["decision.after"].tolist() == [2, 1]
    assert columns["change.nodes"].tolist() == [0, 1, 0]
    assert columns["change.task"].tolist() == [0, -1]
    assert columns["event.time_s"].tolist() == [0.0, 5.0, 10.0]
    assert [np.asarray(values).size for values in replay.columns().values()] == [0] * len(columns)
    assert np.frombuffer(replay.books()["node_s"]).tolist() == [15.0]
    assert (replay.reason, replay.time_s) == ("window_end", 10.0)


def test_an_answer_cannot_go_on_with_the_replay() -> None:
    """A sequence of counts whose items are computed by code that uses the replay is refused, and memory stays whole."""
    replay = core.Replay(**replay_arguments())
    assert replay.run(10, None) == 1

    class Count:
        """A count that lets the replay go on."""

        def __index__(self) -> int:
            """Go on before the caller has its turn."""
            return replay.run(10, None)

    class Counts:
        """A sequence that is no list."""

        def __len__(self) -> int:
            """One count."""
            return 1

        def __getitem__(self, _: int) -> int:
            """Answer in place of the caller."""
            replay.answer([2], 20.0, 20.0, 0, 0, 0, 0.5)
            return 2

    for counts in ([Count()], Counts()):
        with pytest.raises(RuntimeError, match="running"):
            replay.answer(counts, 20.0, 20.0, 0, 0, 0, 0.5)
    replay.answer([2], 20.0, 20.0, 0, 0, 0, 0.5)
    assert replay.run(10, None) == 1


def test_limits_of_any_size() -> None:
    """Limits on events and tasks may be larger than the core's numbers."""
    log, specs = large_world(9, 10, 4, 20)
    chosen = Settings(as_given, "dp", max_tasks=10**30)
    assert_alike(*both(lambda: Allocator(specs, chosen, log.nodes), log, max_events=10**30))


@pytest.mark.parametrize("decide_on", ["all", "nodes"])
@pytest.mark.parametrize("which", ["sample", "summit"])
def test_logs_as_they_are(which: str, decide_on: str) -> None:
    """Hundreds of events of the sample, and of the published Summit log where somebody has put it, are equal."""
    found = published()
    if which == "summit" and found is None:
        pytest.skip("the published files are not there")
    paths = {"node_log": found.node_log, "tasks": found.bounds, "scalability": found.scalability} if found else {}
    chosen = {"decide_on": decide_on, "solver": "dp"} | (paths if which == "summit" else {})
    inputs = load_inputs(ReplayConfig(**chosen))
    options = {"decide_on": decide_on, "max_events": 600}
    given = inputs.tasks, inputs.settings, inputs.log.nodes, inputs.log.start_ns
    records = both(lambda: Allocator(*given), inputs.log, **options)
    assert_alike(*records)
    assert len(records[0].events) == 600
