"""Tuned tasks of a run: their traces, read once, and a fresh tuner for each replay of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bftrainer.errors import InvalidTaskError, TrainingTraceError
from bftrainer.model import TaskSpec, Tuner
from bftrainer.model.records import PowerRecord, Recording, TaskRecord, TunedRecord
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.tuned_task import GroupTuner, PowerOptions

__all__ = ["Tuning", "with_tuning"]


@dataclass(frozen=True, slots=True, eq=False)
class Tuning:
    """What tuned tasks of a run are tuned with.

    Parameters
    ----------
    tasks : tuple of TaskSpec
        The roster.
    traces : dict
        Training traces by the two files they come from.
    seed : int
        Seed of groups without their own.
    power_options : {"chosen", "pareto", "all"}
        Power limits on offer to the allocator.
    doubts : tuple of str
        What will go wrong, one line each.
    """

    tasks: tuple[TaskSpec, ...]
    traces: dict[tuple[str, str], TrainingTrace]
    seed: int
    power_options: PowerOptions
    doubts: tuple[str, ...]

    @classmethod
    def of(cls, tasks: Sequence[TaskSpec], seed: int, power_options: PowerOptions) -> Tuning | None:
        """Read what the tasks' sections name; None if no task has one.

        Raises
        ------
        InvalidTaskError
            If a trace cannot be read, or a section does not fit its traces.
        """
        traces: dict[tuple[str, str], TrainingTrace] = {}
        for task in tasks:
            if task.tuning is None:
                continue
            files = (task.tuning.train_trace, task.tuning.power_trace)
            if files not in traces:
                try:
                    traces[files] = TrainingTrace(*files)
                except TrainingTraceError as error:
                    raise InvalidTaskError(f"{str(error).removesuffix('.')} (task {task.name}).") from None
        if not traces:
            return None
        # Made here too, to find out now what does not fit.
        doubts = tuple(GroupTuner(tasks, traces, seed, power_options).doubts())
        return cls(tuple(tasks), traces, seed, power_options, doubts)

    def tuner(self) -> Tuner:
        """A tuner that has learnt nothing yet."""
        return GroupTuner(self.tasks, self.traces, self.seed, self.power_options)


def with_tuning(recording: Recording, metered: PowerRecord, tuner: Tuner) -> Recording:
    """The recording with what tuning made of each tuned task."""
    ended: dict[str, list[int]] = {}
    for attempt in tuner.attempts:
        ended.setdefault(attempt.task, []).append(attempt.attempt)

    def tuned(number: int, task: TaskRecord) -> TaskRecord:
        """The record of a task, with its tuning if it has any."""
        spec, run = task.spec, task.spec.run
        if spec.tuning is None:
            return task
        reached = task.completed_s is not None
        tries = ended.get(spec.name, [])
        # The last one may have been cut short, by the replay's end or because the group was given up.
        under_way = run is not None and run.attempt not in tries
        return replace(
            task,
            tuned=TunedRecord(
                energy_j=metered.energy_j.get(number, 0.0),
                train_s=metered.train_s.get(number, 0.0),
                attempts=len(tries) + under_way,
                batch_size=None if run is None else run.batch_size,
                power_limit_w=None if run is None else run.power_limit_w,
                reached=reached,
                failure=None if reached else tuner.failures.get(spec.tuning_group),
            ),
        )

    return replace(recording, tasks=tuple(tuned(number, task) for number, task in enumerate(recording.tasks)))
