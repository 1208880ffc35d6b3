"""`bftrainer audit`: what it prints, its JSON, its exit status, and runs that it cannot audit."""

import json
import re
import shutil

import pytest

from tests.replayed import change_summary, plain_run


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


def test_runs_are_right_or_wrong(call, good, wrong):
    """How much was checked, and what could not be; a wrong figure has both values and status 1."""
    done = call("audit", good)
    assert done.status == 0
    assert "not checked: summary.json baseline_s, command, engine" in done.out
    done = call("audit", good, wrong)
    assert done.status == 1
    assert re.search(r"wrong: summary\.json occupancy: \d\.\d+ recorded, \d\.\d+ computed", done.out)
    assert re.findall(r": \d+ checks, (\d) wrong", done.out) == ["0", "1"]
    first, second = call("audit", good, wrong, "--json").json["runs"]
    assert (first["wrong"], len(second["wrong"])) == ([], 1)
    assert first["checked"] > 500


def test_what_cannot_be_audited_is_one_line(call, good, wrong):
    """Status 2 and a line with the run's name; the other run is audited all the same."""
    summary = json.loads((wrong / "summary.json").read_text())
    summary["inputs"]["tasks"]["path"] = "elsewhere\x1b[31m.toml"
    for text in (json.dumps(summary), "[" * 100_000):
        (wrong / "summary.json").write_text(text)
        done = call("audit", wrong, good)
        assert (done.status, done.err.count("\n"), "\x1b" in done.err) == (2, 1, False)
        assert done.err.count(str(wrong)) == 1
        assert re.search(rf"{re.escape(str(good))}: \d+ checks, 0 wrong", done.out)


def test_an_objective_of_ones_own(call, here, monkeypatch):
    """Without its code decisions are not checkable; with it they are, and it is said that it runs."""
    monkeypatch.syspath_prepend(str(here))
    code = "def root(task, counts, now_s):\n    return task.spec.rates[counts] ** 0.5\n"
    (here / "myaudited.py").write_text(code)
    run = plain_run(here, objective="myaudited:root")
    done = call("audit", run)
    assert (done.status, done.err) == (0, "")
    assert "not checked: decisions.parquet objective, bound: by code of yours, see --objective (11 times)" in done.out
    done = call("audit", run, "--objective", "myaudited:root")
    assert (done.status, "by code of yours" in done.out) == (0, False)
    assert "myaudited:root is code of yours" in done.err
    assert call("audit", run, "--objective", "throughput").status == 2
