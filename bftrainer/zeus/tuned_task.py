"""Tune batch size and power limit of a replay's tasks: recurrences of jobs, in groups that learn together.

Work is counted in epochs. On n nodes a run does ``speedup(n) / time_per_epoch`` epochs/s, where the speed-up is the
task's own scaling curve relative to one node: the traces measure one node (or one group of GPUs), and the curve says
what data-parallel training makes of more, at an unchanged batch size per GPU.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from bftrainer.errors import InvalidTaskError, TuningError, TuningInputError
from bftrainer.model import ScalingCurve, TaskSpec, TunedRun, TuningSpec
from bftrainer.model.records import PowerRecord, Recording, TunedRecord
from bftrainer.model.type_checks import whole_number
from bftrainer.plugins import answering
from bftrainer.zeus.policies.job import NEVER_RAN_FACTOR, Job, RecurrenceTracker
from bftrainer.zeus.policies.policy_registry import PolicyContext, batch_size_optimizer, power_limit_optimizer
from bftrainer.zeus.policies.trace import BatchSizeTrace, PowerPoint, TrainingTrace
from bftrainer.zeus.simulation.simulator import JobTuning, Run, Training

PowerOptions = Literal["chosen", "pareto", "all"]
Policies = tuple[str, str]
_Traces = Mapping[tuple[str, str], TrainingTrace]


@dataclass(frozen=True, slots=True, eq=False)
class _Launch:
    """A run that is still going on."""

    run: Run
    sized: BatchSizeTrace
    chosen: PowerPoint


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished run of a tuned task, as reported to its group."""

    group: str
    task: str
    recurrence: int  # number of the task in its group, in order of admission, and of its try; from 0
    attempt: int
    batch_size: int
    power_limit_w: int  # the one that was chosen for the batch size
    energy_j: float  # energy and time of its net work on one node, from which the group's policy learns
    train_s: float
    reached: bool


@contextmanager
def _name_policy(who: str) -> Iterator[None]:
    """Name the policy in errors of what it does; that it is stuck is none."""
    with answering(who, TuningInputError):
        try:
            yield
        except TuningInputError as error:
            raise TuningInputError(f"{who}: {error}") from None


class _Group:
    """Recurrences of one job: which tasks are running, and what the policies have learned."""

    def __init__(self, section: TuningSpec, tuning: JobTuning, policies: Policies) -> None:
        self.section, self.tuning, self.policies = section, tuning, policies
        self.best_batch_size, self.best_cost = section.default_batch_size, math.inf
        self.recurrences: dict[str, int] = {}
        self.in_flight: dict[str, _Launch] = {}

    def launch(self, task: str) -> _Launch:
        """Choose settings and draw the path of the task's next run; skip tries that never start."""
        tuning, trace = self.tuning, self.tuning.training.trace
        recurrence = self.recurrences.setdefault(task, len(self.recurrences))
        while True:
            batch_size = self.best_batch_size
            if not self.in_flight:
                with _name_policy(f"batch-size policy {self.policies[0]}"):
                    chosen = whole_number("its choice", tuning.batch_sizes.predict(tuning.job), TuningInputError)
                    batch_size = trace.at(chosen).batch_size
            with _name_policy(f"power-limit policy {self.policies[1]}"):
                run = tuning.run(batch_size, recurrence)
            if run.started:
                sized = trace.at(batch_size)
                launch = self.in_flight[task] = _Launch(run, sized, sized.point(run.power_limit_w))
                return launch
            self._end(run._replace(cost_j=NEVER_RAN_FACTOR * tuning.tracker.cost_bound_j()))

    def _end(self, run: Run) -> None:
        with _name_policy(f"batch-size policy {self.policies[0]}"):
            self.tuning.end(run)

    def end(self, task: str, run: Run) -> None:
        """Learn from a task's run that has ended: `TuningError` if it was the first, or the last try, in vain."""
        del self.in_flight[task]
        run = run._replace(cost_j=self.tuning.training.cost(run.traced_energy_j, run.traced_time_s))
        self._end(run)
        if run.reached and run.cost_j < self.best_cost:
            self.best_cost, self.best_batch_size = run.cost_j, run.batch_size


class GroupTuner:
    """Tunes all tasks of a replay that have a tuning section, group by group.

    Tasks of one group are recurrences of one job and share its policies; a task without a group forms its own. A task
    that is admitted while others of its group run uses the best known batch size; otherwise the policy chooses. The
    policies learn a run's net work on one node, which can be compared between node counts; waiting, rescaling and
    preemption are left out. The traces are by the two file names in tuning sections. Of the power limits measured for a
    batch size, the allocator may use the chosen one, those on the energy-time Pareto front, or all (`power_options`).
    See You et al., "Zeus", NSDI '23, sections 4.2 to 4.4.
    """

    def __init__(
        self,
        tasks: Iterable[TaskSpec],
        traces: _Traces,
        seed: int = 0,
        power_options: PowerOptions = "chosen",
        policies: Policies = ("zeus", "jit"),
    ) -> None:
        self.power_options = power_options
        self.attempts: list[Attempt] = []
        self.failures: dict[str, str] = {}
        self._traces, self._seed, self._policies = traces, seed, policies
        self._groups: dict[str, _Group] = {}
        sections = [(task, task.tuning) for task in tasks if task.tuning is not None]
        alone = {task.name for task, _ in sections if task.group is None}
        for task, section in sections:
            if task.group in alone:
                raise InvalidTaskError(
                    f"Group {task.group!r} of task {task.name} has the name of a task without a group."
                )
            self._group(task, section)

    def _group(self, task: TaskSpec, section: TuningSpec) -> _Group:
        """Return a task's group; make it at its first task."""
        key = task.tuning_group
        if key not in self._groups:
            policies = section.policy or self._policies[0], section.power_policy or self._policies[1]
            tuning = _start(task, section, self._traces, self._seed, policies)
            self._groups[key] = _Group(section, tuning, policies)
        group = self._groups[key]
        if group.section != section:
            raise InvalidTaskError(f"Expected one zeus section for all of group {key}, got another (task {task.name}).")
        return group

    def start(self, task: TaskSpec) -> tuple[TaskSpec, ...]:
        """See `bftrainer.model.Tuner`."""
        key, section = task.tuning_group, task.tuning
        if section is None or key in self.failures:
            return ()
        try:
            launch = self._group(task, section).launch(task.name)
        except TuningError as error:
            self.failures[key] = str(error)
            return ()
        # Power limits that the allocator may use, the chosen one first.
        others: Sequence[PowerPoint] = ()
        if self.power_options != "chosen":
            others = launch.sized.points if self.power_options == "all" else launch.sized.pareto_points()
        limits = [launch.chosen, *(point for point in others if point is not launch.chosen)]
        return tuple(_specify_run(task, launch, point) for point in limits)

    def ended(self, running: TaskSpec, work_at: Mapping[int, float]) -> None:
        """See `bftrainer.model.Tuner`."""
        key = running.tuning_group
        group = self._groups[key]
        launch = group.in_flight[running.name]
        run = _account_run(launch, work_at)
        # The first four fields of a run: recurrence, attempt, batch size and power limit.
        self.attempts.append(Attempt(key, running.name, *run[:4], run.energy_j, run.time_s, run.reached))
        try:
            group.end(running.name, run)
        except TuningError as error:
            self.failures[key] = str(error)

    def checkpoint(self, group: str) -> Callable[[], None]:
        """See `bftrainer.model.Tuner`."""
        saved = copy.deepcopy(self._groups.get(group))
        attempts, failures = len(self.attempts), dict(self.failures)

        def restore() -> None:
            """Restore group, attempts and failures; attempts were only appended since."""
            if saved is None:
                self._groups.pop(group, None)
            else:
                self._groups[group] = saved
            del self.attempts[attempts:]
            self.failures.clear()
            self.failures.update(failures)

        return restore


def _start(task: TaskSpec, section: TuningSpec, traces: _Traces, seed: int, policies: Policies) -> JobTuning:
    """Make a group's policies in their first state."""
    names = (section.dataset, section.network, section.optimizer)
    job = Job(*names, section.target_metric, section.max_epochs, section.default_batch_size)
    seed = seed if section.seed is None else section.seed
    measured = traces.get((section.train_trace, section.power_trace))
    if measured is None:
        raise InvalidTaskError(
            f"Traces {section.train_trace}, {section.power_trace} of task {task.name} were not read."
        )
    try:
        trace = measured.of(job)
        trace.at(section.default_batch_size)
        for sized in trace.batch_sizes.values():
            _ = sized.target_epochs and sized.profiling_epoch  # whose power must be a number
    except ValueError as error:
        raise InvalidTaskError(f"{section.train_trace}, task {task.name}: {error}") from None
    context = PolicyContext(measured, job, section.eta, section.beta, seed, concurrency=True)
    try:
        sizes, limits = batch_size_optimizer(policies[0], context), power_limit_optimizer(policies[1], context)
    except TuningInputError as error:
        raise InvalidTaskError(f"task {task.name}: {error}") from None
    with _name_policy(f"batch-size policy {policies[0]}"):
        sizes.register_job(job, list(trace.batch_sizes))
    for name, policy in zip(policies, (sizes, limits), strict=True):
        with _name_policy(f"policy {name}, which replays copy"):
            copy.deepcopy(policy)
    training = Training(job, trace, section.eta, np.random.default_rng(seed))
    return JobTuning(training, sizes, limits, RecurrenceTracker(job, section.beta))


def _specify_run(task: TaskSpec, launch: _Launch, point: PowerPoint) -> TaskSpec:
    """Return the task as it runs at one power limit."""
    counts = np.arange(task.max_nodes + 1)
    gpus = (counts * task.gpus_per_node).astype(np.float64)
    energy_j, time_s = launch.sized.profiling_epoch
    # The profiling epoch counts as the work that the chosen limit would do in the same time.
    profiling = time_s / launch.chosen.time_per_epoch_s if launch.run.profiled else 0.0
    work = launch.run.epochs - 1 + profiling if launch.run.profiled else launch.run.epochs
    power_w = gpus * point.average_power_w
    run = TunedRun(
        attempt=launch.run.attempt,
        batch_size=launch.sized.batch_size,
        power_limit_w=int(point.limit_w),
        reaches=launch.run.reached,
        power_w=power_w,
        profiling_work=profiling,
        # Costs may lower progress below 0; there the task draws the power of training, not of profiling.
        profiling_power_w=gpus * (energy_j / time_s) if launch.run.profiled else power_w,
    )
    speedups = task.rates / task.scaling.at(1)
    # A credit from the file is kept; otherwise the credit is the work, in epochs.
    credit = None if task.scaling.credit is None else tuple(task.credits.tolist())
    curve = ScalingCurve(tuple(counts.tolist()), tuple((speedups / point.time_per_epoch_s).tolist()), credit)
    return replace(task, work=work, scaling=curve, run=run)


def _account_run(launch: _Launch, work_at: Mapping[int, float]) -> Run:
    """Return a run with its energy and time on one node, from the work done at each power limit."""
    if set(work_at) <= {int(launch.chosen.limit_w)}:
        return launch.run
    # Profiling counts as work of the chosen limit, whatever limit was set meanwhile.
    energy_j, time_s = launch.sized.profiling_epoch if launch.run.profiled else (0.0, 0.0)
    total = sum(work_at.values())
    share = (launch.run.epochs - launch.run.profiled) / total if total else 0.0
    for limit, work in work_at.items():
        point = launch.sized.point(limit)
        energy_j += share * work * point.energy_per_epoch_j
        time_s += share * work * point.time_per_epoch_s
    return launch.run._replace(traced_energy_j=energy_j, traced_time_s=time_s)


def read_tuner(
    tasks: Sequence[TaskSpec],
    seed: int = 0,
    power_options: PowerOptions = "chosen",
    policies: Policies = ("zeus", "jit"),
) -> Callable[[], GroupTuner]:
    """Read the traces that the tasks' zeus sections name, and return what makes a new tuner."""
    traces: dict[tuple[str, str], TrainingTrace] = {}
    for task in tasks:
        if task.tuning is None or (files := (task.tuning.train_trace, task.tuning.power_trace)) in traces:
            continue
        try:
            traces[files] = TrainingTrace(*files)
        except TuningInputError as error:
            raise InvalidTaskError(f"{str(error).removesuffix('.')} (task {task.name}).") from None
    return partial(GroupTuner, tuple(tasks), traces, seed, power_options, policies)


def record_tuning(recording: Recording, metered: PowerRecord, tuner: GroupTuner) -> Recording:
    """Add the outcome of tuning to the recording of each tuned task."""
    ended = defaultdict[str, list[int]](list)
    for attempt in tuner.attempts:
        ended[attempt.task].append(attempt.attempt)
    tasks = list(recording.tasks)
    for number, task in enumerate(tasks):
        spec, run, reached = task.spec, task.spec.run, task.completed_s is not None
        if spec.tuning is None:
            continue
        # The last try may have been cut short, by the replay's end or because the group was given up.
        under_way = run is not None and run.attempt not in ended[spec.name]
        outcome = TunedRecord(
            energy_j=metered.energy_j.get(number, 0.0),
            train_s=metered.train_s.get(number, 0.0),
            attempts=len(ended[spec.name]) + under_way,
            batch_size=None if run is None else run.batch_size,
            power_limit_w=None if run is None else run.power_limit_w,
            reached=reached,
            failure=None if reached else tuner.failures.get(spec.tuning_group),
        )
        tasks[number] = replace(task, tuned=outcome)
    return replace(recording, tasks=tuple(tasks))
