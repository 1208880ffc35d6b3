"""Show recurrences while they run: the script's output, and the job's progress."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from bftrainer.cli.zeus.output import number
from bftrainer.zeus.master.recurrences import Booked, Launch, MasterObserver, Recurrences

# Longer lines are shown in parts, so that a script that never ends its line cannot fill the memory.
LONGEST = 1 << 16


def _beginning(launch: Launch) -> str:
    return f"recurrence {launch.recurrence}, try {launch.attempt}: batch size {launch.batch_size}"


def _ending(booked: Booked) -> str:
    verdict = "reached the target" if booked.reached else booked.failure or "missed the target"
    return f"{_beginning(booked.launch)} {verdict}, {number(booked.energy_j)} J in {number(booked.time_s)} s"


class PlainDisplay(MasterObserver):
    """Prints lines on stderr, and the script's output unchanged.

    Parameters
    ----------
    quiet : bool
        Whether to leave out the script's output.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._at_beginning = True

    def started(self, logdir: Path, progress: Recurrences) -> None:
        """Print which job runs, and where its logs are."""
        self._print_line(f"{progress.plan.job} x {progress.plan.recurrences}, logs in {logdir}")

    def launching(self, launch: Launch, progress: Recurrences) -> None:  # noqa: ARG002
        """Print the run that is launched."""
        self._print_line(_beginning(launch))

    def printed(self, piece: bytes) -> None:
        """Pass on the script's output."""
        if not self._quiet:
            sys.stderr.flush()
            sys.stderr.buffer.write(piece)
            sys.stderr.buffer.flush()
            self._at_beginning = piece.endswith(b"\n")

    def booked(self, booked: Booked, progress: Recurrences) -> None:  # noqa: ARG002
        """Print the result of a run."""
        self._print_line(_ending(booked))

    def _print_line(self, line: str) -> None:
        print("" if self._at_beginning else "\n", line, sep="", file=sys.stderr, flush=True)
        self._at_beginning = True


class LiveDisplay(MasterObserver):
    """Shows a progress bar of recurrences at the bottom of a terminal, and the script's lines above it.

    Parameters
    ----------
    quiet : bool
        Whether to leave out the script's output.
    console : Console, optional
        Where to show it; by default stderr.
    """

    def __init__(self, *, quiet: bool, console: Console | None = None) -> None:
        self._quiet = quiet
        self._partial = b""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console or Console(stderr=True))
        self._bar = self._progress.add_task("Starting", total=None)

    def __enter__(self) -> LiveDisplay:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def started(self, logdir: Path, progress: Recurrences) -> None:
        """Print which job runs, and where its logs are; set the bar to the recurrences done."""
        self._print_line(f"{progress.plan.job}, logs in {logdir}", "bold")
        self._progress.update(self._bar, total=progress.plan.recurrences, completed=progress.recurrence - 1)

    def launching(self, launch: Launch, progress: Recurrences) -> None:  # noqa: ARG002
        """Show the run that is launched, and the bound on its cost."""
        limit = "" if launch.cost_bound_j is None else f", at most {number(launch.cost_bound_j)} J"
        self._progress.update(self._bar, description=f"{_beginning(launch)}{limit}")

    def printed(self, piece: bytes) -> None:
        """Show complete lines; of a line that was overwritten, only the final text."""
        *lines, partial = (self._partial + piece).split(b"\n")
        self._partial = partial[partial.rstrip(b"\r").rfind(b"\r") + 1 :]
        if len(self._partial) > LONGEST:
            lines.append(self._partial)
            self._partial = b""
        if not self._quiet:
            for line in lines:
                self._show(line)

    def booked(self, booked: Booked, progress: Recurrences) -> None:
        """Show the result of a run, and the progress of the recurrences."""
        if self._partial and not self._quiet:
            self._show(self._partial)
        self._partial = b""
        self._print_line(_ending(booked), "green" if booked.reached else "yellow")
        self._progress.update(self._bar, completed=progress.recurrence - 1)

    def _show(self, line: bytes) -> None:
        left = line.rstrip(b"\r").rpartition(b"\r")[2]
        self._progress.console.print(Text.from_ansi(left.decode(errors="replace"), style="dim"))

    def _print_line(self, line: str, style: str) -> None:
        self._progress.console.print(Text(line, style=style))
