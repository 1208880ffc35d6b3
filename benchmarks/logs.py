"""Workloads *import*, *intervals* and *logs*: scheduler logs to node logs, and long node logs, as processes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.children import command_sample
from benchmarks.processes import replay_argv
from benchmarks.workload import Case, Plan, Sample
from bftrainer.files.opening import SAMPLE_TASKS, sample_path

__all__ = ["PLAIN_READ", "PLAIN_SORT", "PLAIN_TABLE", "import_cases", "interval_cases", "log_cases"]

PLAIN_READ = "pandas.read_csv"
PLAIN_SORT = "numpy.lexsort"
PLAIN_TABLE = "pyarrow.parquet.read_table"

NODES = 5_000
START = datetime(2026, 1, 1, tzinfo=UTC)
YEAR_S = 365 * 86_400
_BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
_PLAIN_READ = "import sys, pandas; pandas.read_csv(sys.argv[1], sep='|', dtype=str)"
_DRAW = f"""
import sys, numpy as np
rng = np.random.default_rng(int(sys.argv[1]))
count = int(sys.argv[2])
node = rng.integers({NODES}, size=count, dtype=np.int32)
start = rng.integers({YEAR_S}, size=count) * 10**9
end = start + rng.integers(1, 20_000, size=count) * 10**9
"""
_SWEEP = f"""{_DRAW}
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.nodelogs.node_spans import NodeSpans, Window, log_of_idle
from bftrainer.schedulers.idle_spans import line_sweep
window = Window(0, {YEAR_S} * 10**9)
swept = line_sweep([{{BusyKind.JOB: NodeSpans(node, start, end).union()}}], {NODES}, window, 10**9)
log_of_idle([f"n{{number:05}}" for number in range({NODES})], window, swept.idle, {{}})
"""
_PLAIN_SORT = f"{_DRAW}\nnp.lexsort((start, node)), np.lexsort((end, node))\n"

_READ_TABLE = "import sys, pyarrow.parquet; pyarrow.parquet.read_table(sys.argv[1], read_dictionary=['node'])"
_READ = """
import sys
from pathlib import Path
from bftrainer.runs.run_inputs import read_log
log, _ = read_log(Path(sys.argv[1]))
"""


def import_cases(plan: Plan) -> Iterator[Case]:
    """`bftrainer import` on rows of sacct with hostlists and local times, reading and writing included."""
    for rows in (2_000,) if plan.quick else (100_000, 300_000, 1_000_000):
        path = plan.scratch / f"sacct-{rows}.txt"
        prepare = partial(_write_sacct, path, rows, plan.seed)
        options = [
            "--start",
            START.date(),
            "--end",
            START.date().replace(year=2027),
            "--tz",
            "Europe/Berlin",
            "--window",
            "asked",
        ]
        argv = [*_BFTRAINER, "import", path, *options, "-o", plan.scratch / "idle.parquet", "--force"]
        group = f"{rows:,} rows"
        yield Case(
            group,
            "bftrainer import --format slurm",
            partial(_timed, argv, plan.scratch),
            prepare=prepare,
            budget_s=120.0,
        )
        plain = [sys.executable, "-c", _PLAIN_READ, path]
        yield Case(group, PLAIN_READ, partial(_timed, plain, plan.scratch), prepare=prepare, budget_s=60.0)


def interval_cases(plan: Plan) -> Iterator[Case]:
    """Intervals in memory to a node log: what all importers share; drawing the intervals is part of both."""
    for count in (10_000,) if plan.quick else (1_000_000, 3_000_000, 10_000_000):
        for name, code in (("bftrainer", _SWEEP), (PLAIN_SORT, _PLAIN_SORT)):
            argv = [sys.executable, "-c", code, str(plan.seed), str(count)]
            yield Case(f"{count:,} intervals", name, partial(_timed, argv, plan.scratch), budget_s=120.0)


def log_cases(plan: Plan) -> Iterator[Case]:
    """A log of a large machine as Parquet: generated, parsed, its rows as arrays, and replayed."""
    nodes, days = (100, 2) if plan.quick else (9_400, 365)
    path = plan.scratch / f"machine-{nodes}-{days}.parquet"
    group = f"{days} d of {nodes:,} nodes"
    made = [*_BFTRAINER, "trace", "generate", "--nodes", nodes, "--days", days, "--seed", plan.seed, "-o", path]
    yield Case(group, "bftrainer trace generate", partial(_timed, [*made, "--force"], plan.scratch), budget_s=600.0)

    def prepare() -> None:
        """Write the log."""
        if not path.exists():
            _timed(made, plan.scratch, 0)

    for name, code, how in (
        (PLAIN_TABLE, _READ_TABLE, ""),
        ("parsed", _READ, "parsed"),
        ("parsed, and all rows", f"{_READ}sum(1 for _ in log.rows())", "parsed"),
    ):
        once = partial(_timed, [sys.executable, "-c", code, path, how], plan.scratch)
        yield Case(group, name, once, prepare=prepare, budget_s=120.0)
    tasks = plan.scratch / "endless.toml"
    tasks.write_text(_endless(sample_path(SAMPLE_TASKS).read_text(encoding="utf-8")), encoding="utf-8")
    for name, more in (("replayed", ["--no-baseline"]), ("replayed and compared", [])):
        argv = replay_argv(["-ndmap", path, "--tasks", tasks, "--solver", "dp", "--output-dir", plan.scratch / "run"])
        once = partial(_timed, [*argv, "--force", *more], plan.scratch)
        yield Case(group, name, once, prepare=prepare, budget_s=300.0)


def _endless(tasks: str) -> str:
    """A task set whose work suffices for years."""
    return re.sub(r"^work = (.*)$", lambda work: f"work = {float(work[1]) * 1e6!r}", tasks, flags=re.MULTILINE)


def _timed(argv: list[object], folder: Path, _: int) -> Sample:
    return command_sample([str(word) for word in argv], folder)


def _write_sacct(path: Path, rows: int, seed: int) -> None:
    """Rows of a year of a machine: three to some 130 nodes in three ranges, most lists different from all others."""
    if path.exists():
        return
    rng = np.random.default_rng(seed)
    columns = (
        rng.integers(NODES - 140, size=rows),
        *(2 ** rng.integers(0, 7, size=rows), 2 ** rng.integers(0, 6, size=rows)),
        np.sort(rng.integers(YEAR_S, size=rows)),
        rng.integers(60, 43_200, size=rows),
    )
    header = "JobIDRaw|JobID|Partition|State|Start|End|Elapsed|Suspended|NNodes|NodeList|AllocTRES|JobName"
    with path.open("w", encoding="ascii") as stream:
        stream.write(f"{header}\n")
        rows_of = zip(*(column.tolist() for column in columns), strict=True)
        for number, (node, first, second, start, length) in enumerate(rows_of, start=1):
            low = node + first + 1
            nodes = f"nid[{node:05}-{node + first - 1:05},{low:05}-{low + second - 1:05},{low + second + 1:05}]"
            times = f"{_local(start)}|{_local(start + length)}|{timedelta(seconds=length)}|00:00:00"
            count = first + second + 1
            stream.write(f"{number}|{number}|batch|COMPLETED|{times}|{count}|{nodes}|node={count}|a job\n")


def _local(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
