"""Progress bars: of a replay, and of a count."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bftrainer.cli._shared.stdio import tell
from bftrainer.replay import Adoption, Cluster, ClusterChange, Observer


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[object], None]]:
    """Yield a callable that counts up by one; shown as a bar on stderr if that is a terminal, else by a line a minute.

    Parameters
    ----------
    label : str
        Text beside the bar.
    total : int
        Final count.
    """
    if not sys.stderr.isatty():
        done: list[object] = []
        ended = threading.Event()

        def tell_minutes() -> None:
            """Say each minute how far it is."""
            minutes = 0
            while not ended.wait(LINE_S):
                minutes += 1
                tell(f"{label}: {len(done):,} of {total:,} after {minutes:,} min")

        threading.Thread(target=tell_minutes, daemon=True).start()
        try:
            yield done.append
        finally:
            ended.set()
        return
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task)  # noqa: ARG005


REFRESH_S, LINE_S = 0.1, 60.0


class ProgressBar(Observer):
    """Shows how far a replay is: the larger of the window's share passed and the tasks' share done.

    Parameters
    ----------
    window_s : float
        Length of the window.
    tasks : int
        Tasks in the set.
    """

    def __init__(self, window_s: float, tasks: int) -> None:
        self._window_s = max(window_s, 1e-9)
        self._tasks = max(tasks, 1)
        self._done = 0
        self._decisions = 0
        self._shown = 0.0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %  {task.fields[done]} tasks done, {task.fields[decisions]} decisions"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar = self._progress.add_task("Replaying", total=1.0, done=0, decisions=0)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002
        """Move the bar, at most a few times a second."""
        self._done += len(change.completed)
        now = time.monotonic()
        if now - self._shown >= REFRESH_S:
            self._shown = now
            share = max(change.time_s / self._window_s, self._done / self._tasks)
            self._progress.update(self._bar, completed=share, done=self._done, decisions=self._decisions)

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:  # noqa: ARG002
        """Count a decision."""
        self._decisions += 1

    def on_end(self, cluster: Cluster, reason: str) -> None:  # noqa: ARG002
        """Fill the bar, and announce the comparison with constant pools, which may take as long."""
        self._progress.update(
            self._bar, description="Comparing", completed=1.0, done=self._done, decisions=self._decisions
        )
