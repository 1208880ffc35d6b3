"""Output of the commands for recurring jobs: tables, files, figures, and the exit status."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bftrainer.cli._shared.progress import counting
from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli._shared.usage import LARGE_TOTAL, check_size, refuse_inputs, refuse_unused
from bftrainer.errors import TuningError
from bftrainer.files.writing import refuse_existing
from bftrainer.report.intervals import Estimate
from bftrainer.zeus.policies.trace import Configuration
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult, simulate_all
from bftrainer.zeus.simulation.figures import draw_figures, plan_figures
from bftrainer.zeus.simulation.files import check_suffix, write_results
from bftrainer.zeus.simulation.inputs import ZeusInputs, load_traces
from bftrainer.zeus.simulation.optimum import Converged, ZeusSummary


def opened(options: Mapping[str, Any]) -> ZeusInputs:
    """Read the traces that the options name.

    Before reading, check that output files can be written, and that no option is without effect.

    Raises
    ------
    OutputError
        If an output file's ending is unknown, or the file exists and must not be replaced.
    UnusedOptionsError
        If options say how to draw or write, but nothing is drawn or written.
    """
    output, figures = options["output"], options.get("figures")
    refuse_unused(
        {
            "figure_format": figures is None and "no --figures are drawn",
            "force": output is figures is None and "nothing is written",
        }
    )
    if output is not None:
        check_suffix(output)
        refuse_inputs(output)
        refuse_existing(output, force=options["force"])
    return load_traces(options["train"], options["power"])


def simulated(
    doing: str,
    simulations: Sequence[Simulation],
    inputs: ZeusInputs,
    options: Mapping[str, Any],
    size: tuple[str, int],
    *,
    fronts: bool = False,
    **sources: Any,
) -> list[SimulationResult]:
    """Simulate with a progress display, then write and draw what the options ask for.

    Parameters
    ----------
    doing : str
        Label of the progress display.
    simulations, inputs
        Simulations, and the traces that they use.
    options : mapping
        Options of the command.
    size : (str, int)
        Size of the work, in words and as a number: unusually large ones are refused.
    fronts : bool
        Whether Pareto fronts are drawn too.
    **sources
        Inputs besides the traces.
    """
    figures, force = None, options["force"]
    if options.get("figures") is not None:
        figures = plan_figures(options["figures"], options["figure_format"], simulations, fronts=fronts, force=force)
    check_size(*size, LARGE_TOTAL)
    with counting(doing, len(simulations)) as count:
        results = simulate_all(inputs.trace, simulations, options["workers"], count)
    if options["output"] is not None:
        write_results(options["output"], results, inputs.about(**sources))
    if figures is not None:
        draw_figures(figures, inputs.trace, results)
    return results


def finish(results: Sequence[SimulationResult]) -> None:
    """End a command after its results were printed and written.

    Raises
    ------
    TuningError
        If a simulation ended early; the message says why, in one line.
    """
    failures = [result.failure for result in results if result.failure is not None]
    if len(results) == 1 and failures:
        raise TuningError(failures[0])
    if failures:
        raise TuningError(f"{len(failures):,} of {len(results):,} simulations failed; the first: {failures[0]}")


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values for JSON: infinity, a beta that never stops a run, becomes null."""
    return {name: None if value == math.inf else value for name, value in values.items()}


_INDENT = 20


def number(value: float | None) -> str:
    """Format joules or seconds, without decimals from 1,000 on; None is a dash."""
    if value is None:
        return "-"
    # Rounding removes the noise that differences of large amounts leave.
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 3) + 0.0:.4g}"


def amount(found: Estimate | None) -> str:
    """Format a mean of energies, costs, times or counts, with its interval."""
    if found is None:
        return "-"
    return number(found.mean) + ("" if found.half_width is None else f" ± {number(found.half_width)}")


def percent(value: float | None) -> str:
    """Format a ratio's difference from 1 in percent, with its sign."""
    return "-" if value is None else f"{100 * value:+.2f} %"


def setting(batch_size: int, power_limit_w: float) -> str:
    """Format a batch size and power limit."""
    return f"{batch_size} at {power_limit_w:g} W"


def print_runs(result: SimulationResult) -> None:
    """Print for each run the chosen settings and the result."""
    simulation = result.simulation
    click.echo(f"{simulation}, eta {simulation.eta_knob:g}, beta {simulation.beta_knob:g}")
    click.echo("recurrence  try  batch size  power limit (W)     epochs       energy (J)        time (s)  reached")
    for run in result.runs:
        # A star marks runs whose first epoch tried all limits.
        limit = f"{run.power_limit_w}{'*' if run.profiled else ' '}"
        reached = ("yes" if run.reached else "no") if run.started else "never ran"
        click.echo(
            f"{run.recurrence:10}  {run.attempt:3}  {run.batch_size:10}  {limit:>15}  {run.epochs:9g}"
            f"  {number(run.energy_j):>15} {number(run.time_s):>15}  {reached}"
        )
    if any(run.profiled for run in result.runs):
        click.echo("* after profiling all power limits in its first epoch")
    click.echo()


def print_summary(summary: ZeusSummary) -> None:
    """Print totals, the setting converged to, and its distance from the optimum."""
    used = summary.used
    lines = [
        ("runs", f"{used.runs:,}, {used.recurrences:,} reached the target"),
        ("energy", f"{number(used.energy_j)} J"),
        ("time", f"{number(used.time_s)} s"),
        ("cost", f"{number(used.cost_j)} J"),
        ("converged to", _converged(summary.converged)),
        ("optimum", _configuration(summary.optimum)),
        ("regret, cumulative", "-" if summary.optimum is None else f"{number(summary.cumulative_regret_j)} J"),
        ("regret, final", _final(summary)),
    ]
    for label, text in lines:
        click.echo(f"{label:{_INDENT}}{text}")


def _converged(found: Converged | None) -> str:
    if found is None:
        return "-"
    cost = "" if found.expected is None else f", {number(found.expected.cost_j)} J a recurrence"
    return f"batch size {setting(found.batch_size, found.power_limit_w)} ({found.share:.0%} of the last runs){cost}"


def _configuration(best: Configuration | None) -> str:
    if best is None:
        return "none: nothing in the traces reaches the target"
    return f"batch size {setting(best.batch_size, best.power_limit_w)}, {number(best.cost_j)} J a recurrence"


def _final(summary: ZeusSummary) -> str:
    final, best = summary.final_regret_j, summary.optimum
    if final is None or best is None:
        return "-"
    share = f" ({percent(final / best.cost_j)})" if best.cost_j else ""
    return f"{number(final)} J a recurrence{share}"


def print_simulations(results: Sequence[SimulationResult], summaries: Sequence[ZeusSummary]) -> None:
    """Print a line for each simulation."""
    headings = ("job", "seed", "runs", "energy (J)", "time (s)", "cost (J)", "converged to", "its cost over optimum")
    print_table(
        (*headings, "cumulative regret (J)", "final regret (J)"),
        [_line(*pair) for pair in zip(results, summaries, strict=True)],
    )


def _line(result: SimulationResult, summary: ZeusSummary) -> tuple[str, ...]:
    used, found = summary.used, summary.converged
    return (
        str(result.simulation.job),
        f"{result.simulation.seed}{' (failed)' if result.is_partial else ''}",
        f"{used.runs:,}",
        number(used.energy_j),
        number(used.time_s),
        number(used.cost_j),
        "-" if found is None else setting(found.batch_size, found.power_limit_w),
        percent(summary.excess),
        number(summary.cumulative_regret_j),
        number(summary.final_regret_j),
    )
