"""A sweep's directory: resumed, replaced and taken back, without touching what is not the sweep's."""

from __future__ import annotations

import shutil

import pytest

from bftrainer.campaigns import sweep as module
from bftrainer.campaigns.sweep import local_engine, run_sweep
from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import OutputError, SettingsError
from bftrainer.files.directories import MANIFEST
from tests.tiny import contents, write_inputs

TEXT = """schema = 1
[base]
tasks = "tasks.toml"
solver = "dp"
baseline = false
max_events = 5
"""
replay = module.run_replay


def fail(*_):
    """An objective that raises."""
    raise TypeError("unhashable")


@pytest.fixture
def swept(tmp_path):
    """`swept("[grid] ...")` runs a sweep of that in the directory `out`."""
    write_inputs(tmp_path)

    def run(text, told=lambda _: None, **how):
        (tmp_path / "file.toml").write_text(TEXT + text)
        return run_sweep(read_sweep(tmp_path / "file.toml"), tmp_path / "out", local_engine(1), told, **how)

    return run


@pytest.fixture
def stopped(monkeypatch):
    """`stopped(leave)` has the next replays leave something behind, and end as by Ctrl-C."""

    def stop(leave=lambda: None):
        def end(**_):
            leave()
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "run_replay", end)

    return stop


def test_force_computes_all_anew(swept, tmp_path):
    """A sweep that replaces another holds what it would hold alone, but for times; runs it has no more are gone."""
    swept("[grid]\nTfwd = [5, 10]")
    assert [point.was_done for point in swept("[grid]\nTfwd = [10, 15]", force=True).points] == [False, False]
    anew = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    swept("[grid]\nTfwd = [10, 15]")
    alone = contents(tmp_path / "out")
    assert anew.keys() == alone.keys()
    steady = [name for name in alone if not name.endswith(("summary.json", "decisions.parquet", MANIFEST))]
    assert [anew[name] for name in steady] == [alone[name] for name in steady]


def test_a_refused_sweep_replaces_nothing(swept, tmp_path):
    """Faults are found before earlier results are deleted, and before there is a directory."""
    with pytest.raises(SettingsError, match="absent"):
        swept('[grid]\ntasks = ["tasks.toml", "absent.toml"]')
    assert not (tmp_path / "out").exists()
    swept("[grid]\nTfwd = [5, 10]")
    before = contents(tmp_path / "out")
    with pytest.raises(SettingsError, match="nope"):
        swept('[grid]\nobjective = ["nope"]', force=True)
    assert contents(tmp_path / "out") == before
    # Points that all fail, and a file that is none of a run's.
    with pytest.raises(SettingsError, match=r"Nothing was replaced, as all points failed: .*unhashable"):
        swept(f'[grid]\nobjective = ["{__name__}:fail"]', force=True)
    assert contents(tmp_path / "out") == before
    run = next(iter((tmp_path / "out" / "runs").iterdir()))
    (run / "mine").touch()
    with pytest.raises(OutputError, match=r"found mine; move it away first"):
        swept("[grid]\nTfwd = [5, 10]", force=True)
    (run / "mine").unlink()
    assert contents(tmp_path / "out") == before


def test_an_interrupted_force_is_resumed(swept, tmp_path):
    """What was computed anew before Ctrl-C is kept, and the rest computed by `resume`."""

    def interrupt(_):
        raise KeyboardInterrupt

    swept("[grid]\nTfwd = [5, 10]")
    with pytest.raises(KeyboardInterrupt):
        swept("[grid]\nTfwd = [5, 15]", interrupt, force=True)
    assert not (tmp_path / "out" / "sweep.parquet").exists()
    again = swept("[grid]\nTfwd = [5, 15]", resume=True)
    assert [point.was_done for point in again.points] == [True, False]


def test_a_sweep_without_results_is_gone_on_with(swept, stopped, tmp_path, monkeypatch):
    """It is in the way of no other, nor is what killed workers had begun; logs of jobs, which may say why, stay.

    What is left is the same as if there had been no interrupt.
    """
    swept("")
    alone = contents(tmp_path / "out").keys()
    shutil.rmtree(tmp_path / "out")
    logs = tmp_path / "out" / "job-logs"
    stopped(lambda: (logs.mkdir(), (tmp_path / "out" / "runs" / ".0123456789abcdef.new").mkdir()))
    with pytest.raises(KeyboardInterrupt):
        swept("")
    (logs / "worker-1.out").write_text("no")
    monkeypatch.setattr(module, "run_replay", replay)
    swept("")
    swept("", force=True)
    assert contents(tmp_path / "out").keys() == {*alone, "job-logs", "job-logs/worker-1.out"}


def test_killed_before_there_was_a_list(swept, tmp_path):
    """What is put in a sweep's directory first is the list of what is ours; half of that is no file of others."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "..bftrainer.bftpart").touch()
    swept("")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [".bftrainer", "runs", "sweep.parquet", "sweep.toml"]


def test_a_sweep_that_was_given_up_gets_no_more_runs(swept, tmp_path, monkeypatch):
    """A cluster's worker that goes on makes no directory anew: it would be nobody's."""

    def late(**given):
        shutil.rmtree(tmp_path / "out" / "runs")
        return replay(**given)

    monkeypatch.setattr(module, "run_replay", late)
    assert "removed meanwhile" in swept("").points[0].error
    assert not (tmp_path / "out" / "runs").exists()


def test_what_is_not_ours_stays_in_a_sweep(swept, tmp_path):
    """Files beside runs and in them, hidden ones, directories that look like runs, and runs elsewhere."""
    result = swept("[grid]\nTfwd = [5, 10]")
    runs = tmp_path / "out" / "runs"
    second = runs / result.points[1].point.key
    (second / "notes.txt").write_text("mine")
    for name in ("0123456789abcdef", ".git", ".0123456789abcdef.kept"):
        (runs / name).mkdir()
        (runs / name / "summary.json").write_text("mine")
    shutil.copytree(second, tmp_path / "elsewhere")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "tasks").symlink_to(tmp_path / "elsewhere")
    with (tmp_path / "out" / ".bftrainer").open("a") as listed:
        listed.write("tasks/notes.txt\n")
    elsewhere = contents(tmp_path / "elsewhere")
    swept("[grid]\nTfwd = [5]", force=True)
    mine = {name for name, content in contents(tmp_path / "out").items() if content == b"mine"}
    fakes = ("0123456789abcdef", ".git", ".0123456789abcdef.kept")
    assert mine == {f"runs/{second.name}/notes.txt", *(f"runs/{name}/summary.json" for name in fakes)}
    assert [path.name for path in second.iterdir()] == ["notes.txt"]
    assert contents(tmp_path / "elsewhere") == elsewhere


def test_places(swept, tmp_path):
    """An existing sweep is neither mixed up nor replaced unasked."""
    swept("")
    with pytest.raises(OutputError, match=r"--resume .*--force"):
        swept("")
    (tmp_path / "out" / ".bftrainer").unlink()
    for how in ({"force": True}, {"resume": True}):
        with pytest.raises(OutputError, match="found other files"):
            swept("", **how)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").touch()
    with pytest.raises(OutputError, match="found a file"):
        swept("")
