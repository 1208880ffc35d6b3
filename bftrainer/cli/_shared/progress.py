"""The progress bar of a replay."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bftrainer.replay import Cluster, ClusterChange, Observer

REFRESH_S = 0.1


@contextmanager
def show_replay(window_s: float, tasks: int, *, wanted: bool) -> Iterator[list[Observer]]:
    """Show on a terminal how far a replay is: the larger of the window's share passed and the tasks' share done."""
    if not (wanted and sys.stderr.isatty()):
        yield []
        return
    share = TextColumn("{task.percentage:3.0f} %  {task.fields[done]} tasks done")
    columns = (TextColumn("{task.description}"), BarColumn(), share, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Replaying", total=1.0, done=0)

        class ReplayBar(Observer):
            done, shown_s = 0, 0.0

            def on_event(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002
                self.done += len(change.completed)
                if time.monotonic() - self.shown_s >= REFRESH_S:
                    self.shown_s = time.monotonic()
                    passed = max(change.time_s / max(window_s, 1e-9), self.done / max(tasks, 1))
                    progress.update(bar, completed=passed, done=self.done)

            def on_end(self, cluster: Cluster, reason: str) -> None:  # noqa: ARG002
                # What comes next, the comparison with constant pools, may take as long.
                progress.update(bar, description="Comparing", completed=1.0, done=self.done)

        yield [ReplayBar()]
