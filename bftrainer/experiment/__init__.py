"""Composition: a frozen configuration in, a result and its files out."""

from bftrainer.experiment.config import ReplayConfig
from bftrainer.experiment.directory import ResultDirectory, numbered, result_directory
from bftrainer.experiment.files import write_run
from bftrainer.experiment.result import RunResult
from bftrainer.experiment.run import Inputs, load_inputs, run_replay

__all__ = [
    "Inputs",
    "ReplayConfig",
    "ResultDirectory",
    "RunResult",
    "load_inputs",
    "numbered",
    "result_directory",
    "run_replay",
    "write_run",
]
