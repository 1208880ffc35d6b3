"""All workloads by name."""

from __future__ import annotations

from benchmarks.campaign import ONE_WORKER, report_cases, sweep_cases
from benchmarks.decision import (
    NODE_LEVEL,
    PRUNED,
    REFERENCE,
    TEXTBOOK,
    alike_cases,
    decision_cases,
    growth_cases,
    kinds_cases,
    pruning_cases,
    watts_cases,
)
from benchmarks.events import LOOP, event_cases
from benchmarks.logs import PLAIN_READ, PLAIN_SORT, PLAIN_TABLE, import_cases, interval_cases, log_cases
from benchmarks.processes import PLAIN_LOAD, load_cases, replay_cases, start_up_cases
from benchmarks.server import HEALTH, server_cases
from benchmarks.spot import AT_ONCE, generate_cases, spot_cases
from benchmarks.tuned import PLAIN, tuned_cases
from benchmarks.tuning import DRAWS, zeus_cases
from benchmarks.workload import Workload

__all__ = ["WORKLOADS"]

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "decision",
            "One decision, tasks x nodes, by every solver; a fresh instance each run.",
            decision_cases,
            runs=200,
            baselines=(TEXTBOOK, REFERENCE, NODE_LEVEL),
        ),
        Workload(
            "watts",
            "One decision under a power cap that binds, five power limits a task; a fresh instance each run.",
            watts_cases,
            runs=200,
            baselines=("dp",),
        ),
        Workload(
            "alike",
            "One decision of alike tasks under a power cap, in processor time; a fresh instance each run.",
            alike_cases,
            runs=40,
            baselines=("dp",),
        ),
        Workload(
            "kinds",
            "One decision on nodes of several kinds, each a capacity; a fresh instance each run.",
            kinds_cases,
            runs=60,
            baselines=("dp",),
        ),
        Workload(
            "growth",
            "How a decision grows with tasks, nodes and Jmax (else 30 tasks, 391 nodes, Jmax 64).",
            growth_cases,
            runs=50,
            baselines=(TEXTBOOK, REFERENCE),
        ),
        Workload(
            "pruning",
            "What dropping options that no optimum uses saves: a decision with and without.",
            pruning_cases,
            runs=50,
            baselines=(PRUNED,),
        ),
        Workload("events", "An event of a replay, the mean over it, on 9,400 nodes.", event_cases, 3, (LOOP,)),
        Workload("replay", "A whole replay as a process, loading and writing included.", replay_cases, 3, ("dp",)),
        Workload("load", "A pickled node log to transitions, as a process.", load_cases, 5, (PLAIN_LOAD,)),
        Workload(
            "import", "A year of sacct with hostlists to a node log, as a process.", import_cases, 3, (PLAIN_READ,)
        ),
        Workload(
            "intervals", "Busy intervals of 5,000 nodes to a node log, as a process.", interval_cases, 3, (PLAIN_SORT,)
        ),
        Workload("logs", "A log of a large machine, as a process.", log_cases, 3, (PLAIN_TABLE,)),
        Workload(
            "spot", "Checkpointed training simulated on a trace, a fresh one each run.", spot_cases, 20, (AT_ONCE,)
        ),
        Workload("generate", "A trace generated, not written.", generate_cases, 5),
        Workload(
            "zeus",
            "Simulated tuning: a run, over 100 recurrences of each job, median of jobs; a process, start to end.",
            zeus_cases,
            runs=50,
            baselines=(DRAWS,),
        ),
        Workload(
            "tuned",
            "An event of a replay whose tasks tune batch size and power limit, the mean over the replay.",
            tuned_cases,
            runs=5,
            baselines=(PLAIN,),
        ),
        Workload("sweep", "A sweep as a process, start to end.", sweep_cases, 2, (ONE_WORKER,)),
        Workload("report", "The page of a finished run, as a process.", report_cases, 5),
        Workload(
            "server",
            "A cycle of prediction and report over HTTP: one worker, SQLite, results never forgotten.",
            server_cases,
            runs=5,
            baselines=(HEALTH,),
        ),
        Workload(
            "start-up", "Until a process has answered that does nothing.", start_up_cases, 10, ("python -c pass",)
        ),
    )
}
