"""What the decisions of a run know beforehand: how long nodes stay, which jobs wait, and how tasks scale."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from bftrainer.errors import SettingsError, UnusedOptionsError
from bftrainer.lifetimes import get_lifetimes, reads_queue
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.nodelogs.job_queue import queue_path, read_queue
from bftrainer.replay.foresight import Foresight
from bftrainer.runs.config import OPTIONS, ReplayConfig


def queue_file(config: ReplayConfig) -> Path | None:
    """The scheduler's jobs, if the model of lifetimes reads them: those given, or what is beside the node log.

    Raises
    ------
    SettingsError
        If the model needs them and there are none.
    UnusedOptionsError
        If they are given, and it does not read them.
    """
    if config.foresight == "none" or not reads_queue(config.foresight):
        if config.queue is not None:
            raise UnusedOptionsError({"--queue": f"foresight {config.foresight} does not read it"})
        return None
    if config.queue is not None:
        return config.queue
    if isinstance(config.node_log, Path) and (beside := queue_path(config.node_log)).exists():
        return beside
    raise SettingsError(f"Missing --queue, the scheduler's jobs, which foresight {config.foresight} plans.")


def foresees(config: ReplayConfig, log: NodeLog) -> Foresight | None:
    """What the decisions of a replay of a log foresee, by a new model; None if that is nothing.

    Raises
    ------
    LifetimeError
        If there is no such model.
    SettingsError
        If a use is unknown, or a number out of range.
    """
    if config.foresight == "none":
        return None
    model, uses = get_lifetimes(config.foresight, log.row_arrays()), config.foresight_use.split(",")
    given = {"horizon_s": config.foresight_horizon_s, "least_survival": config.foresight_least}
    queue = queue_file(config)
    jobs = None if queue is None else read_queue(queue)
    return Foresight(model, uses, **given, start_ns=log.start_ns, queue=jobs)


def check_learned(config: ReplayConfig, tasks: Sequence[TaskSpec], learned: Collection[str]) -> None:
    """Refuse what does not go with learning the curves of the tasks that are named.

    Raises
    ------
    SettingsError
        If one of them is tuned, foresight would tell their curves, or noise is given and nothing is learned.
    """
    tuned = next((task.name for task in tasks if task.name in learned and task.tuning is not None), None)
    if tuned is not None:
        raise SettingsError(f"Expected a curve of a tuned task, which its settings scale, got none (task {tuned}).")
    if learned and config.foresight != "none" and "order" in config.foresight_use.split(","):
        raise SettingsError("Expected --foresight-use value or pool: order goes by curves, which are learned here.")
    if not learned and config.profile_noise != OPTIONS["profile_noise"].default:
        raise UnusedOptionsError({"--profile-noise": "no curve is learned"})
