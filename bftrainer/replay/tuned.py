"""Tuned tasks in the replay: give each run that starts its settings, learn from each that ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InvalidTaskError, SettingsError
from bftrainer.model import TaskSpec, Tuner
from bftrainer.replay.allocator_settings import Effects, Status
from bftrainer.replay.state import ReplayState


def held_idle_w(spec: TaskSpec, idle_node_w: float) -> float:
    """Power of a node that the task holds without training: its own idle power, else that of the pool's nodes."""
    tuning = spec.tuning
    if tuning is None or tuning.idle_power_w is None:
        return idle_node_w
    return tuning.idle_power_w * spec.gpus_per_node


def training_power_w(spec: TaskSpec, progress: float) -> NDArray[np.float64]:
    """Maximum power of a running task from now on, at each count, in watts; including while it rescales, if known.

    Raises
    ------
    InvalidTaskError
        If it is not tuned: its power is unknown.
    """
    run = spec.run
    if run is None:
        raise InvalidTaskError(f"Expected a zeus section under a power cap, got none (task {spec.name}).")
    most_w = np.maximum(run.power_w, run.profiling_power_w) if progress < run.profiling_work else run.power_w
    idle_w = held_idle_w(spec, 0.0)
    return np.maximum(most_w, idle_w * np.arange(most_w.size)) if idle_w else most_w


def drawn_at_most_w(spec: TaskSpec, progress: float, count: int) -> float:
    """`training_power_w` at one count; 0 for a task that is not tuned, or holds nothing."""
    run = spec.run
    if run is None or not count:
        return 0.0
    most_w = run.power_w.item(count)
    if progress < run.profiling_work:
        most_w = max(most_w, run.profiling_power_w.item(count))
    tuning = spec.tuning
    if tuning is None or tuning.idle_power_w is None:
        return most_w
    return max(most_w, count * held_idle_w(spec, 0.0))


def drawn_w(state: ReplayState, idle_node_w: float) -> float:
    """Most power that the pool may draw under its present allocation, in watts."""
    drawn = state.pool * idle_node_w
    slots = zip(state.active.tolist(), state.counts.tolist(), state.progress.tolist(), strict=True)
    for number, count, progress in slots:
        above_w = drawn_at_most_w(state.specs[number], progress, count) - count * idle_node_w if count else 0.0
        if above_w > 0.0:
            drawn += above_w
    return drawn


def spare_w(state: ReplayState, cap_w: float) -> float:
    """Power that training may draw beyond the pool's idle power under a cap at the meter."""
    settings = state.settings
    return cap_w / settings.pue - state.pool * settings.idle_node_w


def within_cap(state: ReplayState, cap_w: float, counts: list[int]) -> list[int]:
    """Reduce counts to meet a cap at the meter: tasks that were admitted last give up theirs."""
    if math.isinf(cap_w):
        return counts
    idle_w, left_w = state.settings.idle_node_w, spare_w(state, cap_w)
    for slot, (number, count) in enumerate(zip(state.active.tolist(), counts, strict=True)):
        above_w = drawn_at_most_w(state.specs[number], float(state.progress[slot]), count) - count * idle_w
        if above_w > left_w:
            counts[slot] = 0
        else:
            left_w -= max(0.0, above_w)
    return counts


_Held = tuple[tuple[int | None, ...], tuple[int | None, ...]]


class TunedTasks:
    """Keep a tuner and a replay's state in step.

    Parameters
    ----------
    tuner : Tuner
        Chooses and learns.

    Attributes
    ----------
    modes : dict of int to tuple of TaskSpec
        Modes of each active tuned task: one spec per power limit, the one chosen for its batch size first.
    """

    def __init__(self, tuner: Tuner) -> None:
        for method in ("start", "ended", "checkpoint"):
            if not callable(getattr(tuner, method, None)):
                raise SettingsError(f"Expected a tuner with a method {method!r}, got {tuner!r}.")
        self.tuner = tuner
        self.modes: dict[int, tuple[TaskSpec, ...]] = {}
        self._described: dict[int, TaskSpec] = {}
        self._work_at: dict[int, dict[int, float]] = {}
        self._has_choices = False
        self._undo: dict[str, Callable[[], None]] | None = None
        self._held: tuple[Sequence[TaskSpec], list[int], _Held] = ((), [], ((), ()))

    def __getstate__(self) -> dict[str, object]:
        """What is saved leaves out how to go back to an earlier state."""
        return vars(self) | {"_undo": None}

    def held(self, state: ReplayState) -> _Held:
        """Batch sizes and power limits of active tasks; they rarely change between decisions."""
        specs, active = state.specs, state.active.tolist()
        if self._held[0] is not specs or self._held[1] != active:
            runs = [specs[number].run for number in active]
            sizes = tuple(None if run is None else run.batch_size for run in runs)
            limits = tuple(None if run is None else run.power_limit_w for run in runs)
            self._held = (specs, active, (sizes, limits))
        return self._held[2]

    def checkpoint(self) -> Callable[[], None]:
        """Snapshot to return to: of the tuner, only the groups that change from now on."""
        modes, described, has_choices = dict(self.modes), dict(self._described), self._has_choices
        work_at = {task: dict(at) for task, at in self._work_at.items()}
        undo = self._undo = {}

        def bring_back() -> None:
            """Restore a snapshot into the same dictionaries, which others refer to."""
            self.modes.clear()
            self.modes.update(modes)
            self._described, self._work_at, self._has_choices = described, work_at, has_choices
            for group_back in reversed(undo.values()):
                group_back()

        return bring_back

    def _changes(self, spec: TaskSpec) -> None:
        """Save the state of a task's group before it changes, if a snapshot was taken."""
        if self._undo is not None and spec.tuning_group not in self._undo:
            self._undo[spec.tuning_group] = self.tuner.checkpoint(spec.tuning_group)

    def after(self, before: ReplayState, state: ReplayState, effects: Effects) -> tuple[ReplayState, Effects]:
        """Learn from runs that ended, and start runs of tasks that were admitted or are tried again.

        Tasks of groups that cannot go on are given up, so that others may be admitted.
        """
        self._book(before, effects)
        ended = {*effects.completed, *effects.retrying}
        for task in effects.tasks.tolist() if ended else ():
            if task in ended and before.specs[task].run is not None:
                self._changes(before.specs[task])
                self.tuner.ended(before.specs[task], self._work_at.pop(task, {}))
                self.modes.pop(task)
        state = self._started(state, (*effects.retrying, *effects.admitted))
        while lost := self._lost(state):
            for task in lost:
                self.modes.pop(task, None)
                self._work_at.pop(task, None)
            state, admitted, released = state.given_up(lost)
            effects = replace(
                effects,
                admitted=(*effects.admitted, *admitted),
                failed=(*effects.failed, *lost),
                released=(*effects.released, *released),
            )
            state = self._started(state, admitted)
        return state, effects

    def _book(self, before: ReplayState, effects: Effects) -> None:
        """Credit the net work since the last instant to the power limits that it was done at, if there are several."""
        if not self._has_choices:
            return
        for work, task in zip(effects.net.tolist(), before.active.tolist(), strict=True):
            run = before.specs[task].run
            if run is not None and len(self.modes[task]) > 1:
                at = self._work_at.setdefault(task, {})
                at[run.power_limit_w] = at.get(run.power_limit_w, 0.0) + work

    def _started(self, state: ReplayState, tasks: Sequence[int]) -> ReplayState:
        running = {}
        for task in tasks:
            spec = self._described.setdefault(task, state.specs[task])
            if spec.tuning is None:
                continue
            self._changes(spec)
            modes = self.tuner.start(spec)
            if modes:
                self.modes[task] = modes
                self._has_choices |= len(modes) > 1
                running[task] = modes[0]
        return state.respecified(running) if running else state

    def _lost(self, state: ReplayState) -> list[int]:
        """Tasks, waiting or active, of groups that cannot go on."""
        if not self.tuner.failures:
            return []
        return [
            task
            for task, spec in enumerate(state.specs)
            if state.status[task] < Status.DONE and spec.tuning is not None and spec.tuning_group in self.tuner.failures
        ]


def power_held(tuned: TunedTasks | None, state: ReplayState, cap_w: float) -> dict[str, Any]:
    """What a decision says of power: the cap and, where tasks are tuned, the most drawn and the settings in force."""
    settings = state.settings
    allowed_w = None if math.isinf(cap_w) else cap_w / settings.pue
    if tuned is None:
        return {"cap_w": allowed_w}
    sizes, limits = tuned.held(state)
    drawn = drawn_w(state, settings.idle_node_w)
    return {"drawn_w": drawn, "cap_w": allowed_w, "batch_sizes": sizes, "power_limits_w": limits}
