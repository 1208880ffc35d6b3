"""Comparisons of any number of runs: a column for each, and a line for each figure where no terminal is."""

from __future__ import annotations

import json
import re

import pytest

from tests.finished import write_sample_run


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """The summary of a run of the sample."""
    return json.loads((write_sample_run(tmp_path_factory.mktemp("one") / "run") / "summary.json").read_text())


@pytest.fixture
def runs(summary, tmp_path):
    """`runs(n, name)`: directories of n runs that differ in a setting, an input and two figures."""

    def made(count, name="run-{}"):
        paths = []
        for number in range(count):
            path = tmp_path / "of a long path to somewhere" / name.format(number)
            path.mkdir(parents=True)
            log = {"path": f"/data/logs of {number}/summit-idle-nodes.parquet", "sha256": f"{number:064}"}
            change = {"inputs": summary["inputs"] | {"node_log": log}, "work_done": 1e9 + 1234.5 * number}
            change["settings"] = summary["settings"] | {"forward_time_s": 10.0 + number}
            (path / "summary.json").write_text(
                json.dumps(summary | change | {"tasks_completed": number, "tasks_started": 20})
            )
            paths.append(path)
        return paths

    return made


@pytest.fixture
def compare(call):
    """`compare(runs)`: the lines of `bftrainer compare`."""

    def lines(runs):
        done = call("compare", *runs)
        assert done.status == 0, done.err
        return done.out.splitlines()

    return lines


def test_unlike_runs_are_told(summary, runs, compare):
    """A run of another machine has a line that says so, and no differences."""
    one, other = runs(2)
    found = json.loads((other / "summary.json").read_text())
    (other / "summary.json").write_text(json.dumps(found | {"nodes_total": 9}))
    lines = compare([one, other])
    told = f"run-1 cannot be compared with run-0: another machine (9 nodes, not {summary['nodes_total']})."
    assert told in lines
    assert not [line for line in lines if re.search(r"\([+-][\d.]+ (%|points)\)", line)]


def test_each_run_is_in_one_column(runs, compare):
    """Of twenty runs each has its own value under its own name."""
    lines = compare(runs(20))
    found, heading = {}, []
    for line in lines:
        words = line.split()
        if line.startswith("figure"):
            heading = words[1:]
        elif line.startswith("tasks completed"):
            found |= dict(zip(heading, words[2:], strict=True))
    assert found == {f"run-{number}": str(number) for number in range(20)}


def test_files_are_called_by_name_and_digest(runs, compare):
    """An input's file by its name, and the beginning of the digest that tells it from the others."""
    (row,) = (line for line in compare(runs(2)) if line.startswith("node log"))
    assert "  summit-idle-nodes.parquet (00000000)" in row
