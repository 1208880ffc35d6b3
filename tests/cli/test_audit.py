"""`bftrainer audit`: what it prints, its JSON, its exit status, and runs that it cannot audit."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys

import pytest

from bftrainer.cli._shared.group import cli, guarded
from bftrainer.files.directories import result_directory
from tests.audit.replayed import change_summary, plain_run


@pytest.fixture
def bftrainer(monkeypatch, capsys):
    """The command in this process; gives status, output and what it said on stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bftrainer", *map(str, arguments)])
        status = guarded(cli, "bftrainer")
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A run that nothing is wrong with."""
    return plain_run(tmp_path_factory.mktemp("good"))


@pytest.fixture
def wrong(good):
    """A copy of it with a changed figure."""
    run = good.with_name("wrong")
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(good, run)
    change_summary(run, "occupancy")
    return run


def test_a_right_run_is_told_part_by_part(bftrainer, good):
    """Status 0; what was checked has its items, what was not has its reason, and nothing is called ok."""
    status, out, _ = bftrainer("audit", good)
    assert status == 0
    assert "decisions proven optimal are optimal, and none is worth more than the best: 11 items" in out
    assert "wall-clock" in out.split("not checkable  what else the run wrote")[1]
    assert out.splitlines()[-1] == f"{good}: 16 checked, 0 failed, 1 not checkable"
    assert "no manifest (.bftrainer) with checksums" in out
    assert " ok" not in out


def test_files_of_a_run_are_compared_with_its_manifest(bftrainer, good, tmp_path):
    """One that was changed is named, as is one that is gone; without a manifest there is nothing to compare."""
    run = tmp_path / "sealed"
    with result_directory([run]) as directory:
        shutil.copytree(good, directory.working, dirs_exist_ok=True)
    assert f"{run}: 17 checked, 0 failed" in bftrainer("audit", run)[1]
    (run / "step-logs.csv").write_text((run / "step-logs.csv").read_text() + "\n")
    status, out, _ = bftrainer("audit", run)
    assert status == 1
    assert "step-logs.csv is missing, or not as it was written" in out


def test_a_wrong_run_is_named(bftrainer, good, wrong):
    """Status 1, the figure with both values; runs beside it are audited as well."""
    status, out, _ = bftrainer("audit", good, wrong)
    assert status == 1
    assert re.search(r"failed {9}summary\.json adds up: \d+ items, 1 wrong", out)
    assert "wrong: occupancy: " in out
    assert f"{wrong}: 15 checked, 1 failed, 1 not checkable" in out


def test_json_has_all_of_it(bftrainer, good, wrong):
    """A list of runs with their parts, problems and what was not checked."""
    status, out, _ = bftrainer("audit", good, wrong, "--json")
    first, second = json.loads(out)["runs"]
    assert (status, first["failed"], second["failed"], first["not_checkable"]) == (1, 0, 1, 1)
    (part,) = [each for each in second["parts"] if each["status"] == "failed"]
    assert part["claim"] == "summary.json adds up"
    assert part["problems"][0].startswith("occupancy")
    left = first["parts"][-1]["not_checked"]
    assert sum(left.values()) == 17
    named = (
        "baseline_s, load_s, replay_s",
        "engine, versions",
        "settings.threads",
        "model_rows, model_columns",
        "no manifest",
    )
    assert all(any(name in why for why in left) for name in named)


def no_summary(run):
    """No summary at all."""
    (run / "summary.json").unlink()


def other_json(run):
    """Some other program's JSON."""
    (run / "summary.json").write_text("[1, 2]")


def deep_json(run):
    """JSON that is nested too deeply."""
    (run / "summary.json").write_text("[" * 100_000)


def cut_table(run):
    """A table that was not written to its end."""
    path = run / "decisions.parquet"
    path.write_bytes(path.read_bytes()[:-20])


def cut_steps(run):
    """A step log that was not, either."""
    path = run / "step-logs.csv"
    path.write_text(path.read_text()[:-5])


def no_table(run):
    """A table less."""
    (run / "allocation.parquet").unlink()


def no_input(run):
    """Inputs that are elsewhere now."""
    summary = json.loads((run / "summary.json").read_text())
    summary["inputs"]["tasks"]["path"] = "elsewhere\x1b[31m.toml"
    (run / "summary.json").write_text(json.dumps(summary))


def no_file(run):
    """Inputs that never were files."""
    summary = json.loads((run / "summary.json").read_text())
    summary["inputs"]["tasks"] = None
    (run / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize(
    "damage", [no_summary, other_json, deep_json, cut_table, cut_steps, no_table, no_input, no_file]
)
def test_what_cannot_be_audited_is_one_line(bftrainer, good, wrong, damage):
    """Status 2 and a line with the run's name; the other run is audited all the same."""
    damage(wrong)
    status, out, err = bftrainer("audit", wrong, good)
    assert status == 2
    assert err.count("\n") == 1
    assert str(wrong) in err
    assert "\x1b" not in err
    assert f"{good}: 16 checked" in out


class Hostile:
    """What a pickle may ask for."""

    def __reduce__(self):
        return print, ("executed",)


def test_a_hostile_pickle_is_not_executed(bftrainer, wrong):
    """A node log that is code is refused by the name of what it asks for."""
    (wrong.parent / "evt.pkl").write_bytes(pickle.dumps(Hostile()))
    summary = json.loads((wrong / "summary.json").read_text())
    summary["inputs"]["node_log"]["path"] = str(wrong.parent / "evt.pkl")
    (wrong / "summary.json").write_text(json.dumps(summary))
    status, out, err = bftrainer("audit", wrong)
    assert (status, out) == (2, "")
    assert "refused to load builtins.print" in err


def test_an_objective_of_ones_own(bftrainer, tmp_path, monkeypatch):
    """Without its code decisions are not checkable; with it they are, and it is said that it runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "myaudited.py").write_text(
        "def root(task, counts, now_s):\n    return task.spec.rates[counts] ** 0.5\n"
    )
    run = plain_run(tmp_path, objective="myaudited:root")
    status, out, err = bftrainer("audit", run)
    assert (status, err) == (0, "")
    assert "13 checked, 0 failed, 4 not checkable" in out
    status, out, err = bftrainer("audit", run, "--objective", "myaudited:root")
    assert status == 0
    assert "16 checked, 0 failed, 1 not checkable" in out
    assert "myaudited:root is code of yours" in err
    assert bftrainer("audit", run, "--objective", "throughput")[0] == 2
