"""A Slurm of one's own on this machine: eight nodes, a partition for jobs, and a preemptible one beside it.

As a program, ``python -m tests.harvest.slurm -- COMMAND...`` runs a command with SLURM_CONF set, for benchmarks.
All daemons are children of this process and end with it; all that they write lies below one temporary directory.
"""

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bftrainer.supervisor import die_with_parent
from tests.waiting import until

NODES = tuple(f"n{number}" for number in range(1, 9))
GRACE_S = 10
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "sbatch", "srun")
_CONF = """
ClusterName=own
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/spool/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,sched_min_interval=1000
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs.txt
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
Waittime=0
NodeName=n[1-8] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 RealMemory=1000 State=UNKNOWN
PartitionName=batch Nodes=n[1-8] Default=YES MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=scavenge Nodes=n[1-8] MaxTime=INFINITE PriorityTier=1 PreemptMode={mode} GraceTime={grace} State=UP
"""


def missing() -> str:
    """Why there can be no Slurm on this machine; empty if there can be one."""
    lacking = [name for name in _PROGRAMS if _program(name) is None]
    packages = "slurmctld slurmd slurm-client munge"
    return f"no {', '.join(lacking)} (Debian: apt-get install {packages})" if lacking else ""


def _program(name: str) -> str | None:
    """A program, also where only the administrator's PATH has it."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


class Slurm:
    """The daemons of a cluster, each of which can be killed and started again; `environ` is for processes that use it.

    All that they write lies in `folder`, which is readable by all users, as is the configuration. The preemptible
    partition has a grace time and a mode.
    """

    def __init__(self, folder: Path, grace_s: int = GRACE_S, preempt_mode: str = "CANCEL") -> None:
        self.folder, self._running = folder, dict[str, subprocess.Popen[bytes]]()
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir(mode=0o755)
        key = folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        port = _free_ports(len(NODES) + 1)
        self._conf = folder / "slurm.conf"
        self._conf.write_text(
            _CONF.format(
                user=getpass.getuser(),
                folder=folder,
                port=port,
                first=port + 1,
                last=port + len(NODES),
                grace=grace_s,
                mode=preempt_mode,
            )
        )
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SINFO", "SBATCH"))},
            "SLURM_CONF": str(self._conf),
        }

    def start(self) -> None:
        """Start all daemons, and wait until all nodes are idle."""
        munge = self.folder / "munge"
        places = [f"--{name}-file={munge / name}" for name in ("key", "pid", "seed", "log")]
        self._start("munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *places)
        until((munge / "socket").exists)
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        until(lambda: set(self.states().values()) == {"idle"})

    def start_controller(self) -> None:
        """Start the controller, and wait until it answers."""
        self._start("slurmctld", "-D")
        until(lambda: self.run("scontrol", "ping").stdout.count(" UP"))

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._start("slurmd", "-D", "-N", node, name=node)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a daemon: `slurmctld`, or that of a node."""
        process = self._running.pop(name)
        process.send_signal(number)
        process.wait(60)

    def _start(self, program: str, *words: str, name: str = "") -> None:
        name = name or program
        with (self.folder / f"{name}.out").open("ab") as stream:
            self._running[name] = subprocess.Popen(
                [_program(program) or program, *words],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=self.environ,
                cwd=self.folder,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )

    def run(self, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run a command in the cluster's environment."""
        known = {"capture_output": True, "text": True, "timeout": 60.0, "env": self.environ, "check": False}
        return subprocess.run(words, **(known | options))  # type: ignore[call-overload]

    def told(self, *words: str) -> str:
        """What a command prints that has to succeed, without the line's end."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return str(done.stdout).rstrip("\n")

    def submit(self, script: str, *options: str) -> int:
        """Submit a job of some shell commands; its number."""
        return int(self.told("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script))

    def states(self) -> dict[str, str]:
        """State of each node, in Slurm's own word."""
        rows = self.run("sinfo", "-h", "-N", "-p", "batch", "-O", "NodeList:64,StateLong:24").stdout.splitlines()
        return dict(row.split() for row in rows)

    def jobs(self) -> dict[int, str]:
        """State of each job that waits, runs or ends."""
        rows = self.run("squeue", "-h", "-o", "%A %T").stdout.splitlines()
        return {int(number): state for number, state in (row.split() for row in rows)}

    def clean(self) -> None:
        """End all jobs, start what was killed, and have all nodes idle."""
        if "slurmctld" not in self._running:
            self.start_controller()
        for node in NODES:
            if node not in self._running:
                self.start_node(node)
        self._cancel_all()
        until(lambda: all(state in ("idle", "planned") or self._resumed(node) for node, state in self.states().items()))

    def _resumed(self, node: str) -> bool:
        self.run("scontrol", "update", f"nodename={node}", "state=resume")
        return False

    def _cancel_all(self) -> None:
        for number in self.jobs():
            self.run("scancel", str(number))
        until(lambda: not self.jobs())

    def stop(self) -> None:
        """End all jobs, then the daemons."""
        if {"slurmctld", *NODES} <= set(self._running):
            self._cancel_all()
        for name in reversed(tuple(self._running)):
            self.kill(name, signal.SIGTERM)
        for process in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _left(self) -> list[int]:
        """Processes of jobs that outlived the daemons: their environment names this cluster's configuration."""
        mark, found = f"SLURM_CONF={self._conf}\0".encode(), []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (place / "environ").read_bytes():
                    found.append(int(place.name))
        return [process for process in found if process != os.getpid()]


def _free_ports(count: int) -> int:
    """The first of some ports in a row that nobody uses."""
    while True:
        first = 20_000 + secrets.randbelow(10_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


@contextlib.contextmanager
def running_slurm(grace_s: int = GRACE_S, preempt_mode: str = "CANCEL") -> Iterator[Slurm]:
    """A cluster that lives as long as the block; its preemptible partition has this grace time and mode."""
    folder = Path(tempfile.mkdtemp(prefix="own-slurm-"))
    folder.chmod(0o755)
    slurm = Slurm(folder, grace_s, preempt_mode)
    try:
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(words: Sequence[str]) -> int:
    """Run a command with a cluster of its own; its exit status."""
    if fault := missing():
        sys.exit(fault)
    with running_slurm() as slurm:
        return subprocess.run(words, env=slurm.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]))
