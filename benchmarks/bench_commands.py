"""Whole commands as processes, reading and writing included."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.conftest import SEED
from benchmarks.published import published

NODES, YEAR_S, ISO = 5_000, 365 * 86_400, "%Y-%m-%dT%H:%M:%S"
BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
REPLAY = (*BFTRAINER, "replay", "--no-baseline", "-o", "run")
SWEEP = """schema = 1
[base]
solver = "dp"
[grid]
forward_time_s = [5, 10, 20, 40, 80, 160, 320, 640]
max_tasks = [5, 10, 20, 30]
"""
READ_NODE_LOG = "import sys; from bftrainer.nodelogs import read_node_log; read_node_log(sys.argv[1])"
# What one would write without this package; unpickling runs whatever the file says, so only on files one trusts.
UNPICKLE = "import sys, numpy, pandas; numpy.nonzero(numpy.diff(pandas.read_pickle(sys.argv[1]).values, axis=0))"
SPLIT_COLUMNS = "import sys, pandas; pandas.read_csv(sys.argv[1], sep='|', dtype=str)"

RunProcess = Callable[..., None]


@pytest.mark.parametrize("words", [[], ["--help"], ["replay", "--help"]], ids=["import", "help", "replay help"])
def bench_start_up(run_process: RunProcess, words: list[str]) -> None:
    """Until a process has answered that does nothing."""
    run_process([*BFTRAINER, *words] if words else [sys.executable, "-c", "import bftrainer"], rounds=10)


@pytest.fixture(params=["sample", "summit"])
def inputs(request: pytest.FixtureRequest) -> list[str | Path]:
    """Options that name a log and its tasks; without the published ones, benchmarks on them are skipped."""
    if request.param == "sample":
        return []
    log, bounds, scalability = published() or pytest.skip("no published data here")
    return ["-ndmap", log, "-bdfn", bounds, "-scfn", scalability, "-Tfwd", "10", "--skip-events", "1000"]


@pytest.mark.parametrize("solver", ["dp", "highs", "cbc"])
def bench_replay(run_process: RunProcess, inputs: list[str | Path], solver: str) -> None:
    """A replay without the comparison with constant pools."""
    run_process([*REPLAY, "--solver", solver, "--force", *inputs])


def bench_report(run_process: RunProcess, tmp_path: Path, inputs: list[str | Path]) -> None:
    """The page of a finished run."""
    subprocess.run([*REPLAY, "--solver", "dp", *inputs], cwd=tmp_path, capture_output=True, check=True)
    run_process([*BFTRAINER, "report", "run", "-o", "page.html", "--force"])


@pytest.mark.parametrize("workers", [1, 2])
def bench_sweep(run_process: RunProcess, tmp_path: Path, workers: int) -> None:
    """32 replays of the sample."""
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    run_process([*BFTRAINER, "sweep", "sweep.toml", "--workers", workers, "--force"], rounds=2)


@pytest.mark.parametrize("reader", ["bftrainer", "pandas"])
@pytest.mark.parametrize("rows", [100_000, 300_000, 1_000_000])
def bench_import(run_process: RunProcess, tmp_path: Path, rows: int, reader: str) -> None:
    """A year of `sacct` with hostlists to Parquet, and what splits the file into columns alone."""
    path = tmp_path / "sacct.txt"
    draw_jobs(rows).to_csv(path, sep="|", index=False)
    window = "--start 2026-01-01 --end 2027-01-01 --tz Europe/Berlin --window asked"
    ours = [*BFTRAINER, "import", path, *window.split(), "-o", "idle.parquet", "--force"]
    run_process(ours if reader == "bftrainer" else [sys.executable, "-c", SPLIT_COLUMNS, path])


def draw_jobs(count: int) -> pd.DataFrame:
    """Jobs of three to some 130 nodes in three ranges, most lists different from all others, as `sacct` shows them."""
    rng = np.random.default_rng(SEED)
    nodes, first = rng.integers(NODES - 140, size=count), 2 ** rng.integers(0, 7, size=count)
    second = 2 ** rng.integers(0, 6, size=count)
    start = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.sort(rng.integers(YEAR_S, size=count)), "s")
    length = pd.to_timedelta(rng.integers(60, 43_200, size=count), "s")
    lists = [
        f"nid[{node:05}-{low - 2:05},{low:05}-{last:05},{last + 2:05}]"
        for node, low, last in zip(nodes, nodes + first + 1, nodes + first + second, strict=True)
    ]
    columns = {"JobIDRaw": range(1, count + 1), "JobID": range(1, count + 1), "Partition": "batch"}
    columns |= {"State": "COMPLETED", "Start": start.strftime(ISO), "End": (start + length).strftime(ISO)}
    columns |= {"Elapsed": pd.Series(length).astype(str).str[-8:], "Suspended": "00:00:00"}
    columns |= {"NNodes": first + second + 1, "NodeList": lists}
    return pd.DataFrame(columns).assign(AllocTRES=lambda jobs: "node=" + jobs.NNodes.astype(str), JobName="a job")


@pytest.mark.parametrize("code", [READ_NODE_LOG, UNPICKLE], ids=["bftrainer", "pandas"])
def bench_load(run_process: RunProcess, tmp_path: Path, code: str) -> None:
    """The published pickle to transitions."""
    log, *_ = published() or pytest.skip("no published data here")
    with tarfile.open(log) as archive:
        archive.extractall(tmp_path, filter="data")
    run_process([sys.executable, "-c", code, next(tmp_path.rglob("*.pkl"))], rounds=5)
