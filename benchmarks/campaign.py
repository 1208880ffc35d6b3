"""Workloads *sweep* and *report*: many replays at once, and the page of one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

from benchmarks.children import command_sample
from benchmarks.processes import replay_argv
from benchmarks.published import published
from benchmarks.workload import Case, Plan, Sample

__all__ = ["ONE_WORKER", "report_cases", "sweep_cases"]

ONE_WORKER = "1 worker"
_BFTRAINER = (sys.executable, "-c", "from bftrainer.cli import main; main()")
_SWEEP = """schema = 1
[base]
solver = "dp"
{limit}
[grid]
forward_time_s = {forward_s}
max_tasks = {max_tasks}
"""


def sweep_cases(plan: Plan) -> Iterator[Case]:
    """Eight forward-looking times by four task limits on the embedded sample, as a process."""
    forward_s = [10, 60] if plan.quick else [5, 10, 20, 40, 80, 160, 320, 640]
    limits = [5] if plan.quick else [5, 10, 20, 30]
    file = plan.scratch / "sweep.toml"
    limit = "max_events = 20\nbaseline = false" if plan.quick else ""
    file.write_text(_SWEEP.format(forward_s=forward_s, max_tasks=limits, limit=limit), encoding="utf-8")
    for name, workers in ((ONE_WORKER, 1), ("2 workers", 2)):
        target = plan.scratch / f"sweep-{workers}"
        argv = [*_BFTRAINER, "sweep", file, "-o", target, "--workers", str(workers)]

        def once(_: int, argv: list[object] = argv, target: object = target) -> Sample:
            """Sweep afresh: what an earlier run left is gone."""
            shutil.rmtree(str(target), ignore_errors=True)
            return command_sample([str(word) for word in argv], plan.scratch)

        yield Case(f"{len(forward_s) * len(limits)} replays", name, once, budget_s=300.0)


def report_cases(plan: Plan) -> Iterator[Case]:
    """From a result directory to the page: of the embedded sample, and of the published replay if that is here."""
    runs = {"sample, 512 nodes": ["--max-events", "50"] if plan.quick else []}
    given = published()
    if given is not None and not plan.quick:
        options = ["-ndmap", given.node_log, "-bdfn", given.bounds, "-scfn", given.scalability]
        runs["Summit, 4,734 nodes"] = [str(word) for word in (*options, "-Tfwd", "10", "--skip-events", "1000")]
    for number, (group, options) in enumerate(runs.items()):
        run = plan.scratch / f"run-{number}"
        page = [*_BFTRAINER, "report", str(run), "-o", str(plan.scratch / "page.html"), "--force"]
        replay = replay_argv([*options, "--solver", "dp", "--no-baseline", "--output-dir", str(run)])

        def prepare(replay: list[str] = replay) -> None:
            """Replay once what the page is about."""
            command_sample(replay, plan.scratch)

        def once(_: int, page: list[str] = page) -> Sample:
            """Make the page in a process of its own."""
            return command_sample(page, plan.scratch)

        yield Case(group, "report", once, prepare=prepare, budget_s=60.0)
