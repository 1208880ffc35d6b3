"""Whole commands as processes, reading and writing included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from benchmarks.conftest import SEED
from benchmarks.published import published

NODES, YEAR_S = 5_000, 365 * 86_400
BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
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


@pytest.mark.parametrize("log", ["sample", "summit"])
@pytest.mark.parametrize("solver", ["dp", "highs", "cbc"])
def bench_replay(run_process: RunProcess, log: str, solver: str) -> None:
    """A replay without the comparison with constant pools."""
    options = ["replay", "--solver", solver, "--no-baseline", "-o", "run", "--force"]
    run_process([*BFTRAINER, *options, *list_inputs(log)])


@pytest.mark.parametrize("log", ["sample", "summit"])
def bench_report(run_process: RunProcess, tmp_path: Path, log: str) -> None:
    """The page of a finished run."""
    replay = [*BFTRAINER, "replay", "--solver", "dp", "--no-baseline", "-o", "run", *list_inputs(log)]
    subprocess.run(replay, cwd=tmp_path, capture_output=True, check=True)
    run_process([*BFTRAINER, "report", "run", "-o", "page.html", "--force"])


def list_inputs(log: str) -> list[str | Path]:
    """Options that name a log and its tasks; skip the benchmark where that log is not here."""
    if log == "sample":
        return []
    files = published()
    if files is None:
        pytest.skip("no published data here")
    names = ["-ndmap", files.node_log, "-bdfn", files.bounds, "-scfn", files.scalability]
    return [*names, "-Tfwd", "10", "--skip-events", "1000"]


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
    with path.open("w", encoding="ascii") as stream:
        stream.writelines(sacct_lines(rows))
    window = "--start 2026-01-01 --end 2027-01-01 --tz Europe/Berlin --window asked"
    ours = [*BFTRAINER, "import", path, *window.split(), "-o", "idle.parquet", "--force"]
    run_process(ours if reader == "bftrainer" else [sys.executable, "-c", SPLIT_COLUMNS, path])


def sacct_lines(rows: int) -> Iterator[str]:
    """Jobs of three to some 130 nodes in three ranges, most lists different from all others."""
    rng = np.random.default_rng(SEED)
    columns = (
        rng.integers(NODES - 140, size=rows),
        2 ** rng.integers(0, 7, size=rows),
        2 ** rng.integers(0, 6, size=rows),
        np.sort(rng.integers(YEAR_S, size=rows)),
        rng.integers(60, 43_200, size=rows),
    )
    yield "JobIDRaw|JobID|Partition|State|Start|End|Elapsed|Suspended|NNodes|NodeList|AllocTRES|JobName\n"
    for number, (node, first, second, start_s, length_s) in enumerate(zip(*columns, strict=True), start=1):
        low, count = node + first + 1, first + second + 1
        nodes = f"nid[{node:05}-{node + first - 1:05},{low:05}-{low + second - 1:05},{low + second + 1:05}]"
        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=int(start_s))
        length = timedelta(seconds=int(length_s))
        times = f"{start:%Y-%m-%dT%H:%M:%S}|{start + length:%Y-%m-%dT%H:%M:%S}|{length}|00:00:00"
        yield f"{number}|{number}|batch|COMPLETED|{times}|{count}|{nodes}|node={count}|a job\n"


@pytest.mark.parametrize("code", [READ_NODE_LOG, UNPICKLE], ids=["bftrainer", "pandas"])
def bench_load(run_process: RunProcess, tmp_path: Path, code: str) -> None:
    """The published pickle to transitions."""
    files = published()
    if files is None:
        pytest.skip("no published data here")
    run_process([sys.executable, "-c", code, files.unpack_log(tmp_path)], rounds=5)
