"""Ask a scheduler how its nodes are: one cheap call that any user may make, with a limit of time and of size."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bftrainer.errors import PollError, SettingsError, at_place
from bftrainer.files.opening import one_line
from bftrainer.harvest.pool_states import (
    SINFO_FIELDS,
    SQUEUE_FIELDS,
    Pool,
    listed_pool,
    nodes_of_carriers,
    slurm_pool,
)
from bftrainer.parallel import interrupts_held

LIMIT_S = 30.0
_MOST_BYTES = 1 << 26
_FILES, _MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE), 1 << 20
# They would change what is printed.
_SETTINGS_OF_USERS = ("SINFO_", "SQUEUE_")


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
    """What a command prints; it is killed, and all of its process group, if it takes too long or when a signal comes.

    Its files are limited to `most_bytes`, as is that of what it prints: Slurm hands limits of `sbatch` on to the job.

    Raises
    ------
    PollError
        If it cannot be run, fails, takes longer, or prints more than 64 MiB.
    """
    with open(os.memfd_create("answer"), "w+b") as out, open(os.memfd_create("fault"), "w+b") as err:
        process = None
        usual = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            with interrupts_held():  # until the process can be killed
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    process_group=0,
                    env={name: value for name, value in environ.items() if not name.startswith(_SETTINGS_OF_USERS)},
                    preexec_fn=partial(_prepared, usual, most_bytes),
                )
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
        said = err.read().decode(errors="replace").strip().splitlines()
        if status:
            why = said[-1].removeprefix(f"{command[0]}: ").removesuffix(".") if said else _ending(status)
            raise PollError(f"{command[0]}: {one_line(why)}.")
        return out.read().decode(errors="replace")


def _prepared(signals: Collection[int], most_bytes: int | None) -> None:
    """Give a new process the signals and files that it usually has, and a limit of what it prints."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    resource.setrlimit(resource.RLIMIT_NOFILE, _FILES)
    if most_bytes is not None:
        with suppress(ValueError):  # there is a lower one already
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))


def _ending(status: int) -> str:
    if status == -signal.SIGXFSZ:
        return f"Expected an answer of at most {_MOST_BYTES >> 20} MiB, got more"
    return f"Ended by signal {-status}" if status < 0 else f"Failed with status {status}"


def _found(command: str) -> None:
    """Refuse a command that is not there: `SettingsError`."""
    if shutil.which(command) is None:
        raise SettingsError(f"{command}: No such command.")


@dataclass(frozen=True, slots=True)
class SlurmPoll:
    """Asks Slurm: `sinfo` once, and `squeue` if there may be carriers.

    Parameters
    ----------
    partition : str, optional
        Only nodes of this partition, or of several between commas.
    is_carrier : callable, optional
        Takes the number and the partition of a job, and says whether it makes room for others: its nodes are idle.
    carriers : str
        Which jobs these are, in a word.

    Raises
    ------
    SettingsError
        If these commands are not on PATH.
    """

    partition: str | None = None
    is_carrier: Callable[[str, str], bool] | None = None
    carriers: str = ""

    def __post_init__(self) -> None:
        _found("sinfo")

    @property
    def source(self) -> str:
        """What is watched, in a few words."""
        where = f"sinfo -p {self.partition}" if self.partition else "sinfo"
        return f"{where}, without jobs of {self.carriers}" if self.carriers else where

    def __call__(self) -> Pool:
        """States of the nodes now; a `PollError` if they are not known."""
        # With -p, -a is an error.
        where = ["-p", self.partition] if self.partition else ["-a"]
        said, ours = run_command(["sinfo", "-h", "-N", *where, "-O", SINFO_FIELDS]), frozenset[str]()
        if self.is_carrier is not None:
            running = run_command(["squeue", "-h", "-a", "-t", "R,CG", "-o", SQUEUE_FIELDS])
            ours = nodes_of_carriers(running, self.is_carrier)
        with at_place(self.source, PollError):
            return slurm_pool(said, ours)


@dataclass(frozen=True, slots=True)
class CommandPoll:
    """Asks a command that prints nodes and their states, see `listed_pool`.

    Parameters
    ----------
    command : tuple of str

    Raises
    ------
    SettingsError
        If it is not there.
    """

    command: tuple[str, ...]

    def __post_init__(self) -> None:
        _found(self.command[0])

    @property
    def source(self) -> str:
        """The command."""
        return shlex.join(self.command)

    def __call__(self) -> Pool:
        """States of the nodes now; a `PollError` if they are not known."""
        said = run_command(self.command)
        with at_place(self.command[0], PollError):
            return listed_pool(said)
