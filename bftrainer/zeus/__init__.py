"""Batch sizes and GPU power limits of recurring training jobs, tuned for energy and time, simulated from traces."""

from bftrainer.zeus.policies.bandit import GaussianTS, PruningExploreManager
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer
from bftrainer.zeus.policies.job import HistoryEntry, Job, zeus_cost
from bftrainer.zeus.policies.policy_registry import DefaultBatchSize, GridSearch, MaxPowerLimit, Oracle
from bftrainer.zeus.policies.published import (
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    PruningGTSBatchSizeOptimizer,
)
from bftrainer.zeus.policies.trace import BatchSizeTrace, JobTrace, PowerPoint, TrainingTrace
from bftrainer.zeus.simulation.simulator import (
    Corrections,
    Group,
    GroupJob,
    Run,
    SimulationObserver,
    Simulator,
    read_groups,
)

__all__ = [
    "BatchSizeOptimizer",
    "BatchSizeTrace",
    "Corrections",
    "DefaultBatchSize",
    "GTSBatchSizeOptimizer",
    "GaussianTS",
    "GridSearch",
    "Group",
    "GroupJob",
    "HistoryEntry",
    "JITPowerLimitOptimizer",
    "Job",
    "JobTrace",
    "MaxPowerLimit",
    "Oracle",
    "PowerLimitOptimizer",
    "PowerPoint",
    "PruningExploreManager",
    "PruningGTSBatchSizeOptimizer",
    "Run",
    "SimulationObserver",
    "Simulator",
    "TrainingTrace",
    "read_groups",
    "zeus_cost",
]
