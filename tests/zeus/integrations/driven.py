"""A driver that does what a test says, and notes what it was asked."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

from bftrainer.zeus.integrations import Ranks, TrialDriver


class ScriptedRun(TrialDriver):
    """Ends after some epochs, or at the first metric of 0.9; breaks where it is told to."""

    def __init__(self, max_epochs: int = 5, breaks_at: int | None = None) -> None:
        self.batch_size, self.max_epochs, self.breaks_at = 32, max_epochs, breaks_at
        self.epochs_done, self.reached, self.begun = 0, False, False
        self.steps_seen, self.metrics = 0, []

    def begin_epoch(self) -> bool:
        """Begin an epoch, unless it breaks."""
        self.epochs_done += self.begun
        if self.epochs_done == self.breaks_at:
            raise OSError("the server is gone")
        self.begun = not self.reached and self.epochs_done < self.max_epochs
        return self.begun

    def step(self) -> None:
        """Count."""
        self.steps_seen += 1

    def report(self, metric: float) -> bool:
        """Note."""
        self.metrics.append(round(metric, 4))
        self.reached = metric >= 0.9
        return self.reached


class ThreadRanks(Ranks):
    """Ranks that are threads of this process."""

    def __init__(self, rank: int, queues: list[SimpleQueue]) -> None:
        self.rank, self.size, self.queues = rank, len(queues), queues

    def broadcast(self, value: Any) -> Any:
        """Send by queues."""
        if self.rank == 0:
            for queue in self.queues[1:]:
                queue.put(value)
            return value
        return self.queues[self.rank].get(timeout=60)


def on_threads(size: int, work: Any) -> list[Any]:
    """What `work(ranks)` returns or raises on each of some ranks."""
    queues = [SimpleQueue() for _ in range(size)]
    found: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            found[rank] = work(ThreadRanks(rank, queues))
        except Exception as error:  # the test says which it expects
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found
