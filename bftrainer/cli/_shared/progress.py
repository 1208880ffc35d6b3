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
from bftrainer.replay import Adoption, Cluster, ClusterChange, Observer

REFRESH_S, LINE_S = 0.1, 60.0


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[object], None]]:
    """Yield a callable that counts up by one, shown on stderr: as a bar on a terminal, else by a line a minute."""
    if sys.stderr.isatty():
        columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
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


@contextmanager
def show_replay(window_s: float, tasks: int) -> Iterator[list[Observer]]:
    """Show how far a replay is: the larger of the window's share passed and the tasks' share done."""
    counts = TextColumn("{task.percentage:3.0f} %  {task.fields[done]} tasks done, {task.fields[decisions]} decisions")
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Replaying", total=1.0, done=0, decisions=0)

        class ReplayBar(Observer):
            done = decisions = 0
            shown_s = 0.0

            def on_event(self, cluster: Cluster, change: ClusterChange) -> None:  # noqa: ARG002
                self.done += len(change.completed)
                if time.monotonic() - self.shown_s >= REFRESH_S:
                    self.shown_s = time.monotonic()
                    share = max(change.time_s / max(window_s, 1e-9), self.done / max(tasks, 1))
                    progress.update(bar, completed=share, done=self.done, decisions=self.decisions)

            def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:  # noqa: ARG002
                self.decisions += 1

            def on_end(self, cluster: Cluster, reason: str) -> None:  # noqa: ARG002
                # What comes next, the comparison with constant pools, may take as long.
                progress.update(bar, description="Comparing", completed=1.0, done=self.done, decisions=self.decisions)

        yield [ReplayBar()]
