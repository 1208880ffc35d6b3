"""The driver: ``python -m benchmarks [NAME...]``."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from benchmarks.registry import WORKLOADS
from benchmarks.table import as_json, as_table, machine
from benchmarks.workload import Plan, measure

WIDTH = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(list(WORKLOADS)), metavar="[NAME]...")
@click.option("--list", "listing", is_flag=True, help="List the workloads and stop.")
@click.option("--repeat", type=click.IntRange(min=1), help="Runs per case.  [default: the workload's own]")
@click.option("--seed", type=click.IntRange(min=0), help="Of what is drawn.  [default: another one each time]")
@click.option("--quick", is_flag=True, help="Small inputs and one run: does everything work?")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all figures to this file too.")
def main(
    names: tuple[str, ...], listing: bool, repeat: int | None, seed: int | None, quick: bool, json_path: Path | None
) -> None:
    """Run benchmarks, all of them without NAMEs, and print medians, 95th percentiles and ratios.

    Ratios are taken on the runs that both did, within this call; below 1 is faster.
    """
    if listing:
        for workload in WORKLOADS.values():
            click.echo(f"{workload.name:10} {workload.measures}")
        return
    seed = secrets.randbelow(10**6) if seed is None else seed
    about = machine()
    console = Console(width=WIDTH, highlight=False)
    console.print(f"{about['processor']}, {about['cores']} cores, {about['system']}; seed {seed}")
    console.print(", ".join(f"{name} {number}" for name, number in about["versions"].items()), end="\n\n")
    figures = []
    for name in names or WORKLOADS:
        workload = WORKLOADS[name]
        if sys.stderr.isatty():
            click.echo(f"Running {name} ...", err=True)
        with tempfile.TemporaryDirectory(prefix="bftrainer-benchmark-") as scratch:
            measured = list(measure(workload, Plan(seed, Path(scratch), quick, repeat)))
        console.print(as_table(workload, measured))
        figures += as_json(workload, measured)
    if json_path is not None:
        text = json.dumps({"machine": about, "seed": seed, "figures": figures}, indent=1)
        json_path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
