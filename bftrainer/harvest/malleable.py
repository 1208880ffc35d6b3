"""What makes a training script malleable: it saves when it is asked to end, goes on from there, and tells its progress.

Nothing but the standard library is imported.

Examples
--------
>>> def train(weights, gradient, save, load):
...     with training(save, load) as run:
...         for step in run:
...             weights -= gradient(weights, step, run.rank, run.world_size)
...             run.report(64)  # samples, those of all ranks together
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType

_REPORT_S = 0.2
_SIGNAL_S = 5.0
"""How long a rank whose peers are gone waits to be asked to end, too."""


class MalleableTraining:
    """A training in progress, on one rank: use it in a ``with`` block, and iterate over it for the steps.

    Parameters
    ----------
    save : callable
        Writes the state of the training to a path, a file or a directory; the first rank calls it.
    load : callable
        Reads it again; all ranks call it.
    agree : callable, optional
        Takes whether this rank was asked to end, and tells whether any of them was, so that all end after the same
        step; all ranks call it before each. By default each ends by itself, and others when their peers are gone.
    total : float, optional
        Work to do when the script is run by hand, by default without end. In a harvest the task's `work` counts.
    every_s : float
        Seconds between checkpoints, besides those at the end and when the script is asked to end.

    Attributes
    ----------
    rank, world_size : int
        As torch.distributed has them; 0 of 1 outside of a harvest.
    work : float
        Work done so far, by all ranks.
    total : float
        Work to do; infinite if nobody said.
    steps : int
        Steps done so far.
    """

    def __init__(
        self,
        save: Callable[[Path], object],
        load: Callable[[Path], object],
        agree: Callable[[bool], bool] = bool,
        *,
        total: float | None = None,
        every_s: float = 60.0,
    ) -> None:
        environ = os.environ
        self.rank, self.world_size = int(environ.get("RANK", 0)), int(environ.get("WORLD_SIZE", 1))
        self.total = float(environ.get("BFTRAINER_WORK", math.inf if total is None else total))
        self.work, self.steps = 0.0, 0
        self._save, self._load, self._agree, self._every_s = save, load, agree, every_s
        self._place = Path(environ.get("BFTRAINER_CHECKPOINT_DIR", "checkpoint"))
        self._progress = environ.get("BFTRAINER_PROGRESS")
        self._stop = False
        self._began, self._saved, self._saved_s, self._told_s = 0.0, 0.0, time.monotonic(), 0.0

    def __enter__(self) -> MalleableTraining:
        """Go on from the last checkpoint, if there is one."""
        signal.signal(signal.SIGTERM, self._ask)
        self._place.mkdir(parents=True, exist_ok=True)
        if checkpoints := sorted(self._place.glob("save-*")):
            steps, work = (checkpoints[-1] / "done").read_text().split()
            self.steps, self.work = int(steps), float(work)
            self._load(checkpoints[-1] / "state")
        self._began = self._saved = self.work
        self._tell()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Save, unless the script fails by itself; a rank that fails as its peers are gone is asked to end soon."""
        until_s = time.monotonic() + _SIGNAL_S
        while isinstance(error, Exception) and not self._stop and time.monotonic() < until_s and self.world_size > 1:
            time.sleep(0.05)
        if error is None or (self._stop and isinstance(error, Exception)):
            self.save()
        if error is not None and self._stop and isinstance(error, Exception):
            sys.exit(0)

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of steps, until the work is done; asked to end, save and end the script."""
        while self.work < self.total:
            if self._agree(self._stop):
                self.save()
                sys.exit(0)
            if time.monotonic() - self._saved_s > self._every_s:
                self.save()
            yield self.steps
            self.steps += 1
            self._tell()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop = True

    def report(self, work: float) -> None:
        """Count work that a step has done, by all ranks together."""
        self.work += work

    def save(self) -> None:
        """Save a checkpoint, whole or not at all; only the first rank does."""
        self._saved_s = time.monotonic()
        if self.rank:
            return
        new, place = self._place / ".new", self._place / f"save-{self.steps:012}"
        if place.exists():
            return
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        self._save(new / "state")
        (new / "done").write_text(f"{self.steps} {self.work!r}\n")
        for path in (*new.iterdir(), new):
            with suppress(OSError):  # a state may be a directory of files, on a file system that cannot flush it
                handle = os.open(path, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)
        new.rename(place)
        for old in sorted(self._place.glob("save-*"))[:-1]:
            shutil.rmtree(old)
        self._saved = self.work
        self._tell(now=True)

    def _tell(self, *, now: bool = False) -> None:
        """Tell the harvest what is done, and saved."""
        if self.rank or self._progress is None or not (now or time.monotonic() - self._told_s > _REPORT_S):
            return
        self._told_s = time.monotonic()
        with suppress(OSError):  # it is told again soon
            new = Path(f"{self._progress}.new")
            new.write_text(f"{self.work!r} {self._saved!r} {time.time()!r} {self._began!r}\n")
            new.replace(self._progress)


training = MalleableTraining
"""What scripts call: it reads as what it does."""
