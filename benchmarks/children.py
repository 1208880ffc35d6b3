"""Work done in a process of its own: its peak memory, and the possibility to stop it."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.workload import Sample, Unmeasured

__all__ = ["command_sample", "within"]

# A child starts with its parent's pages on its account, so a small process stands between it and this large one.
_LAUNCHER = """
import resource, subprocess, sys, time
began = time.perf_counter()
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - began, used.ru_maxrss, used.ru_utime + used.ru_stime)
sys.exit(status)
"""


def command_sample(argv: Sequence[str | Path], directory: Path) -> Sample:
    """Run a command in `directory` with nothing on its stdout; its wall-clock time, processor time and peak memory.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    words = [str(word) for word in argv]
    done = subprocess.run([sys.executable, "-c", _LAUNCHER, *words], cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit status {done.returncode}: {done.stderr.strip()}")
    seconds, peak_kib, cpu_s = done.stdout.split()
    return Sample(float(seconds), peak_bytes=int(peak_kib) * 1024, cpu_s=float(cpu_s))


def within(seconds: float, action: Callable[[], Any]) -> None:
    """Run `action` in a forked process that is stopped after `seconds`.

    Raises
    ------
    Unmeasured
        If it has to be stopped.
    RuntimeError
        If it fails.
    """
    child = multiprocessing.get_context("fork").Process(target=action)
    child.start()
    child.join(seconds)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise Unmeasured(f"> {seconds:g} s")
    if child.exitcode != 0:
        raise RuntimeError(f"Expected a process that ends well, got exit status {child.exitcode}.")
