"""What benchmarks share: a seed, memory of processes, and lines below the table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

SEED = 169284
_LINES = pytest.StashKey[list[str]]()
# A child starts with its parent's pages on its account, so a small process stands between it and this large one.
_LAUNCHER = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
sys.exit(status)
"""


def pytest_runtest_teardown(item: Any) -> None:
    """Keep what a benchmark tells beside its times, for below the table."""
    benchmark = item.funcargs.get("benchmark")
    if benchmark is not None and benchmark.extra_info:
        figures = ", ".join(f"{name} {value}" for name, value in benchmark.extra_info.items())
        item.config.stash.setdefault(_LINES, []).append(f"{item.name}: {figures}")


@pytest.fixture
def run_process(benchmark: Any, tmp_path: Path) -> Callable[[Sequence[object], int], None]:
    """Time a command in an empty directory; its processor time and peak memory stand below the table."""

    def run(argv: Sequence[object], rounds: int = 3) -> None:
        words = [sys.executable, "-c", _LAUNCHER, *map(str, argv)]

        def run_once() -> str:
            return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

        peak_kib, cpu_s = benchmark.pedantic(run_once, rounds=rounds).split()
        benchmark.extra_info |= {"CPU": f"{float(cpu_s):.3g} s", "memory": f"{int(peak_kib) / 1024:,.0f} MiB"}

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what benchmarks tell beside their times, such as processor time and peak memory of the last run."""
    for line in terminalreporter.config.stash.get(_LINES, []):
        terminalreporter.write_line(line)
