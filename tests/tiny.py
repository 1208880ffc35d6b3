"""A world of four nodes and two tasks, small enough to check by hand, and the frames that describe it as published.

Nodes a and b are idle from 0 s to 30 s, c and d from 10 s on; the log ends at 40 s. Both tasks do 1 work/s and node.
"""

import json
import os
import pickle
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

START = pd.Timestamp("2021-02-10T00:00:00")
RESULTS = {".bftrainer", "step-logs.csv", "decisions.parquet", "tasks.parquet", "allocation.parquet", "summary.json"}


@dataclass(frozen=True)
class Done:
    """What a command answered."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output, which must be JSON and nothing else."""
        return json.loads(self.out)


@cache
def inputs() -> dict[str, bytes]:
    """The files of the world, by name."""
    states = [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]]  # one row per 10 s, 1 = idle
    times = pd.DatetimeIndex([START + pd.Timedelta(seconds=10 * row) for row in range(5)])
    nodes, tasks = (pd.Index(names, dtype=object) for names in (list("abcd"), ["J0", "J1"]))
    submissions = pd.DatetimeIndex([START, START])
    bounds = {
        "Tcup": [2.0, 2.0],
        "Tcdw": [1.0, 1.0],
        "Jmin": [1.0, 1.0],
        "Jmax": [4.0, 4.0],
        "Pmax": [50.0, 500.0],
        "Tsub": submissions,
    }
    counts, rates = [0, 1, 2, 4], [0.0, 1.0, 2.0, 4.0]
    scaling = {"Ns": [counts, counts], "Ps": [rates, rates], "Os": [rates, rates], "Tsub": submissions}
    frames = {
        "evt.pkl": pd.DataFrame(np.array(states, dtype=np.int8), index=times, columns=nodes),
        "Jbnd.pkl": pd.DataFrame(bounds, index=tasks),
        "JNPs.pkl": pd.DataFrame(scaling, index=tasks),
    }
    return {name: pickle.dumps(frame) for name, frame in frames.items()} | {"tasks.toml": TASKS_TOML.encode()}


TASKS_TOML = "schema = 1\n" + "".join(
    f"""\
[[task]]
name = "{name}"
min_nodes = 1
max_nodes = 4
work = {work}
grow_cost_s = 2.0
shrink_cost_s = 1.0
[task.scaling]
nodes = [0, 1, 2, 4]
throughput = [0.0, 1.0, 2.0, 4.0]
"""
    for name, work in (("J0", 50.0), ("J1", 500.0))
)
SWEEP = 'schema = 1\n[base]\nnode_log = "evt.pkl"\ntasks = "tasks.toml"\nsolver = "dp"\n[grid]\nTfwd = [5, 20]\n'
"""A sweep over two forward times."""


def write_inputs(folder: Path) -> None:
    """Write evt.pkl, Jbnd.pkl, JNPs.pkl and tasks.toml."""
    for name, content in inputs().items():
        (folder / name).write_bytes(content)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, and the bytes of the files."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


def installed(program: str) -> str:
    """Path of an installed command: that of the interpreter that runs the tests."""
    return str(Path(sys.executable).parent / program)


_MANY = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from glob import glob
from io import BytesIO, TextIOWrapper
commands, absent = json.load(sys.stdin)
sys.modules.update(dict.fromkeys(absent))
from bftrainer.cli.group import cli, guarded
answers = []
for words in commands:
    streams = [TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2)]
    sys.argv = ["bftrainer", *(path for word in words for path in glob(word) or [word])]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        status = guarded(cli, "bftrainer")
    for stream in streams:
        stream.flush()
    answers.append([status, *(stream.buffer.getvalue().decode() for stream in streams)])
json.dump(answers, sys.stdout)
"""


def spawn_all(lines: Sequence[str], cwd: Path, env: dict[str, str], absent: Sequence[str] = ()) -> list[Done]:
    """Run what follows `bftrainer` on each line, in one process of its own from which modules are absent."""
    done = subprocess.run(
        [sys.executable, "-c", _MANY],
        input=json.dumps([[shlex.split(line) for line in lines], list(absent)]),
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Done(*answer) for answer in json.loads(done.stdout)]


def spawn(program: str, *words: object, cwd: Path, env: dict[str, str] | None = None, **options: Any) -> Done:
    """Run an installed command as a process of its own."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    done = subprocess.run(
        [installed(program), *map(str, words)],
        cwd=cwd,
        env=os.environ | (env or {}),
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        **streams,
    )
    return Done(done.returncode, done.stdout or "", done.stderr or "")
