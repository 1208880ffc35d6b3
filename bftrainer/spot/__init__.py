"""Preemptible nodes: measure and generate their traces, and simulate checkpointed training on them."""

from bftrainer.spot.checkpointing import CheckpointedTraining, simulate
from bftrainer.spot.generation import MinuteModel, generate_holes, generate_minutes
from bftrainer.spot.run import Prices, run_figures
from bftrainer.spot.statistics import trace_statistics
from bftrainer.spot.supercomputer import SupercomputerModel

__all__ = [
    "CheckpointedTraining",
    "MinuteModel",
    "Prices",
    "SupercomputerModel",
    "generate_holes",
    "generate_minutes",
    "run_figures",
    "simulate",
    "trace_statistics",
]
