"""Commands as processes: at a signal one line, the status of shells, nothing half done; full disks, closed streams."""

import os
import resource
import signal
import subprocess
from itertools import cycle

import pytest

from bftrainer.cli.terminal import SAID, Signalled, endable, interruptible
from bftrainer.errors import SolverError
from tests.cli.conftest import check_refusal
from tests.tiny import RESULTS, contents, installed, spawn
from tests.waiting import until

ENDED_BY = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
INPUT = "waited.csv"
# In a process with this hook the first one to open the input waits for a signal.
HOOK = f"""
import os, sys, time


def wait(event, args):
    if event == "open" and str(args[0]).endswith("{INPUT}") and not os.path.exists(os.environ["BEGUN"]):
        open(os.environ["BEGUN"], "w").close()
        while True:  # a signal that comes just before a single wait would not end it
            time.sleep(0.1)


sys.addaudithook(wait)
"""
# Commands, {0} in the place of that input.
COMMANDS = {
    "advise": "advise -ndmap {0} -bdfn tasks.toml",
    "convert": "convert {0} out.parquet",
    "forecast": "forecast -ndmap {0} -bdfn tasks.toml --deadline 1h",
    "import": "import --format slurm {0} -o out.parquet",
    "replay": "replay -ndmap {0} -bdfn tasks.toml",
    "spot": "spot simulate --trace {0}",
    "sweep": "sweep {0} -o out",
    "trace edit": "trace edit {0} -o out.parquet --start 1970-01-01",
    "trace stats": "trace stats {0}",
    "zeus": "zeus simulate --jobs {0}",
}


@pytest.fixture
def begun(here, tmp_path):
    """Start a command; give it when it has opened its input."""
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    (here / INPUT).write_text("x\n")
    mark = tmp_path / "begun"

    def start(*words):
        process = subprocess.Popen(
            words,
            cwd=here,
            env=os.environ | {"PYTHONPATH": str(tmp_path), "BEGUN": str(mark)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: mark.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    return start


@pytest.mark.long
@pytest.mark.no_cover
@pytest.mark.parametrize(("command", "signum"), [*zip(COMMANDS, cycle(ENDED_BY), strict=False)])
def test_signals(here, begun, command, signum):
    """One line that says what happened, 128 and the signal as the status, and nothing left behind."""
    before = contents(here)
    process = begun(installed("bftrainer"), *COMMANDS[command].format(INPUT).split())
    process.send_signal(signum)
    out, err = process.communicate()
    assert (process.returncode, out, err.strip()) == (128 + signum, "", SAID[signum])
    assert contents(here) == before


@pytest.mark.long
@pytest.mark.parametrize("words", ["solvers", "--help"])
def test_a_reader_that_has_gone(here, words):
    """Without a reader of its output a command ends in silence, with the status that a shell has for that."""
    reader, writer = os.pipe()
    os.close(reader)
    done = spawn("bftrainer", *words.split(), cwd=here, stdout=writer)
    os.close(writer)
    assert (done.status, done.err) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("signum", ENDED_BY, ids=lambda signum: signum.name)
def test_the_second_signal_ends_at_once(signum):
    """Where the first signal is kept for later, the second one is not; afterwards signals do what they did before."""
    before = signal.getsignal(signum)
    with endable(), interruptible() as received:
        signal.raise_signal(signum)
        assert received == [signum]
        with pytest.raises(Signalled) as raised:
            signal.raise_signal(signal.SIGTERM)
    assert raised.value.number == signal.SIGTERM
    assert signal.getsignal(signum) is before


def test_a_signal_while_a_solver_does_not_answer(replay, monkeypatch):
    """The status is that of the signal, not that of the solver."""

    def unanswered(*_, **__):
        """Fail as a solver does that hung when the signal came."""
        signal.raise_signal(signal.SIGTERM)
        raise SolverError("x: no answer within its time limit.")

    monkeypatch.setattr("bftrainer.runs.run_replay", unanswered)
    done = replay("--output-dir", "my results")
    assert done.status == 128 + signal.SIGTERM
    assert done.err.splitlines()[-1] == "Terminated."


# --- streams and disks


@pytest.mark.long
@pytest.mark.no_cover
def test_disk_full(here):
    """When the disk fills while results are written, an earlier result stays intact and no litter remains."""
    words = ("-ndmap", "evt.pkl", "-bdfn", "Jbnd.pkl", "-scfn", "JNPs.pkl", "--solver", "dp")
    assert spawn("bftrainer-replay", *words, cwd=here).status == 0
    before = contents(here)
    assert {path.name for path in (here / "debug-itrOut").iterdir()} == RESULTS

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    for directory in ("debug-itrOut", "new/results"):
        done = spawn("bftrainer-replay", *words, "--force", "--output-dir", directory, cwd=here, preexec_fn=fill)
        check_refusal(done, status=1)
        assert done.err.startswith(f"Error: {directory}: ")
        assert contents(here) == before


@pytest.mark.long
def test_stdout_full(here):
    """A full disk behind standard output is one line, and the results stand."""
    with open("/dev/full", "w") as full:
        done = spawn("bftrainer-replay", "--solver", "dp", "--max-events", 5, cwd=here, stdout=full)
    check_refusal(done, status=1)
    assert {path.name for path in (here / "sample-1-itrOut").iterdir()} == RESULTS


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_closed_streams(here, number):
    """Without standard output or error there is nothing to complain about: the results stand, and hold no prints."""
    words = ("--solver", "dp", "--max-events", 5, "--no-baseline")
    done = spawn("bftrainer-replay", *words, cwd=here, preexec_fn=lambda: os.close(number))
    assert (done.status, "Traceback" in done.err) == (0, False)
    results = here / "sample-1-itrOut"
    assert {path.name for path in results.iterdir()} == RESULTS
    assert (results / "step-logs.csv").read_text().count("\n") == 6


@pytest.mark.long
@pytest.mark.parametrize(("name", "encoding"), [("ergebnis-ü", "ascii"), (os.fsdecode(b"\xff"), "utf-8")])
def test_names_that_cannot_be_printed(here, name, encoding):
    """A name that standard output cannot spell, or that is no text at all, is printed by its codes."""
    (here / "evt.pkl").rename(here / f"{name}.pkl")
    env = {"PYTHONIOENCODING": encoding}
    done = spawn("bftrainer", "convert", f"{name}.pkl", f"{name}.parquet", cwd=here, env=env)
    assert (done.status, done.err) == (0, "")
    words = ("-bdfn", "tasks.toml", "--solver", "dp", "--no-baseline", "--output-dir", name)
    done = spawn("bftrainer-replay", "-ndmap", f"{name}.parquet", *words, cwd=here, env=env)
    assert (done.status, done.err) == (0, "")
    shown = name.encode("ascii", "backslashreplace").decode()
    assert done.out.endswith(f"Results: {shown}\n")
    assert {path.name for path in (here / name).iterdir()} == RESULTS
