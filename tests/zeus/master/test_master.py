"""Runs that go wrong, and what the master makes of them; scripts are logged, limited in time, and gone when over."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bftrainer.errors import OutputError, SettingsError, TuningError, TuningInputError
from bftrainer.supervisor import descendants
from bftrainer.zeus.master import Driver, MasterObserver
from bftrainer.zeus.master.script import RunSettings
from bftrainer.zeus.master.zeus_master import check_command, run_script
from tests.waiting import alive, until
from tests.zeus.master.driven import BATCH_SIZES, DATA, PYTHON, Device, fake_job, master, only, plug, script_job

# Reports 10 J, or what $n says, in 1 s.
WELL = (
    'echo "{\\"energy\\": ${n-10}, \\"time\\": 1, \\"reached\\": true}" >"$ZEUS_LOG_DIR/$ZEUS_JOB_ID+bs$0.train.json"'
)
KNOBS = (2.0, 0.5)


def shell(folder, code, **changes):
    """A job that runs a piece of shell, with the batch size as $0."""
    return script_job(folder, ["sh", "-c", code, "{bs}"], **changes)


def start(folder, code, recurrences=1, **options):
    """The driver of a job that runs a piece of shell."""
    return master(folder / "logs", **options).start(shell(folder, code), recurrences, [32], *KNOBS)


def test_a_crash_in_a_later_recurrence_is_a_failed_try(tmp_path):
    """A run that exits non-zero has failed and is pruned; it costs what it reported, else its time at full power."""
    code = f"{WELL}; test $ZEUS_JOB_ID != rec02+try01"
    history = master(tmp_path / "logs").run(shell(tmp_path, code), 3, [16, 32, 64], *KNOBS)
    order = [(32, True, 10.0), (16, False, 10.0), (64, True, 10.0), (32, True, 10.0)]
    assert [(each.bs, each.reached, each.energy) for each in history] == order
    code = f"test $ZEUS_JOB_ID = rec02+try01 && exit 1; {WELL}"
    crashed = master(tmp_path / "logs", gpus=2).run(shell(tmp_path, code), 2, [16, 32], *KNOBS)[1]
    assert not crashed.reached
    assert crashed.energy == 500.0 * crashed.time > 0


def test_a_hanging_script_is_a_failed_try(tmp_path):
    """A run that does not end in time is ended; in the first recurrence that is the end of the job."""
    with pytest.raises(TuningError, match=r"32 did not converge \(it ran out of time after \d+ s\)"):
        start(tmp_path, "sleep 300", 2, timeout_s=0.3).drive()


def test_reports_that_are_none(tmp_path):
    """A stale report is removed before a launch; what cannot be removed is named before the script starts."""
    driver = start(tmp_path, "touch ran")
    report = driver.logdir / "rec01+try01+bs32.train.json"
    report.mkdir()
    with pytest.raises(OutputError, match=r"rec01\+try01\+bs32.train.json: cannot be removed"):
        driver.drive()
    assert not (tmp_path / "ran").exists()
    report.rmdir()
    report.write_text('{"energy": 1, "time": 1, "reached": true}')
    with pytest.raises(TuningError, match=r"rec01\+try01\+bs32.train.json does not exist"):
        driver.drive()
    # The server's rule holds for reports of scripts: energy stays below what the power limit allows.
    with pytest.raises(TuningError, match=r"json: energy: Expected at most 275 J in 1 s at 250 W, got 276"):
        start(tmp_path, f"n=276; {WELL}").drive()


def test_garbage_ends_the_job_until_it_is_mended(tmp_path):
    """A report that cannot be booked is an error, and no try: once the script is mended, the same run is made again."""
    flag = tmp_path / "mended"
    driver = start(tmp_path, f"n=NaN; test -e {flag} && n=10; {WELL}")
    with pytest.raises(TuningError, match="energy: Input should be"):
        driver.drive()
    flag.touch()
    assert [each.energy for each in Driver.resume(driver.logdir).drive()] == [10.0]


def test_output_goes_to_observers(tmp_path):
    """Observers see the start, each launch, what the script prints, and each run's end."""
    seen = []

    class Watching(MasterObserver):
        def started(self, logdir, progress):
            seen.append(("started", logdir.parent.name, progress.recurrence))

        def launching(self, launch, progress):  # noqa: ARG002
            seen.append(("launching", launch.job_id, launch.cost_bound_j))

        def printed(self, piece):
            seen.append(("printed", piece))

        def booked(self, booked, progress):
            seen.append(("booked", booked.cost_j, progress.recurrence))

    start(tmp_path, f"printf hello; {WELL}", observers=[Watching()]).drive()
    assert seen == [
        ("started", "logs", 1),
        ("launching", "rec01+try01", None),
        ("printed", b"hello"),
        ("booked", 0.5 * 10 + 0.5 * 250 * 1, 2),
    ]


def test_one_run(tmp_path):
    """`run_job` launches the script once, as it is told, and gives energy, time and verdict."""
    zeus_master = master(tmp_path / "logs")
    job = fake_job(tmp_path)
    logdir = zeus_master.build_logdir(job, 3, 0.5, 2.0)
    energy, time, reached = zeus_master.run_job(job, 16, 0.05, 7, logdir, 2, 3, 0.5, 1.0)
    assert (energy / time, reached) == (pytest.approx(250), False)
    log = (only(tmp_path / "logs") / "rec02+try03.train.log").read_text()
    assert '["16", "0.05", "7", "7", "ok"]' in log
    assert '"ZEUS_COST_THRESH": "1.0"' in log


def test_directories_are_named_after_what_is_run(tmp_path, monkeypatch):
    """Job, recurrences, knobs and the second, one directory below the base, whatever the data set is called."""
    zeus_master, job = master(tmp_path / "logs"), fake_job(tmp_path)
    name = zeus_master.build_logdir(job, 3, 0.5, 2.0).rpartition("/")[2]
    assert re.fullmatch(r"d\+n\+bs32\+adam\+lr0\.1\+tm0\.5\+me7\+x3\+eta0\.5\+beta2\.0\+\d{14}", name)
    assert len({zeus_master.start(job, 3, BATCH_SIZES, *KNOBS).logdir for _ in range(3)}) == 3
    for dataset in ("../../d", "a\0b", "a\nb"):
        odd = type(job)(**job.to_dict() | {"dataset": dataset})
        made = Path(zeus_master.start(odd, 1, [32], *KNOBS).logdir)
        assert made.resolve().parent == tmp_path / "logs"
        assert made.name.isprintable()
    # `exist_ok` decides whether a directory of the same second is taken.
    monkeypatch.setattr("time.strftime", lambda form: "20230417000000")  # noqa: ARG005
    first = zeus_master.build_logdir(job, 3, 0.5, 2.0, exist_ok=False)
    assert zeus_master.build_logdir(job, 3, 0.5, 2.0) == first
    with pytest.raises(OutputError, match="Directory exists"):
        zeus_master.build_logdir(job, 3, 0.5, 2.0, exist_ok=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        master(tmp_path / "file").start(job, 1, [32], *KNOBS)


@pytest.mark.parametrize(("mode", "uid"), [(0o777, 0), (0o700, 65534), (0o1777, 0), (0o1755, 65534)])
def test_foreign_directories(tmp_path, mode, uid):
    """What others have made or may change is no place for logs, and no job is resumed there: its command would run."""
    if uid and os.geteuid():
        pytest.skip("only root can give a directory away")
    driver = start(tmp_path, "touch ran")
    for folder, use in ((driver.logdir, Driver.resume), (tmp_path / "logs", master)):
        folder.chmod(mode)
        if uid:
            os.chown(folder, uid, uid)
        if use is master and mode & 0o1000:  # like /tmp
            use(folder)
            continue
        with pytest.raises(OutputError, match="Expected a directory of this user's that no other user may write to"):
            use(folder)
    assert not (tmp_path / "ran").exists()


REFUSED = {
    "no batch sizes": ({"batch_sizes": []}, {}, "Batch size list for"),
    "batch size twice": ({"batch_sizes": [32, 32]}, {}, "Expected batch sizes of 1 or more, each once, got 32."),
    "default elsewhere": ({"batch_sizes": [16, 64]}, {}, "Closest: 16, 64."),
    "eta": ({"eta_knob": float("nan")}, {}, "Expected eta from 0 (time) to 1 (energy), got nan."),
    "recurrences": ({"num_recurrence": -1}, {}, "Expected 0 or more recurrences, got -1."),
    "timeout": ({}, {"timeout_s": 0.0}, "timeout_s: Input should be greater than 0, got 0.0"),
    "measure": ({}, {"measure": "modle"}, "measure: Input should be 'auto', 'nvml', 'zeus' or 'model', got 'modle'"),
    "seed": ({}, {"seed": -1}, "Expected a seed of 0 or more, got -1"),
}


@pytest.mark.parametrize(("changes", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(tmp_path, changes, options, message):
    """Before anything is made."""
    arguments = {"num_recurrence": 1, "batch_sizes": [32], "beta_knob": 2.0, "eta_knob": 0.5} | changes
    with pytest.raises(TuningInputError, match=re.escape(message)):
        master(tmp_path / "logs", **options).run(fake_job(tmp_path), **arguments)
    assert not (tmp_path / "logs").exists()


def test_placeholders(tmp_path):
    """Those that nothing replaces are refused before anything is made; braces that are text reach the script."""
    for piece, message in (
        ("--seed={sede}", "Unknown placeholder {sede} in the command. Did you mean 'seed'?"),
        ("--x={bs}", "Expected {bs} as an argument of its own, got '--x={bs}'."),
    ):
        job = script_job(tmp_path, ["true", piece])
        with pytest.raises(TuningInputError, match=re.escape(message)):
            master(tmp_path / "logs").run(job, 1, [32], *KNOBS)
        with pytest.raises(TuningInputError):
            master(tmp_path / "logs").run_job(job, 32, 0.1, 1, str(tmp_path / "logs"), 1, 1, 0.5, 1.0)
    assert not (tmp_path / "logs").exists()
    job = script_job(tmp_path, ["{{bs}}", "${HOME}", "{print $1}", "{}", "{1,2}", '{"a": 1}', "{bs}"])
    job.check_placeholders()
    assert job.gen_command(8, 0.1, 1, 1) == ["{bs}", "${HOME}", "{print $1}", "{}", "{1,2}", '{"a": 1}', "8"]


def test_power_and_gpus_are_found(tmp_path, monkeypatch):
    """Without being told, the highest power and the number are those of the GPUs that are there."""
    # To be allowed to set limits takes a GPU and permission; both are looked for before anything is made.
    for devices, options, message in (
        ([], {"set_power_limits": True}, "No GPU found|extra gpu"),
        ([Device(root=False)], {"set_power_limits": True}, "Insufficient Permissions"),
    ):
        plug(monkeypatch, *devices)
        with pytest.raises(SettingsError, match=message):
            master(tmp_path / "logs", **options)
    plug(monkeypatch, Device(), Device())
    settings = master(tmp_path / "logs", max_power_w=None).settings
    assert settings == RunSettings(monitor_path="/opt/zeus_monitor", max_power_w=250.0, gpus=2, grace_s=0.3)
    assert list(tmp_path.iterdir()) == []


def test_power_limits_are_given_back_after_each_run(tmp_path, monkeypatch):
    """Scripts that are killed leave their limit; the master does not. Unless told, it touches none."""
    device, limits = Device(), []

    class Script(MasterObserver):
        def launching(self, launch, progress):  # noqa: ARG002
            limits.append(device.limit_mw)

        def printed(self, piece):  # noqa: ARG002
            device.limit_mw = 100_000

    plug(monkeypatch, device)
    start(tmp_path, f"echo; {WELL}", 2, set_power_limits=True, observers=[Script()]).drive()
    assert (limits, device.limit_mw) == ([250_000, 250_000], 250_000)
    plug(monkeypatch, Device(root=False, limit_mw=123_000))
    driver = start(tmp_path, WELL)
    driver.drive()
    assert not (driver.logdir / "power-limits.json").exists()


def test_relative_paths_are_those_of_the_start(tmp_path, monkeypatch):
    """Wherever a job is resumed from, and however its directory is then called, it runs where it was started."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    driver = master(tmp_path / "logs").start(shell("work", WELL), 1, [32], *KNOBS)
    monkeypatch.chdir(tmp_path / "logs")
    assert len(Driver.resume(driver.logdir.relative_to(tmp_path / "logs")).drive()) == 1
    zeus_master = master(tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    assert zeus_master.run_job(shell("work", WELL), 32, 0.1, 1, "logs", 1, 1, 0.5, 1.0) == (10.0, 1.0, True)


def test_scripts_run_where_they_should(tmp_path):
    """A relative program is looked for in the job's directory, whatever characters the paths have."""
    folder = tmp_path / "a job's directory"
    folder.mkdir()
    script = shutil.copy(DATA / "fake_train.py", folder / "the script.py")
    (folder / "train").write_text(f'#!/bin/sh\nexec {shlex.join((*PYTHON, str(script)))} "$@"\n')
    (folder / "train").chmod(0o755)
    job = script_job(folder, ["./train", "{bs}", "{lr}", "{seed}", "{epochs}", "ok"])
    assert len(master(folder / "logs").run(job, 1, [32], *KNOBS)) == 1


# --- scripts: all that they start is gone when they are over, whoever is killed ---------------------------------------


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
        (FAMILY, 200.0, None),
        (f"{FAMILY}\nsleep 300; sleep 300", 2.0, "it ran out of time after "),
        # Batch systems ask all to end, who watches it too.
        (f"{FAMILY}\nkill -TERM $PPID; wait", 200.0, "it ended by signal 9"),
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
    """A script that was stopped, or talks without end, is ended in time, with all that it started, asked or not.

    A signal is named, and so is a lost watch.
    """
    ended, shown = run(tmp_path, "sh", "-c", code, timeout_s=timeout_s)
    assert (ended.failure or "").startswith(failure or "")
    assert (failure is None) == (ended.failure is None)
    assert FAMILY not in code or not any(map(alive, family(shown)))


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
    until(lambda: not any(map(alive, [*started, *family(log.read_text())])))


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
    """Output that cannot be logged is an error that names the log; the script still has its time to print and save."""
    for log in (Path("/dev/full"), tmp_path / "none" / "log"):
        with pytest.raises(OutputError, match=f"{log}: cannot be written"):
            run_script(["yes"], tmp_path, os.environ, log, lambda _: None)
    # More than a pipe holds, then more output: SIGPIPE would end the script if nobody read.
    saves = "trap 'seq 99999; echo saving; echo 1 > saved; exit' TERM; echo; while :; do sleep 0.01; done"
    with pytest.raises(OutputError, match="cannot be written"):
        run_script(["sh", "-c", saves], tmp_path, os.environ, Path("/dev/full"), lambda _: None)
    assert (tmp_path / "saved").exists()


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
