"""Workloads *replay*, *load* and *start-up*: whole processes, their time and their memory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.children import command_sample
from benchmarks.published import published
from benchmarks.workload import Case, Plan, Sample
from bftrainer.model import NodeLog

__all__ = ["PLAIN_LOAD", "load_cases", "replay_argv", "replay_cases", "start_up_cases"]

PLAIN_LOAD = "pandas and NumPy"
_REPLAY = (sys.executable, "-c", "from bftrainer.cli import replay_main; replay_main()")
_BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
_LOAD = "import sys; from bftrainer.nodelogs import read_node_log; read_node_log(sys.argv[1])"
# What one would write without this package; unpickling runs whatever the file says, so only on files one trusts.
_PLAIN_LOAD = "import sys, numpy, pandas; numpy.nonzero(numpy.diff(pandas.read_pickle(sys.argv[1]).values, axis=0))"


def replay_cases(plan: Plan) -> Iterator[Case]:
    """The whole command, reading and writing included: the embedded sample, and the published log if it is there."""
    few = ("--max-events", "50") if plan.quick else ()
    for solver in ("dp", "highs", "cbc"):
        yield _replay_case("sample, 512 nodes", solver, few, plan)
    given = published()
    if given is not None and not plan.quick:
        options = ["-ndmap", given.node_log, "-bdfn", given.bounds, "-scfn", given.scalability]
        for solver in ("dp", "highs", "cbc"):
            yield _replay_case("Summit, 4,734 nodes", solver, [*options, "-Tfwd", "10", "--skip-events", "1000"], plan)


def replay_argv(options: Sequence[str | Path]) -> list[str]:
    """The command that replays with those options."""
    return [str(word) for word in (*_REPLAY, *options)]


def _replay_case(group: str, solver: str, options: Sequence[str | Path], plan: Plan) -> Case:
    target = plan.scratch / f"{solver}-itrOut"
    argv = [*_REPLAY, *options, "--solver", solver, "--no-baseline", "--output-dir", target]

    def once(_: int) -> Sample:
        """Replay afresh: what an earlier run left is gone."""
        shutil.rmtree(target, ignore_errors=True)
        return command_sample(argv, plan.scratch)

    return Case(group, solver, once, budget_s=60.0)


def load_cases(plan: Plan) -> Iterator[Case]:
    """From a pickled matrix to transitions, in a process of its own: the published log, else one made up."""
    given = None if plan.quick else published()
    if given is None:
        nodes, rows = (100, 500) if plan.quick else (2_000, 10_000)
        yield from _load_group(_made_up(plan, nodes, rows), plan)
        return
    yield from _load_group(given.unpacked(plan.scratch), plan, packed=given.node_log)


def _load_group(pickle: Path, plan: Plan, packed: Path | None = None) -> Iterator[Case]:
    group = f"pickle of {pickle.stat().st_size / 2**20:.3g} MiB"
    cases = {"bftrainer": (_LOAD, pickle), PLAIN_LOAD: (_PLAIN_LOAD, pickle)}
    if packed is not None:
        cases["bftrainer, from .tar.gz"] = (_LOAD, packed)
    for name, (code, path) in cases.items():
        yield _process_case(group, name, [sys.executable, "-c", code, path], plan)


def _made_up(plan: Plan, nodes: int, rows: int) -> Path:
    """A legacy pickle of that shape, in which some 35 nodes change a row."""
    from bftrainer.nodelogs import write_node_log

    rng = np.random.default_rng(plan.seed)
    flips = np.unique(rng.integers(rows, size=(nodes, max(1, 35 * rows // nodes))) + rows * np.arange(nodes)[:, None])
    node, row = np.divmod(flips, rows)
    first = np.concatenate(([True], node[1:] != node[:-1]))
    turn = np.arange(flips.size) - np.maximum.accumulate(np.where(first, np.arange(flips.size), 0))
    order = np.lexsort((node, row))
    log = NodeLog(
        nodes=tuple(f"n{number:05d}" for number in range(nodes)),
        start_ns=0,
        end_ns=rows * 10**9,
        time_ns=row[order] * 10**9,
        node=node[order].astype(np.int32),
        idle=turn[order] % 2 == 0,
    )
    path = plan.scratch / "made-up.pkl"
    write_node_log(path, log)
    return path


def start_up_cases(plan: Plan) -> Iterator[Case]:
    """How long one waits for nothing."""
    commands = {
        "python -c pass": (sys.executable, "-c", "pass"),
        "import bftrainer": (sys.executable, "-c", "import bftrainer"),
        "bftrainer --help": (*_BFTRAINER, "--help"),
        "bftrainer-replay --help": (*_REPLAY, "--help"),
    }
    for name, argv in commands.items():
        yield _process_case("start-up", name, argv, plan)


def _process_case(group: str, name: str, argv: Sequence[str | Path], plan: Plan) -> Case:
    def once(_: int) -> Sample:
        """Run the command in a process of its own."""
        return command_sample(argv, plan.scratch)

    return Case(group, name, once, prepare=partial(once, 0), budget_s=60.0)
