"""Carriers as jobs of Slurm: one job a node, in a partition whose jobs make room, seen by polls of the scheduler.

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
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bftrainer.errors import PollError, RunFailedError, SettingsError, add_place
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.agent import KEY
from bftrainer.harvest.carrier_hub import CarrierHub
from bftrainer.harvest.scheduler_polls import Pool, SlurmPoll, run_command
from bftrainer.nodelogs.hostlist import expand_hostlist
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import duration_s

MINUTE_S = 60
LONGEST_WAIT_S = 120
"""A carrier that has not begun after so long is taken back."""
_TICK_S = 0.2
SLACK_S, _LAST_S = 5.0, 60.0
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
_SETTLE_S = 3.0
"""While carriers leave, and so long after that, no others come: the job that they left for has not begun."""
_SIGNAL_S = 10.0
"""Within that a carrier has to say that it was asked to end."""
_REFUSED_S = 60.0
"""For so long no carriers are submitted after one was refused."""
_TEST_WAIT_S = 15.0
"""For so long the carrier of the test waits for its node; then the test is made on another one."""
_ATTEMPTS = 3
"""So many jobs of the test may end before they come up: other jobs may take their nodes."""
_WITHDRAWN = (BusyKind.DRAIN, BusyKind.MAINTENANCE, BusyKind.RESERVED)
"""Why a node is given back that a carrier holds."""
_MAY_START = (None, BusyKind.PLANNED)


@dataclass(frozen=True, slots=True)
class CarrierPartition:
    """A partition whose jobs have `grace_s` between SIGTERM and SIGKILL when they make room for those `above` it.

    These are partitions of a higher tier that have some of its nodes. An objection says why they may not make room.
    Slurm names the jobs that do, unless the harvester has `chosen`.
    """

    name: str
    grace_s: int
    objection: str
    above: tuple[str, ...] = ()
    chosen: bool = False


def carrier_partition(name: str, hold_s: float, *, chosen: bool = False, knows: bool = False) -> CarrierPartition:
    """Look at a partition, and refuse what could get in the way of other people, unless the user `knows`, and means it.

    Where who gives way is `chosen`, Slurm has nobody give way.

    A `SettingsError` if there is no such partition, its jobs do not make room for others, tasks would run as root, or
    carriers could not hold a node for `hold_s`; a `PollError` if Slurm does not answer.
    """
    partitions = [
        dict(_FIELD.findall(line)) for line in run_command(["scontrol", "-a", "-o", "show", "partition"]).splitlines()
    ]
    names = [str(row.get("PartitionName")) for row in partitions]
    if name not in names:
        raise SettingsError(f"Expected --partition to be one of {', '.join(names)}, got {name!r}.")
    mine = partitions[names.index(name)]
    grace_s, most_s = _number(mine, "GraceTime", 0), duration_s(mine.get("MaxTime", "UNLIMITED")) or math.inf
    if not MINUTE_S + grace_s <= hold_s <= most_s:
        expected = f"a minute and the grace time of {grace_s} s at least, and at most {most_s:g} s"
        raise SettingsError(f"partition {name}: Expected --max-hold of {expected}, got {hold_s:g} s.")
    tier, nodes = _number(mine, "PriorityTier", 1), _nodes(mine)
    higher = [row for row in partitions if _number(row, "PriorityTier", 1) > tier]
    above = tuple(str(row.get("PartitionName")) for row in higher if nodes & _nodes(row))
    objection = _objection(mine, tier, above, chosen=chosen)
    if objection and not knows:
        raise SettingsError(f"partition {name}: Expected one whose jobs make room, but {objection} (see --i-know).")
    if os.geteuid() == 0 and not knows:
        raise SettingsError("Expected a user other than root, as all tasks would run as root (see --i-know).")
    return CarrierPartition(name, grace_s, objection, above, chosen)


def _nodes(partition: dict[str, str]) -> set[str]:
    """Nodes of a partition; none if it has none, which Slurm says in brackets of its own."""
    text = partition.get("Nodes", "(null)")
    with add_place("scontrol", PollError):
        return set() if text == "(null)" else set(expand_hostlist(text))


def _number(partition: dict[str, str], name: str, usual: int) -> int:
    text = partition.get(name, str(usual))
    if not re.fullmatch(r"\d{1,18}", text):
        raise PollError(f"scontrol: Expected {name} to be a number, got {one_line(text)!r}.")
    return int(text)


def _objection(mine: dict[str, str], tier: int, above: Collection[str], *, chosen: bool) -> str:
    """Why jobs of a partition may not make room for others."""
    config = dict(_FIELD.findall(run_command(["scontrol", "show", "config"])))
    kind, mode = config.get("PreemptType", ""), mine.get("PreemptMode", "")
    preempts = not kind.endswith("none") and mode != "OFF"
    if chosen and preempts:
        return f"Slurm names who makes room before the harvest can (PreemptMode={mode}, not OFF)"
    if chosen:
        return "" if above else f"no partition of its nodes has a PriorityTier above its {tier}"
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
    """Jobs of one harvest, which have their `name` alone, print to a log, and may run for whole minutes of `hold_s`.

    A `PollError` if Slurm does not answer, or refuses.
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
        answer = run_command(
            ["sbatch", "--parsable", "--exclusive", "--no-requeue"]
            + [f"--{name}={value}" for name, value in options.items()]
            + ["--wrap", f"exec {step}"],
            environ=outside,
            most_bytes=None,
        )
        number = answer.strip().partition(";")[0]
        if not number.isdecimal():
            raise PollError(f"sbatch: Expected the number of a job, got {one_line(number)!r}.")
        return number

    def list_states(self) -> dict[str, str]:
        """State of each of them that waits, runs or ends, by its number; `ENDING` if it has to make room."""
        states = {}
        for line in _list_jobs("-u", str(os.geteuid()), "-n", self.name, "-o", "%A %j %T %S %e"):
            number, name, state, start, end = [*line.split(), *[""] * 5][:5]
            if not number.isdecimal() or name != self.name:
                raise PollError(f"squeue: Expected jobs and their states, got {one_line(line)!r}.")
            is_running = state == "RUNNING" and start.isdecimal() and end.isdecimal()
            is_early = is_running and int(end) - int(start) < self.hold_s // MINUTE_S * MINUTE_S
            states[number] = ENDING if is_early else state
        return states

    def cancel(self, *numbers: str, signal: str = "") -> None:
        """End some of them, or send a signal to their steps."""
        if numbers:
            run_command(
                ["scancel", "-u", str(os.geteuid()), "-n", self.name, *(["-s", signal] if signal else []), *numbers]
            )

    def wait_until_gone(self, grace_s: float) -> list[str]:
        """Wait until there are none: they end by themselves, or are cancelled, or else that is a `RunFailedError`."""
        start_s, numbers, cancelled = time.monotonic(), set[str](), set[str]()
        while states := self.list_states():
            waited_s = time.monotonic() - start_s
            if waited_s > 2 * grace_s + _LAST_S:
                raise RunFailedError(f"Jobs {', '.join(sorted(states, key=int))} ({self.name}) do not end.")
            numbers |= states.keys()
            overdue = {job for job in states if states[job] == "PENDING" or waited_s > grace_s + SLACK_S}
            if fresh := overdue - cancelled:
                cancelled |= fresh
                with suppress(PollError):  # one may have ended by itself; the next list tells
                    self.cancel(*fresh)
            time.sleep(_TICK_S)
        return sorted(numbers, key=int)


def _list_jobs(*options: str) -> list[str]:
    """Lines of squeue, whose times are seconds since the Unix epoch."""
    environ = os.environ | {"SLURM_TIME_FORMAT": "%s"}
    return run_command(["squeue", "-h", "-a", *options], environ=environ).splitlines()


def ignore_gone(future: Future[None]) -> list[ev.HarvestEvent]:
    """A job that is to be cancelled may have ended: the next look tells."""
    if not isinstance(fault := future.exception(), PollError | None):
        raise fault
    return []


def job_name(directory: Path) -> str:
    """Name of a harvest's jobs, drawn once and kept in its directory; a copy of that gets a name of its own."""
    path, place = directory / "carriers.name", str(directory.stat().st_ino)
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
    """Finds jobs of the partitions that carriers make room for which came when carriers left, and wait since then.

    Slurm has carriers leave for a job once in KillWait + MessageTimeout seconds. Where several jobs come at a time,
    another may get the node that was left for one, which then waits for so long, although other carriers would leave at
    once. On nodes that are idle it begins, so that carriers have to leave without being asked. Where the harvester has
    `chosen` who gives way, Slurm asks none of them ever.
    """

    partitions: tuple[str, ...]
    chosen: bool = False
    _since_s: float = 0.0
    _until_s: float = 0.0
    _served: dict[str, tuple[float, int]] = field(default_factory=dict)

    def begin(self) -> None:
        """A carrier leaves for somebody."""
        now_s = time.time()
        if now_s > self._until_s:
            self._since_s = now_s
        self._until_s = now_s + _WATCHED_S

    def list_waiting(self) -> dict[str, int]:
        """Number of nodes that each of them needs, the next one first.

        Unless the harvester has chosen who gives way, Slurm is asked only after carriers have left.
        """
        if not self.partitions or not (self.chosen or time.time() <= self._until_s):
            return {}
        needs, now_s = {}, time.time()
        earliest_s, latest_s = self._since_s - _EARLIER_S, now_s - _PATIENCE_S
        if self.chosen:
            earliest_s, latest_s = -math.inf, now_s
        for line in _list_jobs("-t", "PD", "-p", ",".join(self.partitions), "-o", "%i|%D|%V|%r"):
            job, nodes, submitted, reason = [*line.split("|"), "", "", ""][:4]
            if not (nodes.isdecimal() and submitted.isdecimal()):
                raise PollError(f"squeue: Expected jobs and the nodes they need, got {one_line(line)!r}.")
            if reason in _FOR_NODES and earliest_s <= int(submitted) <= latest_s:
                needs[job.partition("_")[0]] = int(nodes)  # of an array, whose tasks begin one by one, one counts
        return needs

    def carriers_to_release(self, waiting: Mapping[str, int], free: int, in_use: int, unsettled: int = 0) -> int:
        """Number of carriers in use that are to leave for jobs that wait, beside nodes that are free, or soon will be.

        They leave once in a while for each job, as it may need other nodes; again if others took those that were left,
        which is not known of nodes that are `unsettled`.
        """
        count, now_s, ours = 0, time.time(), free + in_use
        self._served = {job: served for job, served in self._served.items() if job in waiting}
        for job, nodes in waiting.items():
            served_s, ours_then = self._served.get(job, (-math.inf, 0))
            is_served = now_s < served_s + _EARLIER_S and ours + unsettled >= ours_then
            need = max(0, nodes - free)
            if is_served or need <= in_use - count:
                free = max(0, free - nodes)
            if 0 < need <= in_use - count and not is_served:
                count += need
                self._served[job] = now_s, ours
        return count


class _State(Enum):
    """Where a carrier stands."""

    WAITING = "its job has not begun"
    WITHDRAWN = "its job was cancelled before it came"
    UP = "it holds its node"
    RELEASED = "it was told to give its node back"
    YIELDING = "it was told to give its node to a job that waits"
    LEAVING = "it leaves as it was told to, or as its time is over"
    TAKEN = "it leaves for somebody else"
    CUT_OFF = "it is not heard any more, and its ranks may still be there"


_CONNECTED = {_State.UP, _State.RELEASED, _State.YIELDING, _State.LEAVING, _State.TAKEN}
_GOING = {_State.WITHDRAWN, _State.LEAVING, _State.TAKEN, _State.CUT_OFF}
_ENDING = {_State.RELEASED, _State.YIELDING, _State.LEAVING, _State.TAKEN, _State.CUT_OFF}
_FOR_OTHERS = {_State.YIELDING, _State.TAKEN, _State.CUT_OFF}


@dataclass(slots=True)
class _Carrier:
    """A job that is to hold a node, or does, and when it is cancelled."""

    node: str
    since_s: float
    state: _State = _State.WAITING
    until_s: float = math.inf


class _Answer(NamedTuple):
    """What Slurm says: of nodes, of our jobs by their numbers, and how many nodes jobs of others wait for."""

    pool: Pool
    states: dict[str, str]
    waiting: dict[str, int]


class SlurmCarriers:
    """Carriers that are jobs; the numbers of jobs are the names of carriers, which hold nodes for `hold_s` at most.

    All nodes see the harvest's directory under the same name, and reach this machine at an address; it listens at all
    of its own by default. A `RunFailedError` if carriers of an earlier controller do not end; a `PollError` if Slurm
    does not answer.
    """

    is_over = False

    def __init__(
        self,
        directory: Path,
        partition: CarrierPartition,
        hold_s: float,
        every_s: float,
        address: str,
        listen: str = "",
        say: Callable[[str], object] = print,
    ) -> None:
        directory = directory.resolve()
        self._every_s, self._say = every_s, say
        # Ranks end before Slurm kills them.
        self._grace_s = max(1.0, partition.grace_s - 1.0)
        self._jobs = CarrierJobs(partition.name, job_name(directory), directory / "carriers.log", hold_s)
        self._carriers: dict[str, _Carrier] = {}
        self._waiting_jobs = WaitingJobs(partition.above, partition.chosen)
        self._poll_nodes = SlurmPoll(partition.name, lambda number, _: number in self._carriers)
        if former := self._jobs.wait_until_gone(self._grace_s):
            self._say(f"Carriers of an earlier controller have ended: {', '.join(former)}.")
        self._hub = CarrierHub(directory, self._grace_s, listen)
        self.start, self.stop = self._hub.start, self._hub.stop
        own_s = hold_s // MINUTE_S * MINUTE_S - self._grace_s - SLACK_S
        self._script = write_script(directory, self._hub.key, address, self._hub.port, own_s)
        self._worker = ThreadPoolExecutor(1, "slurm")
        self._answers: deque[tuple[Callable[[Future[Any]], list[ev.HarvestEvent]], Future[Any]]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._hub.watch(self._wake, partial(os.eventfd_read, self._wake))
        self._idle: set[str] = set()
        self._due_s = self._settled_s = self._refused_until_s = 0.0
        self._left_s: dict[str, float] = {}  # when carriers left nodes for others
        self._sayings: dict[str, str] = {}
        self._turned_away: list[ev.HarvestEvent] = []
        self._is_tested, self._failures, self._attempts = False, 0, Counter[str]()

    def _ask(self, then: Callable[[Future[Any]], list[ev.HarvestEvent]], do: Callable[..., Any], *words: Any) -> None:
        """Ask Slurm something, in order, while the harvest goes on; what is answered is dealt with by `poll`."""

        def keep_answer(future: Future[Any]) -> None:
            self._answers.append((then, future))
            os.eventfd_write(self._wake, 1)

        self._worker.submit(do, *words).add_done_callback(keep_answer)

    # --- what happens ------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[ev.HarvestEvent]:
        """Wait for carriers or Slurm to say something, at most so long."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = math.inf
            self._ask(
                self._on_poll,
                lambda: _Answer(self._poll_nodes(), self._jobs.list_states(), self._waiting_jobs.list_waiting()),
            )
        messages = self._hub.poll(min(timeout_s, self._due_s - now_s))
        events, self._turned_away = self._turned_away, []
        while self._answers:
            then, future = self._answers.popleft()
            events += then(future)
        for event in messages:
            events += self._on_carrier_event(event)
        return events

    def _on_carrier_event(self, event: ev.HarvestEvent) -> list[ev.HarvestEvent]:
        """Pass on what a carrier says; one whose connection breaks before it has left does so now."""
        if not isinstance(event, ev.CarrierUp | ev.CarrierLeaving | ev.CarrierLost):
            return [event]
        carrier = self._carriers.get(event.carrier)
        if carrier is None:
            self._hub.release(event.carrier)
            return []
        match event:
            case ev.CarrierUp() if carrier.state is _State.WITHDRAWN:
                carrier.state = _State.LEAVING
                self._hub.release(event.carrier)
                return []
            case ev.CarrierUp():
                carrier.state = _State.UP
                # Slurm may have told its job to end before there was a step that could hear it.
                self._due_s = min(self._due_s, time.monotonic() + _TICK_S)
            case ev.CarrierLeaving():
                is_ours = carrier.state is _State.RELEASED or event.is_over
                self._leaves(carrier, _State.LEAVING if is_ours else _State.TAKEN)
            case ev.CarrierLost() if carrier.state in _GOING:
                return self._forget_carrier(event.carrier)
            case ev.CarrierLost():
                self._leaves(carrier, _State.CUT_OFF)
                self._ask(ignore_gone, self._jobs.cancel, event.carrier)
                # Its ranks, which are asked to end, may take so long.
                return [ev.CarrierLeaving(event.node, event.carrier)]
        return [event]

    def _leaves(self, carrier: _Carrier, state: _State) -> None:
        """If somebody wants its node, and perhaps others, those that have not come yet do not come in between."""
        carrier.state = state
        carrier.until_s = min(carrier.until_s, time.monotonic() + self._grace_s + SLACK_S)
        self._idle.discard(carrier.node)
        if state in _FOR_OTHERS:
            self._waiting_jobs.begin()
            for number, other in self._carriers.items():
                if other.state is _State.WAITING:
                    self._withdraw(number, other)

    def _withdraw(self, number: str, carrier: _Carrier) -> None:
        """Cancel a carrier that has not come yet."""
        carrier.state, carrier.until_s = _State.WITHDRAWN, time.monotonic()
        self._ask(ignore_gone, self._jobs.cancel, number)

    @property
    def _is_contended(self) -> bool:
        """Whether a job is waiting for nodes that carriers leave, or may be about to begin on them."""
        states = {carrier.state for carrier in self._carriers.values()}
        return time.monotonic() < self._settled_s or not states.isdisjoint(_FOR_OTHERS)

    def _forget_carrier(self, number: str) -> list[ev.HarvestEvent]:
        """A carrier is gone, with all that it has started, or never came."""
        carrier, now_s = self._carriers.pop(number), time.monotonic()
        self._idle.discard(carrier.node)
        if carrier.state in _FOR_OTHERS:
            self._settled_s, self._left_s[carrier.node] = now_s + _SETTLE_S, now_s
        if carrier.state is not _State.WITHDRAWN:  # it may come again
            self._due_s = min(self._due_s, max(self._settled_s, now_s + _TICK_S))
        return [ev.CarrierLost(carrier.node, number)]

    # --- what Slurm says ---------------------------------------------------------------------------------------------

    def _on_poll(self, future: Future[_Answer]) -> list[ev.HarvestEvent]:
        """Compare with what is known what Slurm says of nodes and of carriers."""
        now_s = time.monotonic()
        self._due_s = min(self._due_s, now_s + self._every_s)
        try:
            pool, listed, waiting = future.result()
        except PollError as fault:
            self._say_once("trouble", f"{fault} Going on with the nodes that are held.")
            return []
        if self._sayings.pop("trouble", ""):
            self._say("Slurm answers again.")
        events: list[ev.HarvestEvent] = []
        for number, carrier in [*self._carriers.items()]:
            cause = pool.get(carrier.node, BusyKind.AWAY)
            if number not in listed:
                events += self._job_gone(number, carrier)
            elif listed[number] == "PENDING":
                if cause not in _MAY_START or now_s > carrier.since_s + LONGEST_WAIT_S:
                    self._withdraw(number, carrier)
            elif now_s > carrier.until_s:
                self._ask(ignore_gone, self._jobs.cancel, number)
            elif listed[number] == ENDING and carrier.state not in _GOING:
                self._hub.release(number)
                if carrier.state is _State.WAITING:
                    self._withdraw(number, carrier)
            elif carrier.state is _State.UP and cause in _WITHDRAWN:
                self.release(number)
        in_use = {carrier.node for carrier in self._carriers.values()}
        idle = {node for node, cause in pool.items() if cause is None}
        idle -= {carrier.node for carrier in self._carriers.values() if carrier.state in _GOING}
        if self._waiting_jobs.chosen or not self._is_contended:  # Slurm has no carriers leave for jobs that wait
            states = [carrier.state for carrier in self._carriers.values()]
            free = len(idle - in_use) + sum(state in _ENDING for state in states)
            self._left_s = {node: left_s for node, left_s in self._left_s.items() if now_s < left_s + _SETTLE_S}
            unsettled = len(self._left_s.keys() - idle - in_use)
            if count := self._waiting_jobs.carriers_to_release(waiting, free, states.count(_State.UP), unsettled):
                events.append(ev.NodesWanted(count))
        if self._is_contended or now_s < self._refused_until_s:
            idle &= in_use
        change = ev.PoolChanged(tuple(sorted(idle - self._idle)), tuple(sorted(self._idle - idle)))
        self._idle = idle
        return [*events, change] if change.idle or change.busy else events

    def _job_gone(self, number: str, carrier: _Carrier) -> list[ev.HarvestEvent]:
        """A job is gone; if its carrier still talks to us, its node has lost touch with Slurm: it is sent away."""
        if carrier.state is _State.UP:
            self.release(number)
        elif carrier.state not in _GOING | _CONNECTED:
            return self._forget_carrier(number)
        elif time.monotonic() >= carrier.until_s:
            is_heard = carrier.state in _CONNECTED
            return [*([ev.CarrierLeaving(carrier.node, number)] if is_heard else []), *self._forget_carrier(number)]
        return []

    def _on_submitted(self, node: str, future: Future[str]) -> list[ev.HarvestEvent]:
        """Remember a job, or that Slurm has refused it."""
        try:
            number = future.result()
        except PollError as fault:
            self._refuse(str(fault))
            self._idle.discard(node)
            return [ev.CarrierLost(node, "")]
        self._sayings.pop("refusal", None)
        self._carriers[number] = _Carrier(node, time.monotonic())
        if self._is_contended:
            self._withdraw(number, self._carriers[number])
        return []

    def _say_once(self, subject: str, text: str) -> None:
        """Say something, unless it was the last thing that was said on a subject."""
        if self._sayings.get(subject) != text:
            self._say(text)
        self._sayings[subject] = text

    def _refuse(self, why: str) -> None:
        """Submit nothing for a while, and say why."""
        self._refused_until_s = time.monotonic() + _REFUSED_S
        self._say_once("refusal", f"{why} No carriers are submitted for {_REFUSED_S:g} s.")

    # --- what is done ------------------------------------------------------------------------------------------------

    def request(self, nodes: tuple[str, ...]) -> None:
        """Submit a carrier for each of these nodes; none while somebody waits for nodes that carriers leave.

        At first one is tested, while nothing else goes on: a `RunFailedError` if carriers cannot come up here, or are
        not told when their node is taken back.
        """
        if not self._is_contended and not self._is_tested:
            node = min(nodes, key=self._attempts.__getitem__)
            self._attempts[node] += 1
            try:
                self._is_tested = self._test_signal(node)
            except PollError as fault:
                self._refuse(str(fault))
        if self._is_contended or not self._is_tested:
            self._turned_away += [ev.CarrierLost(node, "") for node in nodes]
            self._idle.difference_update(nodes)
            return
        for node in nodes:
            self._ask(partial(self._on_submitted, node), self._jobs.submit, node, self._script)

    def _test_signal(self, node: str) -> bool:
        """Have a carrier come to a node, and see that SIGTERM reaches its step; False if it does not come."""
        number, begun_s = self._jobs.submit(node, self._script), time.monotonic()
        signalled_s, is_told = math.inf, False
        try:
            while time.monotonic() < signalled_s + _SIGNAL_S or is_told:
                for event in self._hub.poll(_TICK_S):
                    match event:
                        case ev.CarrierUp(carrier=carrier) if carrier == number:
                            self._jobs.cancel(number, signal="TERM")
                            signalled_s = time.monotonic()
                        case ev.CarrierLeaving(carrier=carrier) if carrier == number:
                            is_told = True
                        case ev.CarrierLost(carrier=carrier) if carrier == number:
                            return is_told
                if signalled_s < math.inf:
                    continue
                cause, state = self._poll_nodes().get(node, BusyKind.AWAY), self._jobs.list_states().get(number)
                self._failures += state is None
                if self._failures >= _ATTEMPTS:
                    expected = "has ended before its carrier could come up"
                    raise RunFailedError(f"Job {number} {expected}; see {self._jobs.log}.")
                is_patient = cause in _MAY_START and time.monotonic() <= begun_s + _TEST_WAIT_S
                if state is None or (state == "PENDING" and not is_patient):
                    return False
        finally:
            if not is_told:
                self._hub.release(number)
                with suppress(PollError):  # it may be gone
                    self._jobs.cancel(number)
        raise RunFailedError(
            f"Job {number} was sent SIGTERM, and its step heard nothing of it within {_SIGNAL_S:g} s: "
            f"carriers here would be killed without a warning."
        )

    def release(self, carrier: str, *, for_others: bool = False) -> None:
        """Have a carrier end its ranks, and itself, perhaps for a job that waits."""
        self._hub.release(carrier)
        if (job := self._carriers.get(carrier)) is not None:
            if job.state is _State.UP:
                job.state = _State.YIELDING if for_others else _State.RELEASED
            job.until_s = min(job.until_s, time.monotonic() + self._grace_s + SLACK_S)

    def close(self) -> None:
        """End all carriers, cancel those that have not begun, and wait until they are gone."""
        self._hub.close()
        self._worker.shutdown(cancel_futures=True)
        try:
            self._jobs.wait_until_gone(self._grace_s)
        except (RunFailedError, PollError) as fault:
            self._say(f"{fault} Look for jobs named {self._jobs.name}: they end by themselves.")
        self._script.unlink(missing_ok=True)
        os.close(self._wake)
