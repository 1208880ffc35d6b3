"""Measurements as a table for people and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from benchmarks.workload import Measurement, Workload

__all__ = ["as_json", "as_table", "machine"]

PACKAGES = ("bftrainer", "numpy", "pandas", "pyarrow", "mip", "highspy", "gurobipy")


def machine() -> dict[str, Any]:
    """Processor, cores that may be used, system, and versions of what is measured."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "versions": versions,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def as_table(workload: Workload, measured: Sequence[Measurement]) -> Table:
    """One row a case, a rule between groups; ratios are durations over the baseline's, on the runs both did."""
    table = Table(title=f"{workload.name}: {workload.measures}", title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("")
    table.add_column("")
    has_cpu, has_memory = (any(getattr(one, name) is not None for one in measured) for name in ("cpu_s", "peak_bytes"))
    headings = ["runs", "median", "p95", *(["CPU"] if has_cpu else []), *(["peak memory"] if has_memory else [])]
    for heading in (*headings, *(f"/ {baseline}" for baseline in workload.baselines)):
        table.add_column(heading, justify="right")
    table.add_column("")
    for group, members in groupby(measured, key=lambda one: one.case.group):
        rows = list(members)
        by_name = {one.case.name: one for one in rows}
        for number, one in enumerate(rows):
            figures = [str(len(one.samples)), duration(one.median_s), duration(one.p95_s)]
            if has_cpu:
                figures.append(duration(one.cpu_s))
            if has_memory:
                figures.append("" if one.peak_bytes is None else f"{one.peak_bytes / 2**20:,.0f} MiB")
            ratios = [_ratio(one, by_name.get(baseline)) for baseline in workload.baselines]
            cells = [group if number == 0 else "", one.case.name, *(figures if one.samples else [""] * len(figures))]
            table.add_row(*cells, *ratios, one.note, end_section=one is rows[-1])
    return table


def duration(seconds: float | None) -> str:
    """A duration as people write it; empty for None."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms" if seconds < 0.0995 else f"{1000 * seconds:.0f} ms"
    return f"{seconds:.3g} s"


def _ratio(one: Measurement, baseline: Measurement | None) -> str:
    found = None if baseline is None else one.ratio(baseline)
    return "" if found is None else f"{found:.2g}" if found < 9.95 else f"{found:,.0f}"


def as_json(workload: Workload, measured: Sequence[Measurement]) -> list[dict[str, Any]]:
    """The same figures, and every run's duration."""
    rows = []
    for group, members in groupby(measured, key=lambda one: one.case.group):
        cases = list(members)
        by_name = {one.case.name: one for one in cases}
        for one in cases:
            ratios = {name: one.ratio(by_name[name]) for name in workload.baselines if name in by_name}
            rows.append(
                {
                    "workload": workload.name,
                    "group": group,
                    "case": one.case.name,
                    "median_s": one.median_s,
                    "p95_s": one.p95_s,
                    "cpu_s": one.cpu_s,
                    "peak_bytes": one.peak_bytes,
                    "ratios": ratios,
                    "note": one.note,
                    "seconds": one.seconds,
                }
            )
    return rows
