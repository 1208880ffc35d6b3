"""What is told of recurrences while they run."""

from __future__ import annotations

from pathlib import Path

from bftrainer.zeus.master.recurrences import Booked, Launch, Recurrences

__all__ = ["MasterObserver"]


class MasterObserver:
    """Told what a master does; override what you need."""

    def started(self, logdir: Path, progress: Recurrences) -> None:
        """Recurrences begin, or go on, with their logs in `logdir`."""

    def launching(self, launch: Launch, progress: Recurrences) -> None:
        """A run is about to be launched."""

    def printed(self, piece: bytes) -> None:
        """The training script printed something, on standard output or error."""

    def booked(self, booked: Booked, progress: Recurrences) -> None:
        """A run has ended and is booked."""
