"""Composition: a frozen configuration in, a result and its files out."""

from bftrainer.experiment.config import ReplayConfig
from bftrainer.experiment.files import next_free, result_directory, write_run
from bftrainer.experiment.result import RunResult
from bftrainer.experiment.run import Inputs, load_inputs, run_replay

__all__ = [
    "Inputs",
    "ReplayConfig",
    "RunResult",
    "load_inputs",
    "next_free",
    "result_directory",
    "run_replay",
    "write_run",
]
