"""Watch a scheduler: write down, poll by poll, which nodes are idle: in a journal, and at the end as a node log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from bftrainer.errors import OutputError, PollError, SettingsError
from bftrainer.files.writing import LineJournal, lock_file, refuse_existing, seal_line, unseal_line
from bftrainer.harvest.scheduler_polls import CommandPoll, Pool, SlurmPoll, changes
from bftrainer.model import iso
from bftrainer.nodelogs.node_log_files import node_log_files, write_node_log
from bftrainer.nodelogs.node_spans import nanoseconds
from bftrainer.schedulers.formats.node_states import KIND, POLL, missed_line, poll_line, session_line, time_of
from bftrainer.schedulers.import_log import Imported, import_log, quality_path, write_quality_json

LEAST_EVERY_S = 1.0
_STATED_ANEW_S = 86_400.0
_MILLISECOND = 0.001
_SHOWN = 80


def journal_path(path: Path) -> Path:
    """Path of the journal beside a node log: `idle.watch` for `idle.parquet` and `idle.csv.gz`."""
    return path.parent / f"{path.name.removesuffix('.gz').rpartition('.')[0]}.watch"


def begin_or_continue(journal: LineJournal, source: str) -> str:
    """Last line of a watch's journal, begun if it has none; an `OutputError` if it is of something else."""
    title, lines = unseal_line(seal_line(f"{KIND}: {source}")) or "", journal.read()  # without ends of lines within it
    content = journal.path.read_bytes() if not lines and journal.path.exists() else b""
    if not lines and seal_line(title).startswith(content):  # new, or killed just then
        journal.append([seal_line(title)])
        return title
    first = (unseal_line(lines[0]) or "") if lines else ""
    if first != title:
        about = first.removeprefix(f"{KIND}: ")
        actual = f"one of {about[:_SHOWN]}" if about != first else "something else"
        raise OutputError(f"{journal.path}: Expected a journal of {source[:_SHOWN]}, got {actual}.")
    return unseal_line(lines[-1]) or ""


class Watch:
    """Writes what polls say into a journal, and makes a node log of it; goes on where another one ended.

    The journal and the account stand beside the node log, which keeps the user's command line. A `SettingsError` if the
    interval is below a second; an `OutputError` if another process is writing there, or a file of another origin stands
    there, or the journal is of something else.
    """

    def __init__(
        self,
        poll: SlurmPoll | CommandPoll,
        output: Path,
        every_s: float,
        say: Callable[[str], None],
        command: str = "",
    ) -> None:
        if not LEAST_EVERY_S <= every_s < math.inf:
            raise SettingsError(f"Expected --every of {LEAST_EVERY_S:g} s or more, got {every_s:g} s.")
        self._poll, self._output, self._every_s, self._say, self._command = poll, output, every_s, say, command
        place = journal_path(output)
        is_new = not place.exists()
        for file in (*node_log_files(output), quality_path(output)):
            refuse_existing(file, force=not is_new)
        with ExitStack() as stack:
            stack.enter_context(lock_file(place.with_name(f".{place.name}.writing"), place))
            self._journal = LineJournal(place, lambda line: unseal_line(line) is not None)
            self._last_s = time_of(begin_or_continue(self._journal, poll.source))
            self._open = stack.pop_all()
        self._states: Pool = {}  # as the journal has them
        self._stated_s = -math.inf
        self._trouble = ""
        self.polls = self.missed = 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._open.close()

    def run(self, for_s: float = math.inf) -> None:
        """Poll at equal intervals, for so long.

        A `PollError` if the first poll fails; later ones are gaps; an `OutputError` if there is no room.
        """
        begin_s, number = time.monotonic(), 0
        while True:
            self.look()
            before, number = number, max(number + 1, math.ceil((time.monotonic() - begin_s) / self._every_s))
            if number * self._every_s > for_s:
                return
            self.missed += number - before - 1  # an answer took longer
            time.sleep(max(begin_s + number * self._every_s - time.monotonic(), 0.0))

    def look(self) -> None:
        """Poll once, and write down what has changed.

        A `PollError` if it fails and none has succeeded before; an `OutputError` if there is no room.
        """
        at_s, trouble, pool = time.time(), "", self._states
        try:
            pool = self._poll()
            self.polls += 1
        except PollError as fault:
            if not self.polls:
                if not math.isfinite(self._last_s):  # of nothing: what is watched may be named better next time
                    self._journal.path.unlink(missing_ok=True)
                raise
            self.missed += 1
            trouble = str(fault)
        if at_s < self._last_s + _MILLISECOND:
            trouble = f"The clock was put back: nothing is written until {iso(nanoseconds(self._last_s))}."
        elif trouble:
            self._append(at_s, missed_line(at_s, trouble))
        elif at_s >= self._stated_s + _STATED_ANEW_S:
            self._append(at_s, session_line(at_s, self._every_s), poll_line(at_s, pool))
            self._stated_s, self._states = at_s, pool
        else:
            self._append(at_s, poll_line(at_s, changes(self._states, pool)))
            self._states = pool
        if bool(trouble) is not bool(self._trouble):
            self._say(f"{iso(nanoseconds(at_s))}: {trouble or 'The scheduler is seen again.'}")
        self._trouble = trouble

    def _append(self, at_s: float, *lines: str) -> None:
        self._journal.append(map(seal_line, lines))
        self._last_s = at_s

    def write(self) -> Imported | None:
        """Make the node log, and its account, of the whole journal; None if it holds less than two polls.

        A `LogError` if the journal is damaged; an `OutputError` if they cannot be written.
        """
        # An interrupt may have come before anything but the journal knew of a poll.
        if sum(line.split(b" ", 2)[1:2] == [POLL.encode()] for line in self._journal.read()) < 2:
            return None
        imported = import_log("watch", [self._journal.path], None, self._command)
        write_node_log(self._output, imported.log)
        write_quality_json(quality_path(self._output), imported.quality)
        return imported
