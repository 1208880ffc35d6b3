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
from tests.replayed import change_summary, plain_run


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


def test_a_right_run_says_what_was_checked(bftrainer, good):
    """Status 0; how much was checked, and what could not be."""
    status, out, _ = bftrainer("audit", good)
    assert status == 0
    assert re.fullmatch(rf"{re.escape(str(good))}: \d+ checks, 0 wrong", out.splitlines()[-1])
    assert "not checked: summary.json baseline_s, command, engine" in out
    assert "not checked: files: no checksums (.bftrainer)" in out


def test_files_of_a_run_are_compared_with_its_manifest(bftrainer, good, tmp_path):
    """One that was changed is named, as is one that is gone; without a manifest there is nothing to compare."""
    run = tmp_path / "sealed"
    with result_directory(run) as directory:
        shutil.copytree(good, directory.working, dirs_exist_ok=True)
    assert "no checksums" not in bftrainer("audit", run)[1]
    (run / "step-logs.csv").write_text((run / "step-logs.csv").read_text() + "\n")
    status, out, _ = bftrainer("audit", run)
    assert status == 1
    assert "step-logs.csv is missing, or not as it was written" in out


def test_a_wrong_run_is_named(bftrainer, good, wrong):
    """Status 1, the figure with both values; runs beside it are audited as well."""
    status, out, _ = bftrainer("audit", good, wrong)
    assert status == 1
    assert re.search(r"wrong: summary\.json occupancy: \d\.\d+ recorded, \d\.\d+ computed", out)
    assert re.search(rf"{re.escape(str(wrong))}: \d+ checks, 1 wrong", out)
    assert re.search(rf"{re.escape(str(good))}: \d+ checks, 0 wrong", out)


def test_json_has_all_of_it(bftrainer, good, wrong):
    """A list of runs with what is wrong and what was not checked."""
    status, out, _ = bftrainer("audit", good, wrong, "--json")
    first, second = json.loads(out)["runs"]
    assert (status, first["wrong"], len(second["wrong"])) == (1, [], 1)
    assert first["checked"] > 500
    assert second["wrong"][0].startswith("summary.json occupancy")
    assert any("load_s" in what for what in first["unchecked"])


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
    assert re.search(rf"{re.escape(str(good))}: \d+ checks, 0 wrong", out)


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
    assert "not checked: decisions.parquet objective, bound: by code of yours, see --objective (11 times)" in out
    status, out, err = bftrainer("audit", run, "--objective", "myaudited:root")
    assert status == 0
    assert "by code of yours" not in out
    assert "myaudited:root is code of yours" in err
    assert bftrainer("audit", run, "--objective", "throughput")[0] == 2
