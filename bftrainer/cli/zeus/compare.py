"""`bftrainer zeus compare`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.usage import LARGE_TOTAL, check_size, large_option, size_option
from bftrainer.cli.zeus.options import (
    figure_options,
    job_choice,
    job_options,
    knob_options,
    knobs,
    output_options,
    policy_names,
    seed_options,
    trace_options,
)

if TYPE_CHECKING:
    from bftrainer.report.intervals import Estimate
    from bftrainer.zeus.simulation.compare import Comparison

__all__ = ["compare"]

POLICIES = ("grid", "ucb", "zeus", "oracle")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@trace_options
@job_options
@click.option(
    "--policy",
    "policies",
    metavar="NAME[+NAME]",
    multiple=True,
    default=POLICIES,
    show_default=True,
    shell_complete=policy_names,
    help="Policy for batch sizes, and after a + that for power limits (jit unless said); repeatable.",
)
@size_option(
    "--recurrences", kind=click.IntRange(min=1), default=100, show_default=True, help="Times that each job recurs."
)
@knob_options
@seed_options(10)
@figure_options
@output_options
@large_option
def compare(
    train: Path | None,
    power: Path | None,
    policies: tuple[str, ...],
    recurrences: int,
    seeds: int,
    workers: int | None,
    figures: Path | None,
    figure_format: str,
    output: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare policies on jobs: means over seeds, of a recurrence, with 95 % intervals.

    The baseline, the default batch size at the highest power limit (default+max-power), is always among them; what the
    others take is also given relative to it, of several jobs as geometric mean.
    """
    from bftrainer.cli.zeus.output import check_output, finish, finite, simulated
    from bftrainer.zeus.simulation.compare import PolicyPair, compared, comparison_of_all, simulations_of
    from bftrainer.zeus.simulation.figures import plan_figures
    from bftrainer.zeus.simulation.inputs import choose_jobs, load_traces

    check_output(output, figures, force=force)
    pairs = [PolicyPair.parsed(text) for text in policies]
    inputs = load_traces(train, power)
    jobs = choose_jobs(inputs, job_choice(options))
    simulations = simulations_of(jobs, pairs, seeds, recurrences=recurrences, **knobs(options))
    plan = plan_figures(figures, figure_format, simulations, fronts=False, force=force)
    check_size("recurrences of all jobs and seeds", recurrences * len(simulations), LARGE_TOTAL)
    results = simulated("Comparing", simulations, inputs, workers, output, plan)
    rows = compared(inputs.trace, results)
    if len(jobs) > 1:
        rows += comparison_of_all(results)
    if as_json:
        about = {"seeds": seeds, "recurrences": recurrences, **finite(knobs(options)), **inputs.about()}
        comparisons = {"comparisons": [row.to_dict() for row in rows]}
        click.echo(json.dumps(about | comparisons, indent=2, allow_nan=False))
    else:
        _print(rows, seeds)
    finish(results)


def _print(rows: Sequence[Comparison], seeds: int) -> None:
    from bftrainer.cli._shared.stdio import print_table

    relative = ("cost", "energy", "time")
    absolute = ("policies", "cost (J)", "energy (J)", "time (s)", "cumulative regret (J)")
    for job in dict.fromkeys(row.job for row in rows):
        of_job = [row for row in rows if row.job == job]
        failures = any(row.failed for row in of_job)
        tail = ("failed",) if failures else ()
        headings = (*absolute, *relative, *tail) if job is not None else ("policies", *relative, *tail)
        click.echo(f"{job or 'all jobs'}, {seeds} seeds; cost, energy and time relative to default+max-power")
        print_table(headings, [_cells(row) + ((str(row.failed),) if failures else ()) for row in of_job])
        click.echo()


def _cells(row: Comparison) -> tuple[str, ...]:
    from bftrainer.cli.zeus.output import amount

    relative = row.relative
    changes = tuple(_change(each) for each in (relative.cost, relative.energy, relative.time))
    if row.job is None:
        return (str(row.policies), *changes)
    amounts = (amount(each) for each in (row.cost_j, row.energy_j, row.time_s, row.regret_j))
    return (str(row.policies), *amounts, *changes)


def _change(found: Estimate | None) -> str:
    if found is None:
        return "-"
    spread = "" if found.half_width is None else f" ± {100 * found.half_width:.2f}"
    return f"{100 * (found.mean - 1):+.2f}{spread} %"
