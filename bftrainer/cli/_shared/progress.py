"""Progress bars: of a replay, and of a count."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bftrainer.cli._shared.stdio import tell
from bftrainer.replay import Cluster, ClusterChange, Observer

REFRESH_S, LINE_S = 0.1, 60.0
_TIMES = (TimeElapsedColumn(), TimeRemainingColumn())


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[object], None]]:
    """Yield a callable that counts up by one, shown on stderr: as a bar on a terminal, else by a line a minute."""
    if sys.stderr.isatty():
        columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), *_TIMES)
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda _: bar.advance(task)
        return
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


class _ReplayBar(Observer):
    """Moves a bar with a replay: the larger of the window's share passed and the tasks' share done."""

    def __init__(self, progress: Progress, window_s: float, tasks: int) -> None:
        self._progress, self._bar = progress, progress.add_task("Replaying", total=1.0, done=0)
        self._window_s, self._tasks = max(window_s, 1e-9), max(tasks, 1)
        self._done, self._shown_s = 0, 0.0

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002
        self._done += len(change.completed)
        if time.monotonic() - self._shown_s >= REFRESH_S:
            self._shown_s = time.monotonic()
            share = max(change.time_s / self._window_s, self._done / self._tasks)
            self._progress.update(self._bar, completed=share, done=self._done)

    def on_end(self, cluster: Cluster, reason: str) -> None:  # noqa: ARG002
        # What comes next, the comparison with constant pools, may take as long.
        self._progress.update(self._bar, description="Comparing", completed=1.0, done=self._done)


@contextmanager
def show_replay(window_s: float, tasks: int) -> Iterator[list[Observer]]:
    """Show on stderr how far a replay is."""
    share = TextColumn("{task.percentage:3.0f} %  {task.fields[done]} tasks done")
    columns = (TextColumn("{task.description}"), BarColumn(), share, *_TIMES)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield [_ReplayBar(progress, window_s, tasks)]
