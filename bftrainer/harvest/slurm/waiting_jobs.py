"""Jobs of other people that Slurm lets wait beside carriers that would make room for them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer.errors import PollError
from bftrainer.files.opening import one_line
from bftrainer.harvest.scheduler_polls import run_command

_EARLIER_S = 60.0
"""Jobs that carriers leave for may have come so long before: that often Slurm tries them all."""
_PATIENCE_S = 3.0
"""For so long a job is left to Slurm alone."""
_WATCHED_S = 15.0
"""For so long after carriers have left it is seen whether somebody waits."""
_FOR_NODES = frozenset({"None", "Priority", "Resources"})


@dataclass(slots=True)
class WaitingJobs:
    """Finds jobs that came when carriers left for others, and that wait since then.

    Slurm has carriers leave for a job once in KillWait + MessageTimeout seconds. Where several jobs come at a time,
    another may get the node that was left for one, which then waits for so long, and longer, although other carriers
    would leave at once. On nodes that are idle it begins, so that carriers have to leave without being asked.

    Parameters
    ----------
    partitions : tuple of str
        Carriers make room for the jobs of these.
    """

    partitions: tuple[str, ...]
    _since_s: float = 0.0
    _until_s: float = 0.0
    _served: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """A carrier leaves for somebody."""
        now_s = time.time()
        if now_s > self._until_s:
            self._since_s = now_s
            self._served.clear()
        self._until_s = now_s + _WATCHED_S

    def listed(self) -> dict[str, int]:
        """Number of nodes that each of them needs, the next one first; Slurm is asked only after carriers have left.

        Raises
        ------
        PollError
            If that is not known.
        """
        if time.time() > self._until_s or not self.partitions:
            return {}
        command = ["squeue", "-h", "-a", "-t", "PD", "-p", ",".join(self.partitions), "-o", "%i|%D|%V|%r"]
        found = {}
        for line in run_command(command, environ=os.environ | {"SLURM_TIME_FORMAT": "%s"}).splitlines():
            job, nodes, submitted, reason = [*line.split("|"), "", "", ""][:4]
            if not (nodes.isdecimal() and submitted.isdecimal()):
                raise PollError(f"squeue: Expected jobs and the nodes they need, got {one_line(line)!r}.")
            if reason in _FOR_NODES and self._since_s - _EARLIER_S <= int(submitted) <= time.time() - _PATIENCE_S:
                found[job.partition("_")[0]] = int(nodes)  # of an array, whose tasks begin one by one, one counts
        return found

    def carriers_to_release(self, waiting: Mapping[str, int], free: int, held: int) -> int:
        """Number of carriers that are to leave; none leaves twice for one job, which may need other nodes than these.

        Parameters
        ----------
        waiting : mapping of str to int
            What was `listed`.
        free, held : int
            Nodes that are idle, and those that carriers hold.
        """
        count = 0
        for job, nodes in waiting.items():
            need = max(0, nodes - free)
            if job not in self._served and need <= held - count:
                count, free = count + need, max(0, free - nodes)
                self._served |= {job} if need else set()
        return count
