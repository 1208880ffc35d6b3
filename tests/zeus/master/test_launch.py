"""Scripts are logged, limited in time, and gone when they are over: with their children, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bftrainer.errors import OutputError, TuningInputError
from bftrainer.supervisor import descendants
from bftrainer.zeus.master.zeus_master import check_command, run_script
from tests.waiting import alive, until
from tests.zeus.master.driven import PYTHON

ROOT = Path(__file__).parents[3]
# Starts a process in a session of its own and one in the background, both deaf to SIGTERM; says who they are.
FAMILY = """\
trap '' TERM
sleep 300 & echo $!
setsid sh -c 'trap "" TERM; echo $$; touch begun; sleep 300; sleep 300' &
until [ -e begun ]; do sleep 0.01; done
"""
# Runs a script as a master does, in a process that can be killed.
LAUNCHER = """\
import os, sys
from pathlib import Path
from bftrainer.zeus.master.zeus_master import run_script
run_script(["sh", "-c", sys.argv[1]], Path("."), os.environ, Path("log"), lambda piece: None, None, 0.2)
"""


def run(folder, *command, **options):
    """Run a command; give how it ended, and what was shown."""
    shown = []
    settings = {"timeout_s": 200.0, "grace_s": 0.2} | options
    ended = run_script(command, folder, os.environ, folder / "log", shown.append, **settings)
    return ended, b"".join(shown)


def family(text):
    """The processes that the script above named."""
    found = [int(word) for word in text.split()]
    assert len(found) == 2
    return found


def gone(processes):
    """Wait for the end of processes."""
    return until(lambda: not any(map(alive, processes)))


def test_output_is_shown_and_logged(tmp_path):
    """Standard output and error, as they come, to both; what a script prints is there before it goes on."""
    ended, shown = run(tmp_path, "sh", "-c", "printf 'one\\n'; sleep 0.05; printf two >&2; pwd; exit 3")
    assert shown == b"one\ntwo" + os.fsencode(tmp_path) + b"\n"
    assert (tmp_path / "log").read_bytes() == shown
    assert (ended.status, ended.timed_out, ended.failure) == (3, False, "it exited with status 3")
    flag = tmp_path / "seen"
    code = f"printf ready; while ! test -e {flag}; do sleep 0.01; done"
    run_script(["sh", "-c", code], tmp_path, os.environ, tmp_path / "log", lambda _: flag.touch(), 20.0)
    assert flag.exists()
    # More than any pipe holds, and not a line of it.
    ended, shown = run(tmp_path, *PYTHON, "-c", "import sys; sys.stdout.write('x' * 3_000_000)")
    assert (ended.status, len(shown)) == (0, 3_000_000)


def test_what_a_script_leaves_is_ended(tmp_path):
    """Children in the background, and in sessions of their own, end with the script that started them."""
    ended, shown = run(tmp_path, "sh", "-c", FAMILY)
    assert ended.status == 0
    assert not any(map(alive, family(shown)))


@pytest.mark.long
def test_a_hanging_script_is_ended_in_time(tmp_path):
    """It is asked, then killed, with all that it started; a timed-out run has failed."""
    ended, shown = run(tmp_path, "sh", "-c", f"{FAMILY}\nsleep 300; sleep 300", timeout_s=2.0)
    assert ended.timed_out
    assert ended.failure.startswith("it ran out of time after ")
    assert ended.time_s < 100
    assert not any(map(alive, family(shown)))


@pytest.mark.long
def test_what_ended_in_time_may_leave_others_that_take_theirs(tmp_path):
    """A script that ends before its time is over is not out of time, however long those that it left resist."""
    code = "trap '' TERM; sleep 300 & exit 0"
    ended, _ = run(tmp_path, "sh", "-c", code, timeout_s=2.0, grace_s=2.5)
    assert ended.time_s > 2.4
    assert (ended.status, ended.failure) == (0, None)


@pytest.mark.long
def test_a_script_may_tidy_up(tmp_path):
    """Who ends when asked to is not killed, nor what it starts for that; its last words are logged, but not shown."""
    tidying = "sh -c 'sleep 0.2; touch tidy'; echo bye; exit 0"
    code = f'trap "{tidying}" TERM; echo hello; while :; do sleep 0.01; done'
    _, shown = run(tmp_path, "sh", "-c", code, timeout_s=2.0, grace_s=200)
    # Shells may say of their children that they were terminated.
    first, *_, last = (tmp_path / "log").read_text().splitlines()
    assert (shown, first, last) == (b"hello\n", "hello", "bye")
    assert (tmp_path / "tidy").exists()


@pytest.mark.parametrize(
    ("code", "timeout_s", "failure"),
    [
        ("kill -9 $$", 200.0, "it ended by signal 9"),
        ("sleep 0.1", 30 * 86400.0, None),  # weeks: more milliseconds than the kernel waits at a time
        ("yes", 0.2, "it ran out of time after "),
        ("kill -STOP $$", 0.3, "it ran out of time after "),
        # Who watches it is stopped, and goes on when the time is over; or is killed, and the script with it.
        ("kill -STOP $PPID; sleep 300; sleep 300", 0.5, "it ran out of time after "),
        ("kill -9 $PPID; sleep 300; sleep 300", 200.0, "it was killed with its supervisor"),
    ],
)
def test_how_scripts_end(tmp_path, code, timeout_s, failure):
    """A script that was stopped, or talks without end, is ended in time; a signal is named, and so is a lost watch."""
    ended, _ = run(tmp_path, "sh", "-c", code, timeout_s=timeout_s)
    assert (ended.failure or "").startswith(failure or "")
    assert (failure is None) == (ended.failure is None)


def test_a_supervisor_that_is_asked_to_end(tmp_path):
    """Whoever asks the watching process to end, as batch systems ask all, ends the script and all that it started."""
    ended, shown = run(tmp_path, "sh", "-c", f"{FAMILY}\nkill -TERM $PPID; wait")
    assert ended.failure == "it ended by signal 9"
    assert not any(map(alive, family(shown)))


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda signum: signum.name)
def test_nothing_survives_the_master(tmp_path, signum):
    """However the process that launched a script is killed, the script ends with all that it started."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    script = f"{FAMILY} wait"
    master = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, script], cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL
    )
    log = tmp_path / "log"
    while not log.exists() or len(log.read_text().split()) < 2:
        assert master.poll() is None
        time.sleep(0.01)
    started = descendants(master.pid)
    master.send_signal(signum)
    assert master.wait() != 0
    # The supervisor, the shell, and its children.
    assert len(started) >= 4
    assert gone([*started, *family(log.read_text())])


def test_an_exception_ends_the_script(tmp_path):
    """If what shows the output fails, nothing is left either."""
    seen = []

    def show(piece):
        seen.append(piece)
        if len(b"".join(seen).split()) == 2:
            raise ValueError("no terminal")

    with pytest.raises(ValueError, match="no terminal"):
        run_script(["sh", "-c", f"{FAMILY} wait"], tmp_path, os.environ, tmp_path / "log", show, None, 0.1)
    assert not any(map(alive, family(b"".join(seen))))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_ends_the_script(tmp_path):
    """Output that cannot be logged is an error that names the log."""
    for log in (Path("/dev/full"), tmp_path / "none" / "log"):
        with pytest.raises(OutputError, match=f"{log}: cannot be written"):
            run_script(["yes"], tmp_path, os.environ, log, lambda _: None)


def test_commands_that_cannot_be_run(tmp_path):
    """No directory, no program, no permission, or a program that is none: one line each, and no descriptor is left."""
    before = len(os.listdir("/proc/self/fd"))
    script = tmp_path / "script"
    script.write_text("no program")
    for command, workdir, message in (
        (["true"], tmp_path / "none", "none: No such directory to run the command in."),
        (["pyhton"], tmp_path, "got 'pyhton'."),
        (["./script"], tmp_path, "got './script'."),
        ([], tmp_path, "Expected a command, got an empty one."),
    ):
        with pytest.raises(TuningInputError, match=message):
            check_command(command, workdir, os.environ)
    script.chmod(0o755)
    check_command(["./script"], tmp_path, os.environ)
    for command, message in ((["./script"], "Exec format error"), (["true", "\0"], "")):
        with pytest.raises(TuningInputError, match=rf"cannot be run: .*{message}"):
            run(tmp_path, *command)
    run(tmp_path, "true")
    assert len(os.listdir("/proc/self/fd")) == before
