"""Tuned tasks in the replay: give each run that starts its settings, learn from each that ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bftrainer.errors import SettingsError
from bftrainer.model import TaskSpec, Tuner
from bftrainer.replay.allocator_settings import Status
from bftrainer.replay.cluster import Cluster, ClusterChange, ClusterTask


class TunedTasks:
    """Keep a tuner and a cluster in step."""

    def __init__(self, tuner: Tuner) -> None:
        for method in ("start", "ended", "checkpoint"):
            if not callable(getattr(tuner, method, None)):
                raise SettingsError(f"Expected a tuner with a method {method!r}, got {tuner!r}.")
        self.tuner = tuner
        self._described: dict[int, TaskSpec] = {}
        self._work_at: dict[int, dict[int, float]] = {}
        self._undo: dict[str, Callable[[], None]] | None = None

    def checkpoint(self) -> Callable[[], None]:
        """Snapshot to return to: of the tuner, only the groups that change from now on."""
        described, work_at = dict(self._described), {task: dict(at) for task, at in self._work_at.items()}
        undo = self._undo = {}

        def restore() -> None:
            self._described, self._work_at = described, work_at
            for restore_group in reversed(undo.values()):
                restore_group()

        return restore

    def _save_group(self, spec: TaskSpec) -> None:
        """Save the state of a task's group before it changes, if a snapshot was taken."""
        if self._undo is not None and spec.tuning_group not in self._undo:
            self._undo[spec.tuning_group] = self.tuner.checkpoint(spec.tuning_group)

    def update(self, cluster: Cluster, change: ClusterChange) -> None:
        """Learn from runs that ended, and start runs of tasks that were admitted or are tried again.

        Tasks of groups that cannot go on are given up, so that others may be admitted.
        """
        for task in change.tasks:
            run = task.span_spec.run if len(task.modes) > 1 else None
            if run is not None:  # net work counts for the power limit that it was done at
                at = self._work_at.setdefault(task.number, {})
                at[run.power_limit_w] = at.get(run.power_limit_w, 0.0) + task.net
        ended = [*change.completed, *change.retrying]
        for task in sorted(ended, key=change.tasks.index) if len(ended) > 1 else ended:
            if task.span_spec.run is not None:
                self._save_group(task.span_spec)
                self.tuner.ended(task.span_spec, self._work_at.pop(task.number, {}))
                task.modes = ()
        self._start(cluster, (*change.retrying, *change.admitted))
        while lost := self.tuner.failures and [
            task
            for task in cluster.tasks
            if task.status < Status.DONE and task.spec.tuning and task.spec.tuning_group in self.tuner.failures
        ]:
            for task in lost:
                task.modes = ()
                self._work_at.pop(task.number, None)
            self._start(cluster, cluster.fail(lost))

    def _start(self, cluster: Cluster, tasks: Iterable[ClusterTask]) -> None:
        for task in tasks:
            spec = self._described.setdefault(task.number, task.spec)
            if spec.tuning is None:
                continue
            self._save_group(spec)
            task.modes = self.tuner.start(spec)
            if task.modes:
                cluster.respecify(task, task.modes[0])
