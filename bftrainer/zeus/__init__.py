"""Batch sizes and GPU power limits of recurring training jobs, tuned for energy and time, simulated from traces."""

from bftrainer.zeus.policies.bandit import GaussianTS
from bftrainer.zeus.policies.baselines import DefaultBatchSize, GridSearch, MaxPowerLimit, Oracle
from bftrainer.zeus.policies.cost import zeus_cost
from bftrainer.zeus.policies.history import HistoryEntry
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.policies import GTSBatchSizeOptimizer, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.policies.power_limit import JITPowerLimitOptimizer
from bftrainer.zeus.policies.pruning import PruningExploreManager
from bftrainer.zeus.policies.trace import BatchSizeTrace, JobTrace, PowerPoint, TrainingTrace
from bftrainer.zeus.policies.ucb import UCB
from bftrainer.zeus.simulation.groups import Group, GroupJob, read_groups
from bftrainer.zeus.simulation.simulator import Simulator
from bftrainer.zeus.simulation.tuning import Corrections, Run, SimulationObserver

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
