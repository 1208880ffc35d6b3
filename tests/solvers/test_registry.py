"""Finding, describing and calling solvers."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from bftrainer import Allocator, Settings, plugins
from bftrainer.errors import SettingsError, SolverError, SolverUnavailableError
from bftrainer.model import Event, ScalingCurve, TaskSpec
from bftrainer.objectives import as_given
from solvers import Held, Limits, SolveResult, StopReason, registry, supervised
from tests.solvers.known_optima import TWO_LIMITS, linear, problem, task

SHIPPED = ("cbc", "dp", "equal-share", "exhaustive", "gurobi", "highs", "node-level")


BREAKING = ("Crashing", "Explosive", "Hostile", "Unlicensed", "Unmade")


class Lazy:
    """A third party's solver: nobody gets anything."""

    name = "lazy"
    exact = False
    extra_rows = False
    requires: tuple[str, ...] = ()

    def solve(self, problem, limits):  # noqa: ARG002
        counts = (0,) * len(problem.tasks)
        return SolveResult(counts, 0.0, float("inf"), StopReason.HEURISTIC, Held.INCUMBENT, self.name)


class Missing(Lazy):
    """One whose library is not there."""

    name = "missing"
    requires = ("no_such_library",)


class Crashing(Lazy):
    """One that breaks as soon as it is asked."""

    name = "crashing"

    def solve(self, problem, limits):  # noqa: ARG002
        raise RuntimeError("it\nbroke")


class Unmade(Lazy):
    """One that cannot even be made."""

    name = "unmade"

    def __init__(self):
        raise RuntimeError("no such device")


class Unlicensed(Lazy):
    """One whose licence server is down."""

    name = "unlicensed"

    def licence(self):
        raise OSError("no route to host")


class _Hostile(type):
    @property
    def exact(cls):
        raise RuntimeError("never asked before")


class Hostile(metaclass=_Hostile):
    """One whose capabilities cannot be read."""

    name = "hostile"
    extra_rows = False
    requires = ()


def __getattr__(name):
    if name == "Explosive":
        raise RuntimeError("on import")
    raise AttributeError(name)


class Answering(Lazy):
    """Answers as told."""

    name = "answering"

    def __init__(self, *answer):
        self.answer = answer

    def solve(self, problem, limits):  # noqa: ARG002
        return SolveResult(*self.answer, self.name)


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """A package of others beside our own, which other processes find too."""
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    places = {"lazy": "Lazy", "missing": "Missing", **{name.lower(): name for name in BREAKING}}
    lines = [f"{name} = {__name__}:{place}" for name, place in places.items()]
    lines.append("broken = no_such_module:Solver")
    (info / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    forget_entries()
    supervised.end_idle()  # processes that look for packages elsewhere
    yield
    forget_entries()
    supervised.end_idle()


def forget_entries():
    """Have entry points looked up once more."""
    for each in (plugins.entries_of, registry.solver_class, registry.declaration):
        each.cache_clear()


def test_all_shipped_solvers_are_registered():
    """The package's entry points name nine solvers, each under its own name."""
    assert registry.names() == SHIPPED
    assert all(registry.solver_class(name).name == name for name in SHIPPED)


def test_two_solvers_of_one_name(monkeypatch):
    """None shadows the other: both are named where one is asked for, and in the list of solvers, beside the others."""
    extra = [EntryPoint("dp", f"{__name__}:Lazy", registry.GROUP)]
    original = plugins.entry_points
    monkeypatch.setattr(plugins, "entry_points", lambda group: [*original(group=group), *extra])
    forget_entries()
    try:
        assert registry.names() == SHIPPED
        with pytest.raises(SettingsError, match=r"^solver dp: ") as caught:
            registry.get_solver("dp")
        assert "solvers.dynamic_programme:DynamicProgramme and " in str(caught.value)
        assert f"{__name__}:Lazy; name one" in str(caught.value)
        listed = {row["name"]: row for row in registry.catalogue()}
        assert f"{__name__}:Lazy" in listed["dp"]["licensed"]
        assert listed["equal-share"]["installed"]
    finally:
        forget_entries()


def test_describing_imports_no_solver_library():
    """Names, capabilities and availability are told without importing mip, highspy, gurobipy or pandas."""
    code = (
        "import sys; from solvers import registry; "
        "[(registry.get_solver(n).exact, n) for n in registry.names()]; "
        "print(sorted({'mip', 'highspy', 'gurobipy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_solver_is_suggested_a_known_one():
    """A slip of the finger is answered by the nearest name, nonsense by all of them."""
    with pytest.raises(SettingsError, match=r"got 'gurobbi'\. Did you mean 'gurobi'\?"):
        registry.get_solver("gurobbi")
    with pytest.raises(SettingsError, match="Known: cbc, dp"):
        registry.get_solver("zzzzzz")


OWN = """
from solvers.reference_solvers import EqualShare

class Mine(EqualShare):
    name = "mine"
"""


def test_a_solver_need_not_be_registered(tmp_path, monkeypatch):
    """It is called module:Class; its module is found in the current directory, and its code runs in another process."""
    (tmp_path / "unregistered.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    supervised.end_idle()  # processes that work elsewhere
    says = registry.declaration("unregistered:Mine")
    assert (says.name, says.exact, says.fault) == ("mine", False, "")
    assert "unregistered" not in sys.modules
    assert registry.get_solver("unregistered:Mine").name == "mine"


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("json:Loads", SettingsError, r"Expected json to define 'Loads'\. Did you mean 'loads'\?"),
        ("no_such_module:X", SettingsError, "solver no_such_module:X: Cannot import the module"),
        (":x", SettingsError, r"module:callable, got ':x'\. Known: cbc"),
        ("json:loads", SolverUnavailableError, "^json:loads cannot be loaded: .*'name'"),
    ],
)
def test_what_is_no_solver_is_refused(name, error, said):
    """One line says what is wrong with a name, a module or a class."""
    with pytest.raises(error, match=said) as caught:
        registry.get_solver(name)
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    """Not installed is an error of its own, which names the extra."""
    monkeypatch.setattr(registry, "absent", lambda *modules: [name for name in modules if name == "gurobipy"])
    with pytest.raises(SolverUnavailableError, match=r"gurobi: gurobipy is not installed; the extra gurobi "):
        registry.get_solver("gurobi")
    rows = {row["name"]: row for row in registry.catalogue()}
    assert (rows["gurobi"]["installed"], rows["gurobi"]["version"]) == (False, "")
    assert rows["cbc"]["installed"]


def test_the_catalogue_tells_capabilities_apart():
    """Every solver has a row: installed, licensed, exact, extra rows, version."""
    rows = {row["name"]: row for row in registry.catalogue()}
    assert tuple(rows) == SHIPPED
    assert rows["cbc"]["version"].startswith("mip ")
    assert (rows["dp"]["exact"], rows["dp"]["extra_rows"], rows["dp"]["version"]) == (True, False, "")
    assert (rows["cbc"]["capacities"], rows["cbc"]["floor"]) == (True, True)
    assert (rows["equal-share"]["capacities"], rows["equal-share"]["floor"]) == (False, False)
    assert not rows["equal-share"]["exact"]
    assert rows["gurobi"]["licensed"]
    assert rows["dp"]["licensed"] == ""


@pytest.mark.usefixtures("third_party")
def test_third_parties_register_by_entry_point():
    """A solver of another distribution is found, listed and timed like ours; a broken one hides none."""
    rows = {row["name"]: row for row in registry.catalogue()}
    assert rows["lazy"]["installed"]
    assert (rows["lazy"]["capacities"], rows["lazy"]["floor"]) == (False, False)
    assert not rows["missing"]["installed"]
    assert "cannot be loaded" in rows["broken"]["licensed"]
    result = registry.solve(registry.get_solver("lazy"), problem(linear(1.0, 2), nodes=2), Limits())
    assert result.counts == (0,)
    assert result.solve_s > 0
    with pytest.raises(SolverUnavailableError, match="missing: no_such_library is not installed"):
        registry.get_solver("missing")
    with pytest.raises(SolverUnavailableError, match="broken: no_such_module:Solver cannot be loaded"):
        registry.get_solver("broken")


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("explosive", "RuntimeError: on import"),
        ("hostile", "RuntimeError: never asked before"),
        ("unmade", "unmade: raised RuntimeError: no such device"),
        ("unlicensed", "unlicensed: raised OSError: no route to host"),
    ],
)
def test_a_third_party_that_breaks_is_unavailable(name, said):
    """Whatever its import, its attributes, its constructor or its licence raise, it says whose fault it is."""
    assert re.match(f"{name}: .*{said.split(': ', 1)[1]}", registry.declaration(name, with_licence=True).fault)
    rows = {row["name"]: row for row in registry.catalogue()}
    assert said in rows[name]["licensed"]
    assert rows["cbc"]["installed"]
    assert rows["lazy"]["installed"]


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize("name", ["crashing", "explosive", "hostile", "unmade"])
def test_a_fallback_rescues_from_a_third_party_that_breaks(name):
    """Without a fallback the error names the solver in one line; with one, that answers."""
    task = TaskSpec("J0", min_nodes=1, max_nodes=4, work=1e3, scaling=ScalingCurve.linear(1.0, 4))
    join = Event.join(0.0, "a", "b")
    with pytest.raises(SolverError, match=rf"^{name}: [^\n]*RuntimeError: [^\n]+$"):
        Allocator([task], Settings(objective=as_given, solver=name)).on_event(join)
    decision = Allocator([task], Settings(objective=as_given, solver=name, fallback="dp")).on_event(join)
    assert (decision.after, decision.result.solver) == ((2,), "dp")


def test_running_out_of_memory_is_no_failure_of_a_solver():
    """It passes through, as an interruption does."""

    class Greedy(Lazy):
        def solve(self, problem, limits):  # noqa: ARG002
            raise MemoryError

    with pytest.raises(MemoryError):
        registry.solve(Greedy(), problem(linear(1.0, 2), nodes=2), Limits())


INCUMBENT, OPTIMAL, NOTHING = Held.INCUMBENT, Held.OPTIMAL, Held.NOTHING


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (((1, 1), 2.0, 4.0, StopReason.TIME_LIMIT, INCUMBENT), "Expected 1 counts, got 2"),
        (((3,), 6.0, 6.0, StopReason.OPTIMAL, OPTIMAL), "Expected at most 2 nodes, got 3"),
        (((-1,), 6.0, 6.0, StopReason.OPTIMAL, OPTIMAL), "one of the counts on offer, got -1"),
        (((4,), 6.0, 6.0, StopReason.OPTIMAL, OPTIMAL), "one of the counts on offer, got 4"),
        (((10**30,), 6.0, 6.0, StopReason.OPTIMAL, OPTIMAL), "not feasible"),
        (((1.5,), 3.0, 4.0, StopReason.OPTIMAL, INCUMBENT), "not feasible: 'float'"),
        ((None, 3.0, 4.0, StopReason.OPTIMAL, INCUMBENT), "counts exactly if something is held, got None"),
        (((1,), 3.0, 4.0, StopReason.OPTIMAL, NOTHING), "counts exactly if something is held, got .1,."),
        (((2,), 4.0, 3.0, StopReason.OPTIMAL, OPTIMAL), "a bound of at least the 4.0 that was found, got 3.0"),
        (((2,), 4.0, 4.0, "bored", OPTIMAL), "'bored' is not a valid StopReason"),
    ],
)
def test_wrong_answers_are_errors(answer, said):
    """No solver is trusted: what cannot be is an error that names it."""
    with pytest.raises(SolverError, match=f"^answering: .*{said}"):
        registry.solve(Answering(*answer), problem(linear(2.0, 3), nodes=2), Limits())


CAPPED = problem(TWO_LIMITS, nodes=2, capacities=(150.0,))


@pytest.mark.parametrize(
    ("counts", "choices", "said"),
    [
        (None, (4,), r"capacity 0: Expected at most 150\.0, got 200\.0"),
        (None, (5,), "a choice of 0..4, got 5"),
        ((1,), None, "a choice, as several options have 1 nodes"),
        ((1,), (3,), r"the counts \(2,\) of its choices, got \(1,\)"),
        (None, (1.5,), "not feasible: 'float'"),
    ],
)
def test_wrong_choices_are_errors(counts, choices, said):
    """Choices must be on offer, fit the capacities, and have the counts that were told, if any were."""
    taking = type("Taking", (Answering,), {"capacities": True})
    with pytest.raises(SolverError, match=f"^answering: .*{said}"):
        solve_by(taking(counts, 1.0, 99.0, StopReason.OPTIMAL, INCUMBENT), choices, CAPPED)


def solve_by(told, choices, asked):
    """Through the wrapper, with `choices` in the solver's answer."""
    answer = told.solve
    told.solve = lambda problem, limits: replace(answer(problem, limits), choices=choices)
    return registry.solve(told, asked, Limits())


def test_choices_and_counts_are_filled_in():
    """Whichever of the two a solver tells, the result has both."""
    taking = type("Taking", (Answering,), {"capacities": True})
    told = solve_by(taking(None, 0.0, 20.0, StopReason.OPTIMAL, INCUMBENT), (3,), CAPPED)
    assert (told.counts, told.choices, told.objective) == ((2,), (3,), 12.0)
    plain = problem(task({0: 0.0, 2: 3.0, 3: 4.0}), nodes=9)
    told = registry.solve(Answering((3,), 0.0, 4.0, StopReason.OPTIMAL, OPTIMAL), plain, Limits())
    assert (told.counts, told.choices, told.held) == ((3,), (2,), OPTIMAL)
    with pytest.raises(SolverUnavailableError, match="answering: takes no capacities"):
        registry.solve(Answering((0,), 0.0, 4.0, StopReason.OPTIMAL, OPTIMAL), CAPPED, Limits())


def test_an_answer_of_another_kind_is_an_error():
    """Something that is no result at all is refused as well."""

    class Terse(Lazy):
        def solve(self, problem, limits):  # noqa: ARG002
            return (1,)

    with pytest.raises(SolverError, match="lazy: Expected a SolveResult, got tuple"):
        registry.solve(Terse(), problem(linear(2.0, 3), nodes=2), Limits())


@pytest.mark.parametrize(
    ("counts", "bound", "held", "value", "kept_bound"),
    [
        ((2,), 4.0, OPTIMAL, 4.0, 4.0),
        ((1,), 4.0, INCUMBENT, 2.0, 4.0),
        ((2,), float("nan"), INCUMBENT, 4.0, float("inf")),
        ((2,), float("inf"), INCUMBENT, 4.0, float("inf")),
        ((2,), 4.0 - 1e-12, OPTIMAL, 4.0, 4.0),
    ],
)
def test_claims_are_recomputed(counts, bound, held, value, kept_bound):
    """The objective is the reference's, whatever was said; optimal is what the bound supports."""
    told = Answering(counts, 99.0, bound, StopReason.OPTIMAL, OPTIMAL)
    result = registry.solve(told, problem(linear(2.0, 3), nodes=2), Limits())
    assert (result.counts, result.held, result.objective, result.bound) == (counts, held, value, kept_bound)
