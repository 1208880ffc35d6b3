"""Options that the commands for recurring jobs share, and how they print numbers; nothing heavy is loaded for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.usage import FILE, PROCESSES, SIZE, Decorator, force_option, json_option, with_options

if TYPE_CHECKING:
    from bftrainer.report.intervals import Estimate
    from bftrainer.zeus.simulation.inputs import JobChoice

SECTIONS = {
    "Common options": (
        *("jobs_file", "job_names", "groups_file", "names", "recurrences", "policy", "policies", "power_policy"),
        *("seeds", "eta", "output", "figures", "as_json"),
    )
}


def policy_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Complete names of registered policies of the option's kind, for a shell."""
    from bftrainer.zeus.policies.policy_registry import BATCH_SIZES, POWER_LIMITS

    known = POWER_LIMITS if param.name == "power_policy" else BATCH_SIZES
    return [name for name in known.names() if name.startswith(incomplete)]


trace_options = with_options(
    click.option("--train", type=FILE, help="Epochs to target by batch size (CSV).  [default: embedded]"),
    click.option("--power", type=FILE, help="Time and power by batch size and power limit (CSV).  [default: embedded]"),
)
job_options = with_options(
    click.option("--jobs", "jobs_file", type=FILE, help="Jobs (TOML); all of them unless --job picks some."),
    click.option(
        "--job", "job_names", metavar="DATASET,NETWORK,OPTIMIZER", multiple=True, help="A job to use; repeatable."
    ),
    click.option("--target", type=float, help="Metric that runs aim at; for all jobs, as the next two."),
    click.option("--max-epochs", type=SIZE, help="Epochs after which a run gives up.  [default: 100]"),
    click.option("--default-bs", type=int, help="Batch size that is used when nothing is known."),
)
BATCH_SIZE_POLICIES = "zeus, gts, default, grid, ucb, oracle or module:callable"
ETA = "Weight of energy in costs, 0 (only time counts) to 1 (only energy counts)."
eta_option = click.option("--eta", type=float, default=0.5, help=ETA)
knob_options = with_options(
    eta_option,
    click.option("--beta", default=2.0, help="A run stops before it costs this many times the cheapest; inf: never."),
)
recurrences_option = click.option("--recurrences", type=SIZE, default=100, help="Times that each job recurs.")
policy_options = with_options(
    click.option(
        "--policy", default="zeus", shell_complete=policy_names, help=f"Chooses batch sizes: {BATCH_SIZE_POLICIES}."
    ),
    click.option(
        "--power-policy", default="jit", shell_complete=policy_names, help="Power limits: jit, max-power, oracle, ..."
    ),
)


def seed_options(seeds: int) -> Decorator:
    """Make the options for seeds and processes, with `seeds` seeds by default."""
    return with_options(
        click.option("--seed", type=click.IntRange(min=0), default=123456, help="First seed, of draws and policies."),
        click.option("--seeds", type=SIZE, default=seeds, help="How many seeds, from --seed on."),
        click.option(
            "--workers", type=PROCESSES, help="Processes; results don't depend on it.  [default: as many as save time]"
        ),
    )


output_options = with_options(
    click.option("-o", "--output", type=FILE, help="Write all runs to this file, .json or .parquet."),
    force_option,
    json_option,
)
figures_option = click.option("--figures", type=FILE, metavar="DIR", help="Draw figures (.svg) into this directory.")


def job_choice(options: dict[str, Any]) -> JobChoice:
    """Remove the values of `job_options` from a command's options, and return them as a choice of jobs."""
    from bftrainer.zeus.simulation.inputs import JobChoice

    values = {"target_metric": "target", "max_epochs": "max_epochs", "default_bs": "default_bs"}
    changes = {name: options.pop(option, None) for name, option in values.items()}
    chosen = {name: value for name, value in changes.items() if value is not None}
    return JobChoice(options.pop("jobs_file"), options.pop("job_names"), chosen)


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
