"""Runs that go wrong, and what the master makes of them; directories, time-outs and power limits."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from bftrainer.errors import OutputError, SettingsError, TuningError, TuningInputError
from bftrainer.zeus.master import Driver, MasterObserver
from bftrainer.zeus.master.script import RunSettings
from tests.zeus.master.driven import BATCH_SIZES, DATA, PYTHON, fake_job, master, only, script_job
from tests.zeus.master.fakes import Device, gpus

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
    """A run that exits non-zero has failed, costs what it reported, and its batch size is pruned."""
    code = f"{WELL}; test $ZEUS_JOB_ID != rec02+try01"
    history = master(tmp_path / "logs").run(shell(tmp_path, code), 3, [16, 32, 64], *KNOBS)
    order = [(32, True, 10.0), (16, False, 10.0), (64, True, 10.0), (32, True, 10.0)]
    assert [(each.bs, each.reached, each.energy) for each in history] == order


def test_a_crash_without_a_report_costs_its_time(tmp_path):
    """What a failed run used is not known: its time, at the highest power of all GPUs, stands for it."""
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


@pytest.mark.parametrize(("mode", "uid", "message"), [(0o777, 0, "no other user may write"), (0o700, 65534, "one of")])
def test_foreign_directories(tmp_path, mode, uid, message):
    """What others have made or may change is no place for logs, and no job is resumed there: its command would run."""
    if uid and os.geteuid():
        pytest.skip("only root can give a directory away")
    driver = start(tmp_path, "touch ran")
    for folder, use in ((driver.logdir, Driver.resume), (tmp_path / "logs", master)):
        folder.chmod(mode)
        if uid:
            os.chown(folder, uid, uid)
        with pytest.raises(OutputError, match=f"Expected a directory .*{message}"):
            use(folder)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "logs").chmod(0o1777)
    master(tmp_path / "logs")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file: Expected a directory, found a file"):
        master(tmp_path / "file")
    with pytest.raises(OutputError, match="cannot be made"):
        master(tmp_path / "file" / "more").start(fake_job(tmp_path), 1, [32], *KNOBS)


REFUSED = {
    "no batch sizes": ({"batch_sizes": []}, {}, "Batch size list for"),
    "batch size twice": ({"batch_sizes": [32, 32]}, {}, "Expected batch sizes of 1 or more, each once, got 32."),
    "default elsewhere": ({"batch_sizes": [16, 64]}, {}, "Closest: 16, 64."),
    "eta": ({"eta_knob": float("nan")}, {}, "Expected eta from 0 (time) to 1 (energy), got nan."),
    "beta": ({"beta_knob": 0.0}, {}, "Expected beta above 0 (inf: never stop early), got 0.0."),
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


def test_power_and_gpus_are_found(tmp_path):
    """Without being told, the highest power and the number are those of the GPUs that are there."""
    found = master(tmp_path / "logs", max_power_w=None, find=lambda: gpus(Device(), Device()))
    assert found.settings == RunSettings(monitor_path="/opt/zeus_monitor", max_power_w=250.0, gpus=2, grace_s=0.3)
    with pytest.raises(SettingsError, match="no GPU was found"):
        master(tmp_path / "logs", max_power_w=None, find=lambda: None)
    # To be allowed to set limits takes a GPU and permission; both are looked for before anything is made.
    for one, message in ((None, "No GPU found"), (gpus(Device(root=False)), "Insufficient Permissions")):
        with pytest.raises(SettingsError, match=message):
            master(tmp_path / "logs", set_power_limits=True, find=lambda one=one: one)
    assert list(tmp_path.iterdir()) == []


def test_power_limits_are_given_back_after_each_run(tmp_path):
    """Scripts that are killed leave their limit; the master does not. Unless told, it touches none."""
    device, limits = Device(), []

    class Script(MasterObserver):
        def launching(self, launch, progress):  # noqa: ARG002
            limits.append(device.limit_mw)

        def printed(self, piece):  # noqa: ARG002
            device.limit_mw = 100_000

    options = {"set_power_limits": True, "observers": [Script()], "find": lambda: gpus(device)}
    start(tmp_path, f"echo; {WELL}", 2, **options).drive()
    assert (limits, device.limit_mw) == ([250_000, 250_000], 250_000)
    (tmp_path / "more").mkdir()
    driver = start(tmp_path / "more", WELL, find=lambda: gpus(Device(root=False, limit_mw=123_000)))
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
