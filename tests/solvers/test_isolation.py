"""Solvers of other packages that hang, crash, exit, lie or take all memory: what becomes of the run."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from bftrainer import plugins, run_replay
from bftrainer.cli._shared.group import cli, guarded
from bftrainer.errors import SolverError
from solvers import (
    AllocationProblem,
    Held,
    Limits,
    TaskOptions,
    registry,
    supervised,
)
from solvers.registry import MEMORY_BYTES, Isolated, isolate_solver, solve
from solvers.supervised import FILE_BYTES, run_in_subprocess
from tests.solvers.evil import WAYS

SAID = {
    "hang": "no answer within its time limit of 0.5 s; its process was ended",
    "crash": "its process ended by SIGSEGV",
    "exit-0": "its process ended with status 0",
    "exit-3": "its process ended with status 3",
    "raise": "TwoArguments",
    "counts": "answered with an allocation that is not feasible",
    "nan": "answered with an allocation that is not feasible",
    "memory": "needs more than 4 GiB of memory",
    "fork": "no answer within its time limit of 0.5 s; its process was ended",
    "leave": "no answer within its time limit of 0.5 s; its process was ended",
    "flood": "OSError|its process ended by SIGXFSZ",
}
ONE = TaskOptions(np.arange(3), np.array([0.0, 1.0, 3.0]), maximum=2)
PROBLEM = AllocationProblem((ONE,), 2)


@pytest.fixture(name="installed")
def _installed(tmp_path, monkeypatch):
    """The package of evil solvers, installed; where it says which processes it has started."""
    place = tmp_path / "site"
    info = place / "bft_evil-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bft_evil\nVersion: 1.0\n")
    names = "\n".join(f"evil-{way} = bft_evil:way_{way.replace('-', '_')}" for way in WAYS)
    names += "\nevil-unmade = bft_evil:Unmade\nevil-slow = bft_evil:Slow\nevil-probed = bft_evil:Probed"
    names += "\nevil-vast = bft_evil:Vast"
    names += "\nevil-unread = bft_unread:Solver"
    (place / "bft_unread.py").write_text("import os\nos._exit(0)\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{names}\n")
    shutil.copy(Path(__file__).with_name("evil.py"), place / "bft_evil.py")
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("EVIL_CHILDREN", str(tmp_path / "children"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    caches = (plugins.entries_of, registry.solver_class, registry.declaration)
    for each in caches:
        each.cache_clear()
    supervised.end_idle()  # processes that look for modules elsewhere
    yield tmp_path / "children"
    for each in caches:
        each.cache_clear()
    supervised.end_idle()


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit status of a command."""
    monkeypatch.setattr("sys.argv", ["bftrainer", *arguments])
    return guarded(cli, "bftrainer")


def ended(number: int) -> bool:
    """Whether a process ends within a minute."""
    try:
        follower = os.pidfd_open(number)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([follower], [], [], 60.0)[0])
    finally:
        os.close(follower)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_run_outlives_its_solver(way, installed, tmp_path, capfd, monkeypatch):
    """Without a fallback: one line, status 1, with one: the fallback's results."""
    limit_s = 0.5 if "time limit" in SAID[way] else 60.0
    options = ["replay", "--solver", f"evil-{way}", "-optTL", str(limit_s), "--max-events", "3", "--no-baseline"]
    assert main(monkeypatch, *options, "--output-dir", str(tmp_path / "alone")) == 1
    (said,) = capfd.readouterr().err.splitlines()
    assert re.search(SAID[way], said)
    assert said.startswith(f"Error: evil-{way}: ")
    assert not (tmp_path / "alone").exists()
    assert main(monkeypatch, *options, "--fallback", "dp", "--output-dir", str(tmp_path / "rescued")) == 0
    assert set(json.loads((tmp_path / "rescued" / "summary.json").read_text())["solvers"]) == {"dp"}
    supervised.end_idle()
    if way in ("fork", "leave"):
        started = installed.read_text().split()
        assert started
        assert all(ended(int(number)) for number in started)


@pytest.fixture
def hasty(monkeypatch):
    """Other packages have two seconds to be loaded."""
    monkeypatch.setattr(supervised, "START_S", 2.0)


@pytest.mark.long
@pytest.mark.usefixtures("installed", "hasty")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("evil-unmade", "its process ended with status 0, while it was loaded"),
        ("evil-unread", "its process ended with status 0, while it was loaded"),
        ("evil-vast", "needs more than 4 GiB of memory, while it was loaded"),
        ("evil-slow", "no answer within 2 s; its process was ended, while it was loaded"),
    ],
)
def test_a_run_outlives_a_solver_that_cannot_be_loaded(name, words, tmp_path, capfd, monkeypatch):
    """One that ends or hangs while it is imported or made is refused in a line, or its fallback answers."""
    options = ["replay", "--solver", name, "--max-events", "3", "--no-baseline"]
    assert main(monkeypatch, *options, "--output-dir", str(tmp_path / "alone")) == 2
    assert capfd.readouterr().err == f"Error: {name}: {words}.\n"
    assert not (tmp_path / "alone").exists()
    assert main(monkeypatch, *options, "--fallback", "dp", "--output-dir", str(tmp_path / "rescued")) == 0
    assert set(json.loads((tmp_path / "rescued" / "summary.json").read_text())["solvers"]) == {"dp"}
    capfd.readouterr()
    options[2] = "dp"
    assert main(monkeypatch, *options, "--fallback", name, "--output-dir", str(tmp_path / "spare")) == 0


def say_much(_solver):
    """Write a quarter of what a process may write, and answer."""
    os.write(2, b"x" * (FILE_BYTES // 4))
    return True


@pytest.mark.long
def test_what_a_solver_says_is_forgotten_with_each_answer():
    """Only what it says before it dies matters: in many answers it may say more than a file may hold."""
    for _ in range(6):
        assert run_in_subprocess(
            "chatty", say_much, None, deadline=time.perf_counter() + 60.0, memory_bytes=MEMORY_BYTES
        )


@pytest.mark.usefixtures("installed", "hasty")
def test_the_list_of_solvers_outlives_them(capfd, monkeypatch):
    """Those that cannot be loaded say why in the list, beside the others."""
    assert main(monkeypatch, "solvers", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert rows["dp"]["installed"]
    assert rows["evil-nan"]["installed"]
    for name in ("evil-unmade", "evil-unread", "evil-slow", "evil-probed"):
        assert "its process" in rows[name]["licensed"]
    assert "memory" in rows["evil-vast"]["licensed"]


@pytest.mark.usefixtures("installed")
def test_who_is_isolated():
    """By default what others have registered; always also what calls a library; objects of one's own if asked for."""

    class Own:
        name, exact, extra_rows, requires = "own", False, False, ()

    def leaves(solver, isolate):
        return isinstance(isolate_solver(solver, isolate), Isolated)

    kinds = ("evil-nan", "cbc", "dp", Own())
    assert [leaves(kind, "auto") for kind in kinds] == [True, False, False, False]
    assert [leaves(kind, "always") for kind in kinds] == [True, True, False, True]
    assert not any(leaves(kind, "never") for kind in kinds)


def test_what_cannot_be_sent_is_an_error():
    """An object of a class that no other process can import fails in one line."""

    class Own:
        name, exact, extra_rows, requires = "own", False, False, ()

    with pytest.raises(SolverError, match=r"^own: .*Own"):
        solve(isolate_solver(Own(), "always"), PROBLEM, Limits())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("limit_s", "more_s"), [(600.0, 0.4), (0.5, 0.2)])
def test_others_are_ended_soon_after_their_limit(limit_s, more_s, monkeypatch):
    """Within half a second, however long the limit is."""
    waits = []

    def run_in_subprocess(*_, deadline, **__):
        waits.append(deadline - time.perf_counter())

    apart = Isolated("evil-nan")
    monkeypatch.setattr(supervised, "run_in_subprocess", run_in_subprocess)
    apart.solve(PROBLEM, Limits(time_s=limit_s))
    assert waits[-1] == pytest.approx(limit_s + more_s, abs=0.05)


@pytest.mark.long
def test_starting_takes_none_of_the_time_limit(monkeypatch):
    """A process that takes long to load a solver does not end a solve before it has begun."""
    supervised.end_idle()
    monkeypatch.setattr(registry, "_load", load_slowly)
    for name in ("cbc", "highs"):
        apart = Isolated(name)
        known = [apart.solve(PROBLEM, Limits(time_s=1.0)).held for _ in range(2)]
        assert known == [Held.OPTIMAL] * 2


def load_slowly(solver):
    """Load a solver after longer than a time limit."""
    time.sleep(2.0)
    registry._load(solver)


@pytest.mark.long
def test_decisions_are_the_same_apart():
    """CBC in a process of its own decides as it does in this one."""
    alone, apart = (run_replay(isolate=how, max_events=60, baseline=False) for how in ("never", "always"))
    assert alone.frame("allocation").equals(apart.frame("allocation"))


def test_a_process_keeps_its_bounds():
    """What the system enforces there is what was said."""
    import resource

    def limits(which):
        return supervised.run_in_subprocess("x", resource.getrlimit, which, deadline=np.inf, memory_bytes=MEMORY_BYTES)

    assert limits(resource.RLIMIT_AS) == (MEMORY_BYTES,) * 2
    assert limits(resource.RLIMIT_FSIZE) == (FILE_BYTES,) * 2
    unbounded = supervised.run_in_subprocess("x", resource.getrlimit, resource.RLIMIT_AS, deadline=np.inf)
    assert unbounded == resource.getrlimit(resource.RLIMIT_AS)
