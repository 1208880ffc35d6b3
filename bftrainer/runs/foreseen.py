"""What a configuration lets decisions foresee, the scheduler's queue that this takes, and what does not go with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from bftrainer.errors import SettingsError, UnusedOptionsError
from bftrainer.lifetimes import AgeLifetimes, get_lifetimes, reads_queue
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.lifetime import JobQueue, LifetimeModel
from bftrainer.nodelogs.job_queue import queue_path
from bftrainer.replay.foresight import Foresight
from bftrainer.runs.config import OPTIONS, ReplayConfig


def queue_file(config: ReplayConfig) -> Path | None:
    """The scheduler's jobs, if the model of lifetimes reads them: those given, or what is beside the node log.

    Raises
    ------
    LifetimeError
        If there is no such model.
    SettingsError
        If the model needs them and there are none.
    UnusedOptionsError
        If they are given, and it does not read them.
    """
    model, given = config.foresight, config.queue
    if model == "none" or not reads_queue(model):
        if given is not None:
            raise UnusedOptionsError({"--queue": f"foresight {model} does not read it"})
        return None
    if given is not None:
        return given
    if isinstance(config.node_log, Path) and (beside := queue_path(config.node_log)).exists():
        return beside
    raise SettingsError(f"Missing --queue, the scheduler's jobs, which foresight {model} plans.")


def foreseen(config: ReplayConfig, log: NodeLog, queue: JobQueue | None) -> Foresight | None:
    """What the decisions of a replay of a log foresee, by a new model; None if that is nothing.

    Raises
    ------
    LifetimeError
        If there is no such model, or it cannot be made.
    SettingsError
        If a use is unknown, or a number out of range.
    """
    if config.foresight == "none":
        return None
    return _foresight(config, get_lifetimes(config.foresight, log.row_arrays()), log, queue)


def _foresight(config: ReplayConfig, model: LifetimeModel, log: NodeLog, queue: JobQueue | None) -> Foresight:
    return Foresight(
        model,
        config.foresight_use.split(","),
        horizon_s=config.foresight_horizon_s,
        least_survival=config.foresight_least,
        start_ns=log.start_ns,
        forward_time_s=config.forward_time_s,
        queue=queue,
    )


def refuse_unfit(config: ReplayConfig, log: NodeLog, tasks: Sequence[TaskSpec], learned: Collection[str]) -> None:
    """Refuse a use of foresight that cannot be, and what does not go with learning the curves of tasks.

    Raises
    ------
    SettingsError
        If a use is unknown, a number is out of range, a task that learns its curve is tuned, foresight would tell its
        curve, or noise is given and nothing learns.
    """
    if config.foresight != "none":
        _foresight(config, AgeLifetimes(), log, None)  # whatever the model, which is made when the replay begins
    tuned = next((task.name for task in tasks if task.name in learned and task.tuning is not None), None)
    if tuned is not None:
        why = "its batch size and power limit scale a curve that decisions know"
        raise SettingsError(f"Expected no tuned task among those whose curves are learned, got {tuned}: {why}.")
    if learned and config.foresight != "none" and {"order", "cohort"} & set(config.foresight_use.split(",")):
        why = "order, the default, and cohort go by curves, which are learned here"
        raise SettingsError(f"Expected --foresight-use value, forward or pool (add one): {why}.")
    if not learned and config.profile_noise != OPTIONS["profile_noise"].default:
        raise UnusedOptionsError({"--profile-noise": "no curve is learned"})
