"""Runs in a process of their own: they answer, end when they must, and end with whoever asked."""

from __future__ import annotations

import os
import posix
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import perf_counter, sleep

import pytest

from bftrainer.errors import SolverError
from solvers import supervised
from solvers.problem import OutOfTime
from solvers.supervised import run_in_subprocess


def later(seconds: float = 60.0) -> float:
    """A deadline that no test here comes to, unless it means to."""
    return perf_counter() + seconds


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


def test_a_process_is_kept_and_answers() -> None:
    """What is called runs elsewhere, the same process each time, and what it raises is raised here."""
    first, again = (run_in_subprocess("x", os.getpid, deadline=later()) for _ in range(2))
    assert first == again != os.getpid()
    with pytest.raises(ValueError, match="'seven'"):
        run_in_subprocess("x", int, "seven", deadline=later())
    assert run_in_subprocess("x", os.getpid, deadline=later()) == first


def test_what_blocks_is_ended_at_the_deadline() -> None:
    """A call that does not return is out of time; its process is gone, and another answers next."""
    blocked = run_in_subprocess("x", os.getpid, deadline=later())
    with pytest.raises(OutOfTime):
        run_in_subprocess("x", sleep, 3600.0, deadline=later(0.1))
    assert ended(blocked)
    assert run_in_subprocess("x", os.getpid, deadline=later()) != blocked


def test_a_process_that_only_just_starts_is_left_to() -> None:
    """Deadlines that are shorter than its start do not keep one from ever being there."""
    supervised.end_idle()
    with pytest.raises(OutOfTime):
        run_in_subprocess("x", os.getpid, deadline=perf_counter())
    (starting,) = supervised._idle
    assert run_in_subprocess("x", os.getppid, deadline=later()) == starting.supervisor.pid


@pytest.mark.parametrize(
    ("call", "given", "how"), [(posix._exit, (3,), "ended with status 3"), (os.abort, (), "ended by SIGABRT")]
)
def test_a_crash_is_an_error_that_names_the_solver(call: object, given: tuple[int, ...], how: str) -> None:
    """A process that ends by itself is an error that says how, and the next call gets another one."""
    with pytest.raises(SolverError, match=f"odd: its process {how}"):
        run_in_subprocess("odd", call, *given, deadline=later())
    assert run_in_subprocess("odd", abs, -1, deadline=later()) == 1


def test_what_a_process_said_at_last_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot even start says why, by the last line that it wrote."""
    supervised.end_idle()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(SolverError, match=r"odd: its process ended with status 1: ModuleNotFoundError: "):
        run_in_subprocess("odd", abs, -1, deadline=later())


def test_one_that_was_killed_while_idle_is_replaced() -> None:
    """Somebody may end a process that waits; nobody notices."""
    number, supervising = (
        run_in_subprocess("x", os.getpid, deadline=later()),
        run_in_subprocess("x", os.getppid, deadline=later()),
    )
    os.kill(number, signal.SIGKILL)
    os.waitid(os.P_PID, supervising, os.WEXITED | os.WNOWAIT)
    assert run_in_subprocess("x", os.getpid, deadline=later()) != number


def test_threads_have_a_process_each() -> None:
    """Two that ask at once do not wait for each other; one that ends takes no other's process with it."""
    meeting = threading.Barrier(2, timeout=60.0)
    found: list[int] = []

    def ask() -> None:
        number = run_in_subprocess("x", os.getppid, deadline=later())
        child = next(each for each in supervised._idle if each.supervisor.pid == number)
        supervised._idle.remove(child)
        meeting.wait()
        supervised._idle.append(child)
        found.append(number)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 2
    assert {run_in_subprocess("x", os.getppid, deadline=later()) for _ in range(2)} <= set(found)


PARENT = """
import os, re, sys, time
from solvers.supervised import run_in_subprocess
far = time.perf_counter() + 3600.0
bound = 2**32 if sys.argv[1] == "holding" else None
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
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, how], stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
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
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("both\n", "")


@pytest.mark.long
def test_nothing_is_started_before_a_backend_is_asked() -> None:
    """Importing and listing solvers starts no process."""
    code = "from solvers import supervised; from solvers.registry import catalogue, get_solver; get_solver('cbc')"
    code += "; list(catalogue()); print(len(supervised._idle))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout == "0\n"


def test_one_that_cannot_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started, each call says so, and none leaves a file open."""
    supervised.end_idle()

    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(BlockingIOError, match="no more processes"):
            run_in_subprocess("x", abs, -1, deadline=later())
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not supervised._idle


def end_supervisor() -> None:
    """Kill whoever supervises this process, which is then ended, too."""
    os.kill(os.getppid(), signal.SIGKILL)
    sleep(60.0)


def test_a_supervisor_that_is_killed_takes_its_process_along() -> None:
    """That is an error that names the solver, and the next call is answered."""
    number = run_in_subprocess("x", os.getpid, deadline=later())
    with pytest.raises(SolverError, match=r"^x: its process ended by SIGKILL\.$"):
        run_in_subprocess("x", end_supervisor, deadline=later())
    assert ended(number)
    assert run_in_subprocess("x", os.getpid, deadline=later()) != number


def print_and_leave() -> None:
    """Write to standard output, and end without a line's end on standard error."""
    print("not an answer", flush=True)
    os.write(2, b"one\nthe last words")
    os._exit(3)


def test_what_is_printed_is_no_answer() -> None:
    """Standard output is lost; the last line of standard error is told, wherever it ends."""
    with pytest.raises(SolverError, match=r"^x: its process ended with status 3: the last words\.$"):
        run_in_subprocess("x", print_and_leave, deadline=later())
