"""Figures of each release: ``python -m benchmarks.history add VERSION FIGURES.json``, and ``show`` for the docs.

FIGURES.json is what ``python -m benchmarks --json FIGURES.json`` writes. A release is measured once, and its figures
stay in ``history.json``; compare only releases that were measured on one machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.table import duration

__all__ = ["HISTORY", "KEPT", "as_markdown", "main"]

HISTORY = Path(__file__).with_name("history.json")
# What a release is judged by: workload, group and case.
KEPT = (
    ("decision", "10 x 130", "dp"),
    ("decision", "30 x 391", "dp"),
    ("decision", "100 x 4608", "dp"),
    ("decision", "100 x 4608", "cbc"),
    ("events", "10 tasks", "loop"),
    ("events", "1,000 tasks", "loop"),
    ("tuned", "sample, dp", "tuned"),
    ("replay", "sample, 512 nodes", "dp"),
    ("replay", "sample, 512 nodes", "cbc"),
    ("replay", "Summit, 4,734 nodes", "dp"),
    ("replay", "Summit, 4,734 nodes", "cbc"),
    ("import", "1,000,000 rows", "bftrainer import --format slurm"),
    ("logs", "365 d of 9,400 nodes", "bftrainer trace generate"),
    ("logs", "365 d of 9,400 nodes", "parsed, rows as arrays"),
    ("sweep", "32 replays", "2 workers"),
    ("start-up", "start-up", "bftrainer --help"),
)

Release = dict[str, Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Keep the figures of releases."""


@main.command()
@click.argument("version")
@click.argument("figures", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def add(version: str, figures: tuple[Path, ...]) -> None:
    """Keep the figures of VERSION, from files that the benchmarks wrote."""
    releases = [release for release in _releases() if release["version"] != version]
    release: Release = {"version": version, "figures": {}}
    for path in figures:
        written = json.loads(path.read_text(encoding="utf-8"))
        release["machine"] = written["machine"]
        release["figures"] |= dict(sorted(_kept(written["figures"]).items()))
    text = json.dumps([*releases, release], indent=1)
    HISTORY.write_text(f"{text}\n", encoding="utf-8")


@main.command()
def show() -> None:
    """Print the table of all releases."""
    click.echo(as_markdown(_releases()))


def as_markdown(releases: list[Release]) -> str:
    """One row a case and one column a release: the median, processor time where it was taken, and memory."""
    head = "".join(f" {release['version']} |" for release in releases)
    lines = [f"| workload | case |{head}", f"|---|---|{'---|' * len(releases)}"]
    for workload, group, case in KEPT:
        cells = [_cell(release["figures"].get(f"{workload}/{group}/{case}")) for release in releases]
        if any(cells):
            lines.append(f"| {workload} | {group}: {case} |" + "".join(f" {cell} |" for cell in cells))
    return "\n".join(lines)


def _cell(figure: dict[str, float | None] | None) -> str:
    if figure is None:
        return ""
    cpu_s, peak_bytes = figure["cpu_s"], figure["peak_bytes"]
    parts = [duration(figure["median_s"])]
    parts += [f"CPU {duration(cpu_s)}"] if cpu_s is not None else []
    parts += [f"{peak_bytes / 2**20:,.0f} MiB"] if peak_bytes is not None else []
    return ", ".join(parts)


def _kept(figures: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    found = {}
    for row in figures:
        if (row["workload"], row["group"], row["case"]) in KEPT and row["median_s"] is not None:
            name = f"{row['workload']}/{row['group']}/{row['case']}"
            found[name] = {key: row.get(key) for key in ("median_s", "cpu_s", "peak_bytes")}
    return found


def _releases() -> list[Release]:
    return json.loads(HISTORY.read_text(encoding="utf-8")) if HISTORY.exists() else []


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.history")
