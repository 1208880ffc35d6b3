"""Batch sizes and GPU power limits of recurring training jobs, tuned for energy and time, simulated from traces."""

from bftrainer.zeus.bandit import GaussianTS
from bftrainer.zeus.baselines import DefaultBatchSize, GridSearch, MaxPowerLimit, Oracle
from bftrainer.zeus.cost import zeus_cost
from bftrainer.zeus.groups import Group, GroupJob, read_groups
from bftrainer.zeus.history import HistoryEntry
from bftrainer.zeus.interfaces import BatchSizeOptimizer, PowerLimitOptimizer
from bftrainer.zeus.job import Job
from bftrainer.zeus.policies import GTSBatchSizeOptimizer, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.power_limit import JITPowerLimitOptimizer
from bftrainer.zeus.pruning import PruningExploreManager
from bftrainer.zeus.simulator import Simulator
from bftrainer.zeus.trace import BatchSizeTrace, JobTrace, PowerPoint, TrainingTrace
from bftrainer.zeus.tuning import Corrections, Run, SimulationObserver
from bftrainer.zeus.ucb import UCB

__all__ = [
    "UCB",
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
