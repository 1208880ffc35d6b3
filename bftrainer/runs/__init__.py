"""One run: a frozen configuration in, a result and its files out."""

from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.files import write_run
from bftrainer.runs.result import RunResult
from bftrainer.runs.run import Inputs, load_inputs, run_replay

__all__ = ["Inputs", "ReplayConfig", "RunResult", "load_inputs", "run_replay", "write_run"]
