"""What pages claim of data, traces, energy and measured times, mostly of the tables that they show."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.published import ROOT
from bftrainer import run_replay
from bftrainer.files.opening import SAMPLE_NODE_LOG, SAMPLE_TASKS, sample_path
from bftrainer.nodelogs.availability import read_availability
from bftrainer.spot import trace_statistics
from bftrainer.tasksets import read_task_set
from tests.docs.claims import Claims, summary
from tests.tiny import spawn

__all__ = ["CLAIMS"]

CLAIMS = Claims()
claim = CLAIMS.of


def table(page: str, above: str) -> dict[str, list[str]]:
    """The first Markdown table after some words: cells by the row's first one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(above) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first + 1 :]]
    return {row[0]: row[1:] for row in rows[: [len(row) > 1 for row in rows].index(False)]}


def run(command: str) -> str:
    """What a command prints."""
    program, *words = command.split()
    done = spawn(program, *words, cwd=Path.cwd())
    assert done.status == 0, f"$ {command}\n{done.err}"
    return done.out


def measured(command: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Median and 95th percentile in seconds of what a benchmark printed, by case and solver."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    text = text[text.index(f"$ python -m benchmarks {command}\n") :]
    row = r"^ (.*?) {2,}(\S.*?)  +\d+ +([\d.]+) (ms|s) +([\d.]+) (ms|s)"
    size, found = "", {}
    for label, name, median, unit, tail, tail_unit in re.findall(row, text[: text.index("\n```")], re.MULTILINE):
        size = label.strip() or size
        scale = {"ms": 1e-3, "s": 1.0}
        found[size, name] = float(median) * scale[unit], float(tail) * scale[tail_unit]
    return found


@claim("docs/tuned.md", "Weighing energy alone saves 31 % of it and takes 16 % more time.")
def _():
    rows = {eta: [float(cell.split()[0]) for cell in cells] for eta, cells in table("docs/tuned.md", "| eta |").items()}
    assert round(100 * (1 - rows["1"][0] / rows["0"][0])) == 31
    assert round(100 * (rows["1"][1] / rows["0"][1] - 1)) == 16


@claim("docs/tuned.md", "keeps what harvested nodes draw under a site's budget: each decision")
def _():
    drawn, start = pd.read_parquet("capped/power.parquet"), pd.Timestamp(summary("capped")["window_start"])
    caps = pd.read_csv("cap.csv")
    since = (drawn["begin"] - start).dt.total_seconds()
    allowed = caps["power_w"].to_numpy()[np.searchsorted(caps["time"], since, side="right") - 1]
    assert (drawn["tasks_w"] + drawn["idle_w"] <= allowed * (1 + 1e-9)).all()
    assert drawn["tasks_w"].max() > 0


@claim("docs/spot.md", "half of the time 81 nodes are idle or fewer, and here about 300: the mean is the same")
def _():
    run("bftrainer trace generate --model supercomputer --seed 1 -o machine.parquet")
    found = trace_statistics(read_availability(Path("machine.parquet"), print)).figures
    assert 250 <= found["median_nodes"] <= 350
    assert found["mean_nodes"] == pytest.approx(0.0827 * 4734, rel=0.02)


@claim("docs/spot.md", "with a pair of anonymous counts the last in goes first, so that nodes that train are spared")
def _():
    run("bftrainer trace generate --model minutes --days 2 --seed 1 --counts -o pair.parquet")
    pair = "--trace pair-preemptions.csv --additions pair-additions.csv"
    named, counts = (
        json.loads(run(f"bftrainer spot simulate {trace} --json")) for trace in ("--trace pair.parquet", pair)
    )
    assert counts["active_preemptions"] / counts["preemptions"] < named["active_preemptions"] / named["preemptions"]


@claim(
    "docs/solvers.md",
    "There is no crossover between `dp` and the other exact solvers in this range.",
    "`highs` has lower medians than `cbc` from 10 tasks on, and longer tails from 5 tasks on",
    "`gurobi` is the fastest of them where its licence reaches.",
)
def _():
    columns = ("dp", "cbc", "highs", "gurobi", "node-level")
    for size, cells in table("docs/solvers.md", "| tasks x nodes |").items():
        count = int(size.split()[0])
        spans = [tuple(float(part.replace(",", "")) for part in cell.split("/")) for cell in cells[:4]]
        median, tail = ({name: span[place] for name, span in zip(columns, spans, strict=False)} for place in (0, 1))
        assert min(median, key=median.__getitem__) == "dp"
        assert median["gurobi"] == min(median[name] for name in ("cbc", "highs", "gurobi"))
        assert median["highs"] < median["cbc"] or count < 10
        assert tail["highs"] > tail["cbc"] or count < 5


@claim(
    "docs/performance.md",
    "`gurobi` has lower medians than `cbc`, `highs` from 10 tasks on; `cbc` has the shorter tail",
)
def _():
    times = measured("decision --repeat 60")
    for size in {size for size, _ in times}:
        tasks = int(size.split()[0])
        cbc, highs, gurobi = (times[size, name] for name in ("cbc", "highs", "gurobi"))
        assert gurobi[0] < cbc[0]
        assert (highs[0] < cbc[0]) == (tasks >= 10)
        assert cbc[1] < highs[1] or tasks < 5


@claim(
    "docs/performance.md",
    "`dp` takes 6 to 110 microseconds: a fifth of what plain loops in C take for two tasks, less than a hundredth",
    "six hundred times as long as `dp` at the smallest size and ten thousand times as long for 30 tasks",
)
def _():
    median = {case: times[0] for case, times in measured("decision --repeat 60").items()}
    exact = [seconds for (_, solver), seconds in median.items() if solver == "dp"]
    assert 5.5e-6 < min(exact) < max(exact) < 115e-6
    assert round(median["2 x 10", "dp"] / median["2 x 10", "textbook DP in C"], 1) == 0.2
    assert median["100 x 4608", "dp"] < median["100 x 4608", "textbook DP in C"] / 100
    assert median["2 x 10", "node-level"] > 600 * median["2 x 10", "dp"]
    assert median["30 x 391", "node-level"] > 1e4 * median["30 x 391", "dp"]


def exponent(medians: dict[str, float]) -> float:
    """Power of the number in each name that the medians grow with, fitted to their logarithms."""
    sizes = [float(re.sub(r"\D", "", name)) for name in medians]
    return float(np.polyfit(np.log(sizes), np.log(list(medians.values())), 1)[0])


@claim(
    "docs/performance.md",
    "`dp` grows with the tasks to the power of 0.8 (fitted to the medians), with Jmax to the power of 0.5, and not",
    "(to the power of 1.1, fitted)",
    "whatever is in them (to the power of 0.6)",
)
def _():
    grown = {label: seconds for (label, solver), (seconds, _) in measured("growth").items() if solver == "dp"}
    along = {
        axis: exponent({at: grown[at] for at in grown if at.startswith(axis)}) for axis in ("tasks", "Jmax", "nodes")
    }
    assert (round(along["tasks"], 1), round(along["Jmax"], 1)) == (0.8, 0.5)
    assert along["nodes"] < 0.0
    events = measured("events")
    core, general = (
        exponent({label: seconds for (label, name), (seconds, _) in events.items() if name == engine})
        for engine in ("compiled core", "general loop")
    )
    assert (round(core, 1), round(general, 1)) == (1.1, 0.6)


@claim("docs/performance.md", "one instance in twenty takes more than 0.18 s")
def _():
    assert 0.18 < measured("growth")["tasks 160", "cbc"][1] < 0.19


@claim("datasets/README.md", "Ten at a time, with the default settings, all are done after about 62 of the 72 hours.")
def _():
    run = run_replay(solver="dp", baseline=False).summary()
    assert (round(run["window_s"] / 3600), run["tasks_completed"], run["tasks_total"]) == (62, 40, 40)


@claim(
    "datasets/README.md",
    "one task submitted every quarter of an hour from the window's start",
    "150 to 525, uniform; costs are uniform too: 17 to 19 s for growing, 11 to 13 s for shrinking",
)
def _():
    tasks = read_task_set(sample_path(SAMPLE_TASKS)).tasks
    assert tasks[0].submit_s == 0.0
    assert {after.submit_s - before.submit_s for before, after in pairwise(tasks)} == {900.0}
    assert len({task.group for task in tasks}) == 7
    for value, low, high in (
        (lambda task: task.work / 1_281_167, 150, 525),
        (lambda task: task.grow_cost_s, 17, 19),
        (lambda task: task.shrink_cost_s, 11, 13),
    ):
        assert low <= min(map(value, tasks)) < low + 0.2 * (high - low)
        assert high >= max(map(value, tasks)) > high - 0.2 * (high - low)


@claim("datasets/README.md", "| nodes | 4,734 | 512 |")
def _():
    found = trace_statistics(read_availability(sample_path(SAMPLE_NODE_LOG), print)).figures
    told = {name: cells[1] for name, cells in table("datasets/README.md", "## Facts").items()}
    per_row = found["transitions"] / (found["events"] - 1)
    assert told["nodes"] == str(found["nodes"])
    assert told["window (h)"] == f"{found['span_s'] / 3600:.0f}"
    assert told["transitions, and per row"] == f"{found['transitions']:,}; {per_row:.1f}"
    assert told["idle share of node-time (%)"] == f"{100 * found['idle_share']:.2f}"
    assert told["completed idle fragments"] == f"{found['fragments']:,}"
    lengths = f"{found['fragment_mean_s']:,.1f}; {found['fragment_median_s']:g}"
    assert told["their mean, median (s)"] == lengths
    assert told["fragments under 600 s (%)"] == f"{100 * found['fragment_under_600_s_share']:.1f}"
