"""Jobs of Slurm that carry a harvest: whether a partition may be used, and how they are submitted, seen and ended.

All is asked of Slurm by its own commands, with the rights of the user.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bftrainer.errors import PollError, RunFailedError, SettingsError, at_place
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.harvest.agent import KEY
from bftrainer.harvest.harvest_events import HarvestEvent
from bftrainer.harvest.scheduler_polls import run_command
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.schedulers.clock import duration_s

NAME = "carriers.name"
MINUTE_S = 60
LONGEST_WAIT_S = 120
"""A carrier that has not begun after so long is taken back."""
_TICK_S, SLACK_S, _LAST_S = 0.2, 5.0, 60.0
"""What a carrier may take to end beyond the grace time."""
ENDING = "ENDING"
"""State of a job that will end before its time: its grace time runs. Slurm says so by when it is to end."""
_SCRIPT = "carrier-*.sh"
_SCRIPT_TEXT = """\
# Starts a carrier of a harvest on the node that is its first argument; holds the key that shows that it is one.
unset $(env | sed -n 's/^\\(SLURM_[A-Za-z0-9_]*\\)=.*/\\1/p' | grep -v -x -e SLURM_CONF -e SLURM_JOB_ID)
{key}={value}
export {key}
exec {python} -m bftrainer.harvest.agent {host} {port} "$1" "$SLURM_JOB_ID" {hold_s}
"""
_EARLIER_S = 60.0
"""Jobs that carriers leave for may have come so long before: that often Slurm tries them all."""
_WATCHED_S, _PATIENCE_S = 15.0, 3.0
"""For so long after carriers have left it is seen whether somebody waits; a new job is left to Slurm at first."""
_FOR_NODES = frozenset({"None", "Priority", "Resources"})
_FIELD = re.compile(r"(\w+)\s*=\s*(\S+)")


@dataclass(frozen=True, slots=True)
class CarrierPartition:
    """A partition whose jobs have `grace_s` between SIGTERM and SIGKILL when they make room for those `above` it.

    These are partitions of a higher tier that have some of its nodes. An objection says why they may not make room.
    """

    name: str
    grace_s: int
    objection: str
    above: tuple[str, ...] = ()


def carrier_partition(name: str, hold_s: float, *, knows: bool = False) -> CarrierPartition:
    """Look at a partition, and refuse what could get in the way of other people, unless the user `knows`, and means it.

    A `SettingsError` if there is no such partition, its jobs do not make room for others, tasks would run as root, or
    `hold_s`, for which carriers hold a node at most, is a time that Slurm does not have; a `PollError` if Slurm does
    not answer.
    """
    partitions = [
        dict(_FIELD.findall(line)) for line in run_command(["scontrol", "-a", "-o", "show", "partition"]).splitlines()
    ]
    names = [str(each.get("PartitionName")) for each in partitions]
    if name not in names:
        raise SettingsError(f"Expected --partition to be one of {', '.join(names)}, got {name!r}.")
    mine = partitions[names.index(name)]
    grace_s, most_s = _number(mine, "GraceTime", 0), duration_s(mine.get("MaxTime", "UNLIMITED")) or math.inf
    if not MINUTE_S + grace_s <= hold_s <= most_s:
        expected = f"a minute and the grace time of {grace_s} s at least, and at most {most_s:g} s"
        raise SettingsError(f"partition {name}: Expected --max-hold of {expected}, got {hold_s:g} s.")
    tier, nodes = _number(mine, "PriorityTier", 1), _nodes(mine)
    higher = [each for each in partitions if _number(each, "PriorityTier", 1) > tier]
    above = tuple(str(each.get("PartitionName")) for each in higher if nodes & _nodes(each))
    objection = _objection(mine, tier, above)
    if objection and not knows:
        raise SettingsError(f"partition {name}: Expected one whose jobs make room, but {objection} (see --i-know).")
    if os.geteuid() == 0 and not knows:
        raise SettingsError("Expected a user other than root, as all tasks would run as root (see --i-know).")
    return CarrierPartition(name, grace_s, objection, above)


def _nodes(partition: dict[str, str]) -> set[str]:
    """Nodes of a partition; none if it has none, which Slurm says in brackets of its own."""
    text = partition.get("Nodes", "(null)")
    with at_place("scontrol", PollError):
        return set() if text == "(null)" else set(expanded(text))


def _number(partition: dict[str, str], name: str, usual: int) -> int:
    text = partition.get(name, str(usual))
    if not re.fullmatch(r"\d{1,18}", text):
        raise PollError(f"scontrol: Expected {name} to be a number, got {one_line(text)!r}.")
    return int(text)


def _objection(mine: dict[str, str], tier: int, above: Collection[str]) -> str:
    """Why jobs of a partition may not make room for others."""
    config = dict(_FIELD.findall(run_command(["scontrol", "show", "config"])))
    kind, mode = config.get("PreemptType", ""), mine.get("PreemptMode", "")
    if kind.endswith("qos"):
        return "Slurm goes by QOS here, which is not checked: ask for one by SBATCH_QOS"
    if not kind.endswith("partition_prio"):
        return f"Slurm preempts no jobs (PreemptType={kind})"
    if not mode.startswith(("CANCEL", "REQUEUE")):
        return f"its PreemptMode is {mode}"
    if not above:
        return f"no partition of its nodes has a PriorityTier above its {tier}"
    return ""


@dataclass(frozen=True, slots=True)
class CarrierJobs:
    """The jobs of one harvest, which have their `name` alone; a `PollError` if Slurm does not answer, or refuses.

    What they print goes to `log`. Each may run for `hold_s`, of which whole minutes count.
    """

    partition: str
    name: str
    log: Path
    hold_s: float

    def submit(self, node: str, script: Path) -> str:
        """Submit a carrier for a node; its job's number.

        It is a step of the job, as Slurm tells steps at the start of the grace time to end, and scripts at its end.
        """
        minutes = int(self.hold_s // MINUTE_S)
        options = {
            "partition": self.partition,
            "job-name": self.name,
            "nodelist": node,
            "nodes": "1",
            "mem": "0",
            "time": str(minutes),
            "deadline": f"now+{minutes * MINUTE_S + LONGEST_WAIT_S}",
            "chdir": self.log.parent,
            "output": str(self.log).replace("%", "%%"),
            "open-mode": "append",
        }
        step = shlex.join(["srun", "--ntasks=1", "--mem=0", "--cpu-bind=none", "sh", str(script), node])
        # A harvest may itself run in a job, whose variables are not those of its carriers.
        outside = {
            name: os.environ[name] for name in os.environ if not name.startswith("SLURM_") or name == "SLURM_CONF"
        }
        said = run_command(
            ["sbatch", "--parsable", "--exclusive", "--no-requeue"]
            + [f"--{name}={value}" for name, value in options.items()]
            + ["--wrap", f"exec {step}"],
            environ=outside,
            most_bytes=None,
        )
        number = said.strip().partition(";")[0]
        if not number.isdecimal():
            raise PollError(f"sbatch: Expected the number of a job, got {one_line(number)!r}.")
        return number

    def list_states(self) -> dict[str, str]:
        """State of each of them that waits, runs or ends, by its number; `ENDING` if it has to make room."""
        mine = "-u", str(os.geteuid()), "-n", self.name
        command = ["squeue", "-h", "-a", *mine, "-o", "%A %j %T %S %e"]
        said = run_command(command, environ=os.environ | {"SLURM_TIME_FORMAT": "%s"})
        found = {}
        for line in said.splitlines():
            number, name, state, start, end = [*line.split(), *[""] * 5][:5]
            if not number.isdecimal() or name != self.name:
                raise PollError(f"squeue: Expected jobs and their states, got {one_line(line)!r}.")
            is_running = state == "RUNNING" and start.isdecimal() and end.isdecimal()
            is_early = is_running and int(end) - int(start) < self.hold_s // MINUTE_S * MINUTE_S
            found[number] = ENDING if is_early else state
        return found

    def cancel(self, *numbers: str, signal: str = "") -> None:
        """End some of them, or send a signal to their steps."""
        if numbers:
            run_command(
                ["scancel", "-u", str(os.geteuid()), "-n", self.name, *(["-s", signal] if signal else []), *numbers]
            )

    def wait_until_gone(self, grace_s: float) -> list[str]:
        """Wait until there are none: their controller is gone, so they end by themselves, or are cancelled.

        If they do not end, that is a `RunFailedError`.
        """
        begun_s, found, cancelled = time.monotonic(), set[str](), set[str]()
        while left := self.list_states():
            waited_s = time.monotonic() - begun_s
            if waited_s > 2 * grace_s + _LAST_S:
                raise RunFailedError(f"Jobs {', '.join(sorted(left, key=int))} ({self.name}) do not end.")
            found |= left.keys()
            overdue = {each for each in left if left[each] == "PENDING" or waited_s > grace_s + SLACK_S}
            if fresh := overdue - cancelled:
                cancelled |= fresh
                with suppress(PollError):  # one may have ended by itself; the next list tells
                    self.cancel(*fresh)
            time.sleep(_TICK_S)
        return sorted(found, key=int)


def ignore_gone(future: Future[None]) -> list[HarvestEvent]:
    """A job that is to be cancelled may have ended: the next look tells."""
    if not isinstance(fault := future.exception(), PollError | None):
        raise fault
    return []


def job_name(directory: Path) -> str:
    """Name of a harvest's jobs, which no others have: it is drawn once, and kept in the harvest's directory.

    A copy of that directory, which is another one on the disk, gets a name of its own.
    """
    path, place = directory / NAME, str(directory.stat().st_ino)
    if not path.exists() or path.read_text().split()[1:] not in ([], [place]):
        with replacing(path) as stream:
            stream.write(f"bftrainer-{secrets.token_hex(8)} {place}\n".encode())
    return path.read_text().split()[0]


def write_script(directory: Path, key: str, host: str, port: int, own_s: float) -> Path:
    """Write how to start a carrier, readable for this user alone; under a new name, which no node has cached."""
    for old in directory.glob(_SCRIPT):
        old.unlink()
    path = directory / _SCRIPT.replace("*", secrets.token_hex(4))
    words = {"value": key, "python": sys.executable, "host": host, "port": port}
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(_SCRIPT_TEXT.format(key=KEY, hold_s=own_s, **quoted))
    return path


@dataclass(slots=True)
class WaitingJobs:
    """Finds jobs of others that came when carriers left for others, and that wait since then.

    Slurm has carriers leave for a job once in KillWait + MessageTimeout seconds. Where several jobs come at a time,
    another may get the node that was left for one, which then waits for so long, and longer, although other carriers
    would leave at once. On nodes that are idle it begins, so that carriers have to leave without being asked.

    Carriers make room for the jobs of `partitions`.
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

    def list_waiting(self) -> dict[str, int]:
        """Number of nodes that each of them needs, the next one first; Slurm is asked only after carriers have left."""
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

        Jobs that are `waiting` were listed, nodes are `free`, as they are idle, or `held` by carriers.
        """
        count = 0
        for job, nodes in waiting.items():
            need = max(0, nodes - free)
            if job not in self._served and need <= held - count:
                count, free = count + need, max(0, free - nodes)
                self._served |= {job} if need else set()
        return count
