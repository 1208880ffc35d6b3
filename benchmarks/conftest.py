"""What benchmarks share: a seed, memory of processes, and its place below the table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

SEED = 169284
_MEMORY = pytest.StashKey[list[str]]()
# A child starts with its parent's pages on its account, so a small process stands between it and this large one.
_LAUNCHER = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
sys.exit(status)
"""


@pytest.fixture
def run_process(
    benchmark: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[Sequence[object], int], None]:
    """Time a command in an empty directory; its processor time and peak memory stand below the table."""

    def run(argv: Sequence[object], rounds: int = 3) -> None:
        words = [sys.executable, "-c", _LAUNCHER, *map(str, argv)]

        def run_once() -> str:
            return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

        peak_kib, cpu_s = benchmark.pedantic(run_once, rounds=rounds).split()
        figures = f"CPU {float(cpu_s):.3g} s, {int(peak_kib) / 1024:,.0f} MiB"
        request.config.stash.setdefault(_MEMORY, []).append(f"{request.node.name}: {figures}")

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print processor time and peak memory of the last run of each command."""
    for line in terminalreporter.config.stash.get(_MEMORY, []):
        terminalreporter.write_line(line)
