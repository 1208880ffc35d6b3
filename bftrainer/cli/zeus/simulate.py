"""`bftrainer zeus simulate`."""

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
    policy_options,
    seed_options,
    server_costs_option,
    trace_options,
)

if TYPE_CHECKING:
    from bftrainer.zeus.simulation.campaign import SimulationResult
    from bftrainer.zeus.simulation.inputs import ZeusInputs
    from bftrainer.zeus.simulation.summary import ZeusSummary

__all__ = ["simulate"]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@trace_options
@job_options
@size_option(
    "--recurrences", kind=click.IntRange(min=1), default=100, show_default=True, help="Times that the job recurs."
)
@knob_options
@policy_options
@server_costs_option
@seed_options(1)
@figure_options
@output_options
@large_option
def simulate(
    train: Path | None,
    power: Path | None,
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
    """Simulate the recurrences of a job whose batch size and power limit are tuned from run to run.

    One job and seed are shown run by run; several, a line each. The setting that a simulation converged to is the most
    frequent one of the last tenth of its recurrences (at least five). Regret is what recurrences cost beyond the mean
    cost of the traces' cheapest setting; the final one is the mean of those last recurrences.
    """
    from bftrainer.cli.zeus.output import (
        check_output,
        finish,
        print_runs,
        print_simulations,
        print_summary,
        simulated,
    )
    from bftrainer.zeus import Corrections
    from bftrainer.zeus.simulation.campaign import Simulation, with_seeds
    from bftrainer.zeus.simulation.figures import plan_figures
    from bftrainer.zeus.simulation.inputs import choose_jobs, load_traces
    from bftrainer.zeus.simulation.summary import summarise

    check_output(output, figures, force=force)
    inputs = load_traces(train, power)
    jobs = choose_jobs(inputs, job_choice(options), one=True)
    settings = {name: options[name] for name in ("policy", "power_policy")} | knobs(options)
    corrections = Corrections(server_costs=options["server_costs"])
    first = [Simulation(job, recurrences, corrections=corrections, **settings) for job in jobs]
    simulations = [each for simulation in first for each in with_seeds(simulation, seeds)]
    plan = plan_figures(figures, figure_format, simulations, fronts=True, force=force)
    check_size("recurrences of all jobs and seeds", recurrences * len(simulations), LARGE_TOTAL)
    results = simulated("Simulating", simulations, inputs, workers, output, plan)
    summaries = [summarise(inputs.trace, result) for result in results]
    if as_json:
        _print_json(results, summaries, inputs)
    elif len(results) == 1:
        print_runs(results[0])
        print_summary(summaries[0])
    else:
        print_simulations(results, summaries)
    finish(results)


def _print_json(results: Sequence[SimulationResult], summaries: Sequence[ZeusSummary], inputs: ZeusInputs) -> None:
    from bftrainer.zeus.simulation.files import results_document

    document = results_document(results, inputs.about())
    for each, summary in zip(document["simulations"], summaries, strict=True):
        each["summary"] = summary.to_dict()
    click.echo(json.dumps(document, indent=2, allow_nan=False))
