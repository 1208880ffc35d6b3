"""Ask a scheduler how its nodes are, by one cheap call that any user may make, and read what it says.

A command has limits of time and of size. Of each node it is told why it is not idle.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from bftrainer.errors import LogError, PollError, SettingsError, add_place
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.hostlist import expand_hostlist
from bftrainer.nodelogs.inventory import is_out_of_service, state_words
from bftrainer.nodelogs.slurm_json import states_of, words
from bftrainer.parallel import defer_interrupts
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.node_states import CAUSES, Cause

Pool = dict[str, Cause]
"""By node why it is not idle; None if it is."""

SINFO_FIELDS = "NodeList:256,StateComplete:256,StateLong:64"
"""What `sinfo -O` has to print: the state with all its flags, and Slurm's word for it, whose sign tells of power.

It puts nothing between columns, and cuts what is longer than they are.
"""
SQUEUE_FIELDS = "%i|%P|%N"
_SHOWN = 80
# A name may be or begin with a brace, as a document does.
_NODE_AND_STATE = re.compile(r"\s*\S+[ \t]+[A-Za-z][\w+*-]*[ \t]*(\n|$)")

# Of what is said of a node, by the words of sinfo(1), "NODE STATE CODES", the first counts.
_USED = re.compile(r"alloc|\bmix|\bcomp")
_OUT = (
    (re.compile(r"maint"), BusyKind.MAINTENANCE),
    (re.compile(r"pow"), BusyKind.POWERED_DOWN),
    (re.compile(r"drain|drng"), BusyKind.DRAIN),
    (re.compile(r"\bunk"), BusyKind.UNKNOWN),
    (re.compile(r"reboot"), BusyKind.DOWN),
)
_KEPT = (
    (re.compile(r"\bres(erved|v)|block"), BusyKind.RESERVED),
    (re.compile(r"planned|plnd"), BusyKind.PLANNED),
    (_USED, None),
    (re.compile(r"\bidle"), None),
)

LIMIT_S = 30.0
_MOST_BYTES = 1 << 26
_FILES, _MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE), 1 << 20
# They would change what is printed.
_SETTINGS_OF_USERS = ("SINFO_", "SQUEUE_")


def slurm_cause(states: str, *, is_ours: bool = False) -> Cause:
    """Why a node in these states of Slurm (`IDLE+DRAIN`, `idle+planned+planned`, `down*`) is not idle.

    If all that runs on it `is_ours`, and would make room, only what else is the matter with it counts.
    """
    text = "+".join(state_words(states))
    if not is_ours and _USED.search(text):
        return BusyKind.JOB
    for sign, cause in _OUT:
        if sign.search(text):
            return cause
    if is_out_of_service(text):
        return BusyKind.DOWN
    return next((cause for sign, cause in _KEPT if sign.search(text)), BusyKind.UNKNOWN)


def slurm_pool(answer: str, ours: Collection[str] = ()) -> Pool:
    """Nodes as `sinfo -h -N -O` with `SINFO_FIELDS` prints them, or `sinfo --json`, or slurmrestd; else a `PollError`.

    On the nodes `ours` all jobs would make room.
    """
    if answer.lstrip().startswith("{"):
        rows = _json_rows(answer)
        pool = _merge_rows(
            (name, slurm_cause(states, is_ours=name in ours)) for names, states in rows for name in names
        )
    else:
        pool = _merge_rows(_sinfo_rows(answer, ours))
    if set(pool.values()) == {BusyKind.UNKNOWN}:
        raise PollError(f"Expected nodes and states of Slurm, got {one_line(answer[:_SHOWN])!r}.")
    return pool


def read_pool(answer: str) -> Pool:
    """Nodes as any program may print them: lines of a node, or a hostlist, and its state; or Slurm's JSON.

    A state is `idle`, a cause of an import (`job`, `down`, ...), or a word of Slurm's; else that is a `PollError`.
    """
    if answer.lstrip().startswith("{") and not _NODE_AND_STATE.match(answer):
        return slurm_pool(answer)
    rows: list[tuple[str, Cause]] = []
    for line in filter(str.strip, answer.splitlines()):
        nodes, *states = line.split()
        if len(states) != 1:
            raise PollError(f"Expected a node and its state in each line, got {one_line(line[:_SHOWN])!r}.")
        state = states[0].lower().replace("-", "_")
        cause = CAUSES[state] if state in CAUSES else slurm_cause(states[0])
        if cause is BusyKind.UNKNOWN and state != "unknown":
            raise PollError(f"Expected a state such as idle, job or down, got {one_line(states[0])!r}.")
        rows += [(name, cause) for name in _expand(nodes)]
    return _merge_rows(rows)


def _sinfo_rows(answer: str, ours: Collection[str]) -> Iterator[tuple[str, Cause]]:
    """Why nodes are not idle, by rows of sinfo; a node whose row does not tell it is unknown, but most rows have to."""
    rows = list(filter(None, map(str.split, answer.splitlines())))
    odd = [cells for cells in rows if len(cells) not in (2, 3) or not cells[0].isprintable() or not cells[0].isascii()]
    if 2 * len(odd) > len(rows):
        raise PollError(f"Expected nodes and states of Slurm, got {one_line(' '.join(odd[0])[:_SHOWN])!r}.")
    for cells in rows:
        cause = slurm_cause("+".join(cells[1:]), is_ours=cells[0] in ours)
        # A state that fills its column runs into the next one: what was cut off may be what is wrong with the node.
        is_whole = len(cells) == 3 or cause is not None
        try:
            names = expand_hostlist(cells[0])
        except LogError:
            names, is_whole = (cells[0],), False
        yield from ((name, cause if is_whole else BusyKind.UNKNOWN) for name in names)


def _expand(nodes: str) -> Sequence[str]:
    try:
        return expand_hostlist(nodes)
    except LogError as fault:
        raise PollError(str(fault)) from None


def _json_rows(answer: str) -> Iterator[tuple[Sequence[str], str]]:
    """Nodes and states of a document that lists nodes, or groups of them that are in one state."""
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        document = None
    rows = document.get("nodes") or document.get("sinfo") if isinstance(document, dict) else None
    for row in rows if isinstance(rows, list) else ():
        group, state = (row.get(key) if isinstance(row, dict) else None for key in ("nodes", "node"))
        if isinstance(group, dict) and isinstance(state, dict):
            yield _expand(words(group.get("nodes"), ",")), words(state.get("state"))
        elif isinstance(row, dict) and row.get("name"):
            yield _expand(str(row["name"])), states_of(row)
        else:
            raise PollError(f"Expected nodes of Slurm, got {one_line(str(row)[:_SHOWN])!r} among them.")


def _merge_rows(rows: Iterable[tuple[str, Cause]]) -> Pool:
    """Causes by node; a node that is told several times is idle only if it is so each time."""
    pool: Pool = {}
    for name, cause in rows:
        if pool.get(name) is None:
            pool[name] = cause
    if not pool:
        raise PollError("Expected nodes and their states, got none.")
    return pool


def nodes_of_carriers(answer: str, is_carrier: Callable[[str, str], bool]) -> frozenset[str]:
    """Nodes that only carriers hold, as `squeue -h -o` with `SQUEUE_FIELDS` prints jobs; else a `PollError`.

    `is_carrier` takes the number and the partition of a job, and says whether it makes room for others.
    """
    holders: tuple[set[str], set[str]] = set(), set()
    for line in filter(str.strip, answer.splitlines()):
        cells = line.strip().split("|")
        if len(cells) != 3:
            shown = one_line(line[:_SHOWN])
            raise PollError(f"Expected a job, its partition and its nodes in each line, got {shown!r}.")
        if cells[2] not in ("", "(null)"):
            holders[is_carrier(cells[0], cells[1])].update(_expand(cells[2]))
    return frozenset(holders[True] - holders[False])


def changes(before: Mapping[str, Cause], after: Mapping[str, Cause]) -> Pool:
    """Nodes whose state is another one; those that are gone are away."""
    gone = dict.fromkeys(before.keys() - after.keys(), BusyKind.AWAY)
    return {name: cause for name, cause in {**after, **gone}.items() if before.get(name, BusyKind.AWAY) != cause}


def allow_many_files() -> None:
    """Let this process have as many files open as it may, as each carrier is a connection; commands keep the limit."""
    hard = _FILES[1]
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, _FILES[0]), hard))


def run_command(
    command: Sequence[str],
    limit_s: float = LIMIT_S,
    environ: Mapping[str, str] = os.environ,
    most_bytes: int | None = _MOST_BYTES,
) -> str:
    """What a command prints; it is killed, with its process group, if it takes too long or when a signal comes.

    Its files are limited to `most_bytes`, as is that of what it prints: Slurm hands limits of `sbatch` on to the job.
    A `PollError` if it cannot be run, fails, takes longer, or prints more.
    """
    env = {name: value for name, value in environ.items() if not name.startswith(_SETTINGS_OF_USERS)}
    with open(os.memfd_create("answer"), "w+b") as out, open(os.memfd_create("fault"), "w+b") as err:
        process = None
        prepare = partial(_prepare, signal.pthread_sigmask(signal.SIG_BLOCK, ()), most_bytes)
        files: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        try:
            with defer_interrupts():  # until the process can be killed
                process = subprocess.Popen(command, process_group=0, env=env, preexec_fn=prepare, **files)
            status = process.wait(limit_s)
        except (OSError, ValueError) as fault:
            raise PollError(f"{command[0]}: {getattr(fault, 'strerror', None) or fault}.") from None
        except subprocess.TimeoutExpired:
            raise PollError(f"{command[0]}: No answer within {limit_s:g} s.") from None
        finally:
            if process is not None and process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        err.seek(0)
        lines = err.read().decode(errors="replace").strip().splitlines()
        if status:
            usual = f"Ended by signal {-status}" if status < 0 else f"Failed with status {status}"
            why = lines[-1].removeprefix(f"{command[0]}: ").removesuffix(".") if lines else usual
            raise PollError(f"{command[0]}: {one_line(why)}.")
        return out.read().decode(errors="replace")


def _prepare(signals: Collection[int], most_bytes: int | None) -> None:
    """Give a new process the signals and files that it usually has, and a limit of what it prints."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    resource.setrlimit(resource.RLIMIT_NOFILE, _FILES)
    if most_bytes is not None:
        with suppress(ValueError):  # there is a lower one already
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))


def _require(command: str) -> None:
    if shutil.which(command) is None:
        raise SettingsError(f"{command}: No such command.")


@dataclass(frozen=True, slots=True)
class SlurmPoll:
    """Asks Slurm of a partition, several between commas, or all: `sinfo`, and `squeue` if there may be carriers.

    These are jobs, in a word those of `carriers`, that make room for others: `is_carrier` takes their number and
    partition. Their nodes are idle. A `SettingsError` if sinfo is not on PATH.
    """

    partition: str | None = None
    is_carrier: Callable[[str, str], bool] | None = None
    carriers: str = ""

    def __post_init__(self) -> None:
        _require("sinfo")

    @property
    def source(self) -> str:
        """What is watched, in a few words."""
        where = f"sinfo -p {self.partition}" if self.partition else "sinfo"
        return f"{where}, without jobs of {self.carriers}" if self.carriers else where

    def __call__(self) -> Pool:
        """States of the nodes now; a `PollError` if they are not known."""
        # With -p, -a is an error.
        where = ["-p", self.partition] if self.partition else ["-a"]
        text, ours = run_command(["sinfo", "-h", "-N", *where, "-O", SINFO_FIELDS]), frozenset[str]()
        if self.is_carrier is not None:
            running = run_command(["squeue", "-h", "-a", "-t", "R,CG", "-o", SQUEUE_FIELDS])
            ours = nodes_of_carriers(running, self.is_carrier)
        with add_place(self.source, PollError):
            return slurm_pool(text, ours)


@dataclass(frozen=True, slots=True)
class CommandPoll:
    """Asks a command that prints nodes and their states, see `read_pool`; a `SettingsError` if it is not there."""

    command: tuple[str, ...]

    def __post_init__(self) -> None:
        _require(self.command[0])

    @property
    def source(self) -> str:
        """The command."""
        return shlex.join(self.command)

    def __call__(self) -> Pool:
        """States of the nodes now; a `PollError` if they are not known."""
        text = run_command(self.command)
        with add_place(self.command[0], PollError):
            return read_pool(text)
