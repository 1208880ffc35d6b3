"""Solvers of other packages, which are lazy, hang, crash, exit, lie or take all memory, and processes of their own."""

import json
import os
import posix
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep

import pytest

from bftrainer import run_replay
from bftrainer.cli.group import cli, guarded
from bftrainer.errors import SolverError, SolverUnavailableError
from solvers import Held, Limits, registry, supervised
from solvers.problem import OutOfTime
from solvers.registry import MEMORY_BYTES, SolverProxy, get_solver, isolate_solver, solve
from solvers.supervised import FILE_BYTES, run_in_subprocess
from tests.solvers.known_optima import linear, problem
from tests.solvers.plugins import WAYS
from tests.solvers.support import forget_entries

LATE = "no answer within its time limit of 0.5 s; its process was ended"
NO_TIME, NO_MEMORY, EXITED = (
    "no answer within 5 s; its process was ended",
    "needs more than 4 GiB",
    "ended with status 0",
)
WRONG = "answered with an allocation that is not feasible"
# What is said of a solver that answers, of one that cannot be loaded, and of one that cannot even be described here.
ANSWERS = {
    "evil-hang": LATE,
    "evil-crash": "its process ended by SIGSEGV",
    "evil-exit-0": EXITED,
    "evil-exit-3": "its process ended with status 3",
    "evil-raise": "TwoArgumentsError",
    "evil-counts": WRONG,
    "evil-nan": WRONG,
    "evil-memory": NO_MEMORY,
    "evil-fork": LATE,
    "evil-leave": LATE,
    "evil-flood": "OSError|its process ended by SIGXFSZ",
}
UNLOADED = {"gone": EXITED, "unread": EXITED, "vast": NO_MEMORY, "slow": NO_TIME}
FAULTS = {
    "broken": "no_such_module:Solver cannot be loaded",
    "explosive": "RuntimeError: on import",
    "hostile": "RuntimeError: never asked before",
    "unmade": "unmade: raised TwoArgumentsError: no answer 3",
    "unlicensed": "unlicensed: raised OSError: no route to host",
    "probed": "its process",
}
CLASSES = ("Lazy", "Missing", "Unlicensed", "Probed", "Hostile", "Explosive", "Gone", "Vast", "Slow", "Unmade")
PROBLEM = problem(linear(1.5, 2), nodes=2)


@pytest.fixture(name="installed")
def _installed(tmp_path, monkeypatch):
    """The package of such solvers beside our own; where it says which processes it starts."""
    place = tmp_path / "site"
    info = place / "bft_evil-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bft_evil\nVersion: 1.0\n")
    names = {f"evil-{way}": f"bft_evil:way_{way.replace('-', '_')}" for way in WAYS}
    names |= {name.lower(): f"bft_evil:{name}" for name in CLASSES}
    names |= {"unread": "bft_unread:Solver", "broken": "no_such_module:Solver"}
    (place / "bft_unread.py").write_text("import os\nos._exit(0)\n")
    lines = [f"{name} = {value}" for name, value in names.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines]))
    shutil.copy(Path(__file__).with_name("plugins.py"), place / "bft_evil.py")
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("EVIL_CHILDREN", str(tmp_path / "children"))
    forget_entries()
    yield tmp_path / "children"
    forget_entries()


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit status of a command."""
    monkeypatch.setattr("sys.argv", ["bftrainer", *arguments])
    return guarded(cli, "bftrainer")


def ended(number: int) -> bool:
    """Whether a process ends within a minute; it need not be one's own."""
    try:
        follower = os.pidfd_open(number)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([follower], [], [], 60.0)[0])
    finally:
        os.close(follower)


@pytest.mark.long
@pytest.mark.parametrize(("name", "said"), (ANSWERS | UNLOADED).items())
def test_a_run_outlives_its_solver(name, said, installed, tmp_path, capfd, monkeypatch):
    """Without a fallback: one line, status 1, or 2 if it cannot be loaded; with one: the fallback's results."""
    if name == "slow":
        monkeypatch.setattr(supervised, "START_S", 5.0)
    options = ["replay", "--solver", name, "-optTL", "0.5" if said is LATE else "60", "--max-events", "3"]
    options += ["--no-baseline", "--output-dir"]
    status = main(monkeypatch, *options, str(tmp_path / "alone"))
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(said, line)
    assert line.startswith(f"Error: {name}: ")
    assert (status, (tmp_path / "alone").exists()) == (2 if name in UNLOADED else 1, False)
    assert main(monkeypatch, *options, str(tmp_path / "rescued"), "--fallback", "dp") == 0
    assert set(json.loads((tmp_path / "rescued" / "summary.json").read_text())["solvers"]) == {"dp"}
    supervised.end_idle()
    if name in ("evil-fork", "evil-leave"):
        started = installed.read_text().split()
        assert started
        assert all(ended(int(number)) for number in started)
    if name == "gone":
        options[2] = "dp"
        assert main(monkeypatch, *options, str(tmp_path / "spare"), "--fallback", name) == 0


@pytest.mark.usefixtures("installed")
def test_the_catalogue_lists_solvers_of_others(capfd, monkeypatch):
    """They are found, listed and timed like ours; those that cannot be loaded say why, and hide none."""
    monkeypatch.setattr(supervised, "START_S", 5.0)
    assert main(monkeypatch, "solvers", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert [rows[name]["installed"] for name in ("dp", "evil-nan", "lazy", "missing")] == [True, True, True, False]
    assert (rows["lazy"]["capacities"], rows["lazy"]["floor"]) == (False, False)
    for name, said in (FAULTS | UNLOADED).items():
        assert said in rows[name]["licensed"]
        assert registry.describe_solver(name, with_licence=True).fault.startswith(f"{name}: ")
    result = solve(get_solver("lazy"), PROBLEM, Limits())
    assert (result.counts, result.solve_s > 0) == ((0,), True)
    with pytest.raises(SolverUnavailableError, match="missing: no_such_library is not installed"):
        get_solver("missing")


@pytest.mark.usefixtures("installed")
def test_who_is_isolated():
    """By default what others have registered; always also what calls a library; objects of one's own if asked for."""

    class Own:
        name, exact, extra_rows, requires = "own", False, False, ()

    kinds = ("evil-nan", "cbc", "dp", Own())
    isolated = {
        how: [isinstance(isolate_solver(kind, how), SolverProxy) for kind in kinds]
        for how in ("auto", "always", "never")
    }
    assert isolated == {
        "auto": [True, False, False, False],
        "always": [True, True, False, True],
        "never": [False, False, False, False],
    }
    with pytest.raises(SolverError, match=r"^own: .*Own"):  # of a class that no other process can import
        solve(isolate_solver(Own(), "always"), PROBLEM, Limits())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("limit_s", "more_s"), [(600.0, 0.4), (0.5, 0.2)])
def test_others_are_ended_soon_after_their_limit(limit_s, more_s, monkeypatch):
    """Within half a second, however long the limit is."""
    waits = []

    def run_in_subprocess(*_, deadline, **__):
        waits.append(deadline - perf_counter())

    apart = isolate_solver("evil-nan", "auto")
    monkeypatch.setattr(supervised, "run_in_subprocess", run_in_subprocess)
    apart.solve(PROBLEM, Limits(time_s=limit_s))
    assert waits[-1] == pytest.approx(limit_s + more_s, abs=0.05)


def load_slowly(solver, *question):
    """Load a solver after longer than a time limit."""
    sleep(0.0 if question else 2.0)
    return registry._answer(solver, *question)


@pytest.mark.long
def test_starting_takes_none_of_the_time_limit(monkeypatch):
    """A process that takes long to load a solver does not end a solve before it has begun."""
    supervised.end_idle()
    monkeypatch.setattr(registry, "_answer", load_slowly)
    assert isolate_solver("cbc", "always").solve(PROBLEM, Limits(time_s=1.0)).held is Held.OPTIMAL


@pytest.mark.long
def test_decisions_are_the_same_apart():
    """CBC in a process of its own decides as it does in this one."""
    alone, apart = (run_replay(isolate=how, max_events=60, baseline=False) for how in ("never", "always"))
    assert alone.frame("allocation").equals(apart.frame("allocation"))


# --- processes ---------------------------------------------------------------------------------------------------


def call(function, *args, within_s: float = 60.0, **how):
    """What a function returns in another process."""
    return run_in_subprocess("x", function, *args, deadline=perf_counter() + within_s, **how)


def test_a_process_is_reused_and_answers() -> None:
    """What is called runs elsewhere, the same process each time, and what it raises is raised here."""
    number = call(os.getpid)
    assert number == call(os.getpid) != os.getpid()
    with pytest.raises(ValueError, match="'seven'"):
        call(int, "seven")
    assert call(os.getpid) == number


def test_what_blocks_is_ended_at_the_deadline() -> None:
    """A call that does not return is out of time; its process is gone, and another answers next."""
    blocked = call(os.getpid)
    with pytest.raises(OutOfTime):
        call(sleep, 3600.0, within_s=0.1)
    assert ended(blocked)
    assert call(os.getpid) != blocked


def test_a_process_that_only_just_starts_is_left_to() -> None:
    """Deadlines that are shorter than its start do not keep one from ever being there."""
    supervised.end_idle()
    with pytest.raises(OutOfTime):
        call(os.getpid, within_s=0.0)
    (starting,) = supervised._idle
    assert call(os.getppid) == starting.supervisor.pid


def print_and_leave() -> None:
    """Write to standard output, and end without a line's end on standard error."""
    print("not an answer", flush=True)
    os.write(2, b"one\nthe last words")
    os._exit(3)


def end_supervisor() -> None:
    """Kill whoever supervises this process, which is then ended, too."""
    os.kill(os.getppid(), signal.SIGKILL)
    sleep(60.0)


@pytest.mark.parametrize(
    ("function", "args", "how"),
    [
        (posix._exit, (3,), "ended with status 3"),
        (os.abort, (), "ended by SIGABRT"),
        (print_and_leave, (), "ended with status 3: the last words"),
        (end_supervisor, (), "ended by SIGKILL"),
    ],
)
def test_a_crash_is_an_error_that_names_the_solver(function, args, how: str) -> None:
    """It says how the process ended, with its last line; what it printed is no answer; the next call gets another."""
    number = call(os.getpid)
    with pytest.raises(SolverError, match=rf"^x: its process {how}\.$"):
        call(function, *args)
    assert ended(number)
    assert call(abs, -1) == 1


def test_one_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why, by the last line that it wrote, and leaves no file open."""
    supervised.end_idle()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "path", [])
        with pytest.raises(SolverError, match=r"x: its process ended with status 1: ModuleNotFoundError: "):
            call(abs, -1)

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BlockingIOError, match="no more processes"):
        call(abs, -1)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not supervised._idle


def test_one_that_was_killed_while_idle_is_replaced() -> None:
    """Somebody may end a process that waits; nobody notices."""
    number, supervising = call(os.getpid), call(os.getppid)
    os.kill(number, signal.SIGKILL)
    os.waitid(os.P_PID, supervising, os.WEXITED | os.WNOWAIT)
    assert call(os.getpid) != number


PARENT = """
import os, re, sys, time
from solvers.supervised import run_in_subprocess
far = time.perf_counter() + 3600.0
bound = 2**32 if sys.argv[1] == "holding" else 0
print(run_in_subprocess("x", os.getpid, deadline=far, memory_bytes=bound), flush=True)
if bound:
    # It never lets go of Python's lock.
    run_in_subprocess("x", re.match, "(a+)+$", "a" * 60 + "b", deadline=far, memory_bytes=bound)
if sys.argv[1] == "forked" and os.fork() == 0:
    time.sleep(3600.0)  # one that lives on, and must not be taken for the parent
run_in_subprocess("x", time.sleep, 3600.0, deadline=far)
"""


@pytest.mark.parametrize("how", ["alone", "forked", "holding"])
def test_it_ends_with_its_parent(how: str) -> None:
    """Kill -9 of who asked ends the process that is at work, also if a fork of the former lives on."""
    command = [sys.executable, "-c", PARENT, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        try:
            assert ended(number)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_fork_asks_a_process_of_its_own() -> None:
    """What a forked process asks does not get into the way of its parent, nor does its end."""
    code = """
import os, time
from solvers.supervised import run_in_subprocess
far = time.perf_counter() + 3600.0
mine = run_in_subprocess("x", os.getpid, deadline=far)
child = os.fork()
own = run_in_subprocess("x", os.getpid, deadline=far)
assert (own == mine) == bool(child), (own, mine, child)
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("both")
"""
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("both\n", "")


def test_a_process_keeps_its_bounds():
    """What the system enforces there is what was said."""
    limits = {
        kind: call(resource.getrlimit, getattr(resource, f"RLIMIT_{kind}"), memory_bytes=MEMORY_BYTES)
        for kind in ("AS", "FSIZE")
    }
    assert limits == {"AS": (MEMORY_BYTES,) * 2, "FSIZE": (FILE_BYTES,) * 2}
    assert call(resource.getrlimit, resource.RLIMIT_AS) == resource.getrlimit(resource.RLIMIT_AS)


def say_much() -> bool:
    """Write a quarter of what a process may write, and answer."""
    os.write(2, b"x" * (FILE_BYTES // 4))
    return True


@pytest.mark.long
def test_what_a_solver_says_is_forgotten_with_each_answer():
    """Only what it says before it dies matters: in many answers it may say more than a file may hold."""
    assert all(call(say_much, memory_bytes=MEMORY_BYTES) for _ in range(6))
