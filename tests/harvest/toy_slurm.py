"""Slurm's commands as a toy: jobs are processes on this machine, and tests say what goes wrong."""

import os
import signal

import pytest

from tests.waiting import alive, until

__all__ = ["COMMANDS", "ToySlurm", "toy"]

COMMANDS = ("sinfo", "squeue", "sbatch", "srun", "scancel", "scontrol")
_SCRIPT = """#!/bin/sh
name=$(basename "$0")
[ "$name" = srun ] || cd "{here}"
echo "$name $*" >> "{here}/asked"
[ -e "{here}/$name.fails" ] && {{ cat "{here}/$name.fails" >&2; exit 1; }}
case "$name $*" in
sinfo*)
    while read -r node state; do
        grep -q "^$node .* RUNNING" jobs/* 2> /dev/null && state="allocated+$state"
        echo "$node $state $state"
    done < nodes ;;
squeue*" -t PD "*) [ ! -e waiting ] || cat waiting ;;
squeue*)
    for job in $(ls jobs); do
        read -r node title state < "jobs/$job" || continue
        case "$state $*" in
        RUNNING*%P*) echo "$job|scavenge|$node" ;;
        *%P*) ;;
        *) echo "$job $title $state 0 $([ -e ending ] && echo 10 || echo 1800)" ;;
        esac
    done ;;
sbatch*)
    for word; do
        case $word in --nodelist=*) node=${{word#*=}} ;; --job-name=*) title=${{word#*=}} ;; esac
    done
    job=$(($(cat count) + 1)); echo $job > count
    echo "$node $title $([ -e pending ] && echo PENDING || echo RUNNING)" > "jobs/$job"
    [ -e pending ] || (SLURM_JOB_ID=$job sh -c "echo \\$\\$ > pids/$job; $word" >> out 2>&1; rm -f "jobs/$job") &
    echo "$job" ;;
srun*)
    while [ "${{1#--}}" != "$1" ]; do shift; done
    exec "$@" ;;
scancel*)
    [ -e deaf ] && exit
    for word; do
        [ -e "pids/$word" ] && kill "$(cat "pids/$word")"
        [ -e "jobs/$word" ] && grep -q PENDING "jobs/$word" && rm "jobs/$word"
    done; true ;;
"scontrol show config") cat config ;;
scontrol*) cat partitions ;;
esac
"""


class ToySlurm:
    """Commands of Slurm below a directory, which is to be first on PATH, and idle nodes."""

    def __init__(self, here, nodes="n1 n2 n3"):
        self.here = here
        for name in ("bin", "jobs", "pids"):
            (here / name).mkdir()
        for name in COMMANDS:
            (here / "bin" / name).write_text(_SCRIPT.format(here=here))
            (here / "bin" / name).chmod(0o755)
        self.put("count", "0")
        self.put("config", "PreemptType = preempt/partition_prio\nPreemptMode = CANCEL\n")
        self.put(
            "partitions",
            "PartitionName=batch Nodes=n[1-3] MaxTime=UNLIMITED PriorityTier=10 PreemptMode=OFF GraceTime=0",
            "PartitionName=gpu Nodes=g[1-3] MaxTime=UNLIMITED PriorityTier=10 PreemptMode=OFF GraceTime=0",
            "PartitionName=scavenge Nodes=n[1-3] MaxTime=01:00:00 PriorityTier=1 PreemptMode=CANCEL GraceTime=2",
        )
        self.put("nodes", *(f"{node} idle" for node in nodes.split()))

    def put(self, name, *lines):
        """Write a file that commands look at: `nodes`, `sbatch.fails`, `pending`, `waiting`, `deaf` and others."""
        new = self.here / "new"
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.here / name)

    def edit(self, name, was, put):
        """Replace a text in such a file."""
        self.put(name, (self.here / name).read_text().strip().replace(was, put))

    def drop(self, name):
        """Take such a file away."""
        (self.here / name).unlink()

    def asked(self):
        """Command lines so far."""
        return (self.here / "asked").read_text().splitlines()

    def jobs(self):
        """Jobs that there are: number, and node, name and state."""
        return {path.name: path.read_text().split() for path in sorted((self.here / "jobs").iterdir())}

    def pid(self, job):
        """Process of a job's carrier."""
        return int(until((self.here / "pids" / job).read_text))

    def end(self):
        """End all jobs."""
        for path in (self.here / "pids").iterdir():
            if alive(int(path.read_text())):
                os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Three idle nodes, whose commands are first on PATH."""
    (tmp_path / "toy").mkdir()
    toy = ToySlurm(tmp_path / "toy")
    monkeypatch.setenv("PATH", f"{toy.here / 'bin'}:{os.environ['PATH']}")
    yield toy
    toy.end()
