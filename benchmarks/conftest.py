"""What benchmarks share: a seed, memory of processes, and lines above the tables."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

SEED = 169284


@pytest.fixture
def run_process(benchmark: Any, tmp_path: Path) -> Callable[[Sequence[object], int], None]:
    """Time a command in an empty directory; processor time and peak memory of the last run stand above the tables."""

    def run(argv: Sequence[object], rounds: int = 3) -> None:
        words = ["/usr/bin/time", "-f", "%M %U %S", "-o", "used", *map(str, argv)]
        benchmark.pedantic(
            subprocess.run, (words,), {"cwd": tmp_path, "check": True, "capture_output": True}, rounds=rounds
        )
        peak_kib, *cpu_s = map(float, (tmp_path / "used").read_text().split())
        benchmark.extra_info |= {"CPU": f"{sum(cpu_s):.3g} s", "memory": f"{peak_kib / 1024:,.0f} MiB"}

    return run


def pytest_benchmark_group_stats(config: Any, benchmarks: Sequence[dict[str, Any]]) -> None:
    """Print what benchmarks tell beside their times."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line("")
    for entry in benchmarks:
        if figures := ", ".join(f"{name} {value}" for name, value in entry["extra_info"].items()):
            reporter.write_line(f"{entry['name']}: {figures}")
