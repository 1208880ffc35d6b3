"""A sweep's directory: what is computed anew replaces what is there when it is there itself, and not before."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from bftrainer.campaigns import sweep as module
from bftrainer.campaigns.engines import LocalEngine
from bftrainer.campaigns.sweep import run_sweep
from bftrainer.campaigns.sweep_file import SweepSpec, read_sweep
from bftrainer.errors import BftrainerError, OutputError, SettingsError
from bftrainer.files.directories import MANIFEST
from bftrainer.tasksets.task_generator import generate_tasks
from tests.tiny import contents, write_inputs

TEXT = """schema = 1
[base]
tasks = "tasks.toml"
solver = "dp"
baseline = false
max_events = 5
"""


@pytest.fixture
def swept(tmp_path):
    """`swept("[grid] ...")` runs a sweep of that in the directory `out`."""
    write_inputs(tmp_path)

    def run(text, told=lambda _: None, **how):
        (tmp_path / "file.toml").write_text(TEXT + text)
        return run_sweep(read_sweep(tmp_path / "file.toml"), tmp_path / "out", LocalEngine(1), told, **how)

    return run


def listed(folder):
    """Names of runs and task sets of a sweep."""
    return sorted(path.name for name in ("runs", "tasks") for path in (folder / name).glob("*"))


def interrupt(_):
    """Do what Ctrl-C does when the first point is done."""
    raise KeyboardInterrupt


def test_anew_is_as_new(swept, tmp_path):
    """A sweep that replaces another holds what it would hold alone, but for times; runs it has no more are gone."""
    swept("[grid]\nTfwd = [5, 10]")
    swept("[grid]\nTfwd = [10, 15]", force=True)
    anew = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    swept("[grid]\nTfwd = [10, 15]")
    alone = contents(tmp_path / "out")
    assert anew.keys() == alone.keys()
    clocked = ("summary.json", "decisions.parquet", MANIFEST)
    assert {name: anew[name] for name in alone if not name.endswith(clocked)} == {
        name: alone[name] for name in alone if not name.endswith(clocked)
    }


def test_all_is_computed_anew(swept, tmp_path, monkeypatch):
    """By force, also what has not changed; what was there stands until then, table and description included."""
    swept("[grid]\nTfwd = [5, 10]")
    before = contents(tmp_path / "out")
    calls = []
    monkeypatch.setattr(module, "run_replay", lambda **given: calls.append(1) or replay(**given))
    with pytest.raises(KeyboardInterrupt):
        swept("[grid]\nTfwd = [5, 10, 15]", interrupt, force=True)
    after = contents(tmp_path / "out")
    assert after.keys() == before.keys()
    assert [after[name] == before[name] for name in ("sweep.toml", "sweep.parquet")] == [True, True]
    assert [point.was_done for point in swept("[grid]\nTfwd = [5, 10]", force=True).points] == [False, False]
    assert len(calls) == 3


replay = module.run_replay


def test_interrupted_before_anything_was_done(swept, tmp_path, monkeypatch):
    """Of a sweep that has no result no directory is left; one that was there is as empty as before."""

    def stop(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_replay", stop)
    with pytest.raises(KeyboardInterrupt):
        swept("")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        swept("")
    assert list((tmp_path / "out").iterdir()) == []


def test_killed_before_there_was_a_list(swept, tmp_path):
    """What is put in a sweep's directory first is the list of what is ours; half of that is no file of others."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "..bftrainer.bftpart").touch()
    swept("")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".bftrainer",
        "runs",
        "sweep.parquet",
        "sweep.toml",
    ]


def test_given_up_with_workers_killed(swept, tmp_path, monkeypatch):
    """What they had begun to write is taken back too."""

    def stop(**_):
        (tmp_path / "out" / "runs" / ".0123456789abcdef.new").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_replay", stop)
    with pytest.raises(KeyboardInterrupt):
        swept("")
    assert not (tmp_path / "out").exists()


def test_a_sweep_that_was_given_up_gets_no_more_runs(swept, tmp_path, monkeypatch):
    """A cluster's worker that goes on makes no directory anew: it would be nobody's."""

    def late(**given):
        shutil.rmtree(tmp_path / "out" / "runs")
        return replay(**given)

    monkeypatch.setattr(module, "run_replay", late)
    points = swept("").points
    assert "removed meanwhile" in points[0].error
    assert not (tmp_path / "out" / "runs").exists()


def test_interrupted_with_a_job_log(swept, tmp_path, monkeypatch):
    """What a job has said may be why nothing was computed: it is kept, and the sweep can be resumed beside it."""

    def stop(**_):
        (tmp_path / "out" / "job-logs").mkdir()
        (tmp_path / "out" / "job-logs" / "worker-1.out").write_text("no")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_replay", stop)
    with pytest.raises(KeyboardInterrupt):
        swept("")
    monkeypatch.setattr(module, "run_replay", replay)
    swept("", resume=True)
    swept("", force=True)
    assert (tmp_path / "out" / "job-logs" / "worker-1.out").read_text() == "no"


def test_results_are_not_replaced_by_failures(swept, tmp_path, monkeypatch):
    """If all points fail, what there is stands, and the reason is told."""
    swept("[grid]\nTfwd = [5, 10]")
    before = contents(tmp_path / "out")

    def fail(**_):
        raise ValueError("no luck")

    monkeypatch.setattr(module, "run_replay", fail)
    with pytest.raises(BftrainerError, match="Nothing was replaced, as all points failed: ValueError: no luck"):
        swept("[grid]\nTfwd = [5, 10]", force=True)
    assert contents(tmp_path / "out") == before


def test_what_is_not_ours_stays_in_a_sweep(swept, tmp_path):
    """Files beside runs and in them, hidden ones, directories that look like runs, and runs elsewhere."""
    result = swept("[grid]\nTfwd = [5, 10]")
    runs = tmp_path / "out" / "runs"
    first, second = (runs / point.point.key for point in result.points)
    (second / "notes.txt").write_text("mine")
    for name in ("0123456789abcdef", ".git", ".0123456789abcdef.kept"):
        (runs / name).mkdir()
        (runs / name / "summary.json").write_text("mine")
    (runs / ".diary").write_text("mine")
    shutil.copytree(second, tmp_path / "elsewhere")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    elsewhere = contents(tmp_path / "elsewhere")
    swept("[grid]\nTfwd = [5]", force=True)
    mine = {name for name, content in contents(tmp_path / "out").items() if content == b"mine"}
    assert mine == {
        f"runs/{second.name}/notes.txt",
        "runs/0123456789abcdef/summary.json",
        "runs/.git/summary.json",
        "runs/.0123456789abcdef.kept/summary.json",
        "runs/.diary",
    }
    assert [path.name for path in second.iterdir()] == ["notes.txt"]
    assert (first / "summary.json").is_file()
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


def test_a_file_that_is_not_there_is_named(swept, tmp_path):
    """Before there is a directory."""
    with pytest.raises(SettingsError, match="absent"):
        swept('[grid]\ntasks = ["tasks.toml", "absent.toml"]')
    assert not (tmp_path / "out").exists()


def test_task_sets_of_its_own(tmp_path, monkeypatch):
    """They are written to its directory, go with the points that named them, and are taken back without a result."""

    def run(*names, **how):
        sets = {f"tasks/{name}.toml": generate_tasks("hpo", 2, np.random.default_rng(0)) for name in names}
        points = tuple({"tasks": name} for name in sets)
        base = {"solver": "dp", "baseline": False, "max_events": 5}
        return run_sweep(SweepSpec(out / "sweep.toml", b"", base, points, sets), out, LocalEngine(1), **how)

    out = tmp_path / "out"
    run("a", "b")
    run("b", "c", force=True)
    assert [name for name in listed(out) if name.endswith(".toml")] == ["b.toml", "c.toml"]
    shutil.rmtree(out)
    monkeypatch.setattr(module, "run_replay", lambda **_: interrupt(None))
    with pytest.raises(KeyboardInterrupt):
        run("a")
    assert not out.exists()
