"""Finished runs for tests: replays of the embedded samples, cut short, in directories of their own."""

from pathlib import Path
from typing import Any

from bftrainer import run_replay
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.runs import write_run


def write_sample_run(directory: Path, *, events: int = 300, **settings: Any) -> Path:
    """A run of the embedded sample."""
    result = run_replay(
        **{"solver": "dp", "baseline": False, "max_events": events} | settings, command="bftrainer-replay --made up"
    )
    directory.mkdir(parents=True)
    write_run(result, directory)
    return directory


def write_tuned_run(directory: Path, **settings: Any) -> Path:
    """A run of the embedded tuned tasks under a power cap that does not bind."""
    tuned = {"tasks": sample_path(SAMPLE_TUNED_TASKS), "idle_power_w": 100.0, "carbon": 380.0}
    return write_sample_run(directory, **tuned | settings)
