"""Options that the commands for recurring jobs share; importing them loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bftrainer.cli._shared.usage import LARGE_PROCESSES, size_option

if TYPE_CHECKING:
    from bftrainer.zeus.simulation.inputs import JobChoice


class _File(click.Path):
    """A path; an empty text, as a variable of a shell that is not set gives, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if value == "":
            self.fail("Expected a path, got nothing.", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path)

# Settings of every command here.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True}

SECTIONS = {
    "Common options": (
        *("jobs_file", "job_names", "groups_file", "names", "recurrences", "policy", "policies", "power_policy"),
        *("seeds", "eta", "output", "figures", "as_json"),
    )
}

F = TypeVar("F", bound=Callable[..., Any])

_Option = Callable[[F], F]


def with_options(*options: _Option[Any]) -> _Option[Any]:
    """Make a decorator that adds all these options to a command, in this order."""

    def give(command: F) -> F:
        """Add the options to a command."""
        for option in reversed(options):
            command = option(command)
        return command

    return give


def given_token(path: str | None) -> str | None:
    """Read the token for a server: the first one in a file."""
    if path is None:
        return None
    from bftrainer.zeus.server.access import first_token

    return first_token(path)


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
        "--job",
        "job_names",
        metavar="DATASET,NETWORK,OPTIMIZER",
        multiple=True,
        help="A job of the traces; repeatable.",
    ),
    click.option("--target", type=float, help="Metric that runs aim at; for all jobs, as the next two."),
    size_option("--max-epochs", help="Epochs after which a run gives up.  [default: 100]"),
    click.option("--default-bs", type=int, help="Batch size that is used when nothing is known."),
)
ETA = "Weight of energy in costs, 0 (only time counts) to 1 (only energy counts)."
eta_option = click.option("--eta", type=float, default=0.5, help=ETA)
knob_options = with_options(
    eta_option,
    click.option(
        "--beta",
        type=float,
        default=2.0,
        help="A run stops before it costs this many times the cheapest recurrence; inf: never.",
    ),
)

policy_options = with_options(
    click.option(
        "--policy",
        metavar="NAME",
        default="zeus",
        shell_complete=policy_names,
        help="Chooses batch sizes: zeus, gts, default, grid, ucb, oracle or module:callable.",
    ),
    click.option(
        "--power-policy",
        metavar="NAME",
        default="jit",
        shell_complete=policy_names,
        help="Chooses power limits: jit, max-power, oracle or module:callable.",
    ),
)
server_costs_option = click.option(
    "--server-costs",
    is_flag=True,
    help="Count costs as the batch-size server does: bounds follow the cheapest single run, arms start from "
    "explorations alone.",
)


def seed_options(seeds: int) -> _Option[Any]:
    """Make the options for seeds and processes, with `seeds` seeds by default."""
    return with_options(
        click.option(
            "--seed", type=click.IntRange(min=0), default=123456, help="Seed of what is drawn and of the policies."
        ),
        size_option("--seeds", kind=click.IntRange(min=1), default=seeds, help="How many seeds, from --seed on."),
        size_option(
            "--workers",
            usual=LARGE_PROCESSES,
            kind=click.IntRange(min=1),
            help="Processes that share the work; results don't depend on it.  [default: as many as save time]",
        ),
    )


output_options = with_options(
    click.option("-o", "--output", type=FILE, help="Write all runs to this file, .json or .parquet."),
    click.option("--force", is_flag=True, help="Replace existing files."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
)
figure_options = with_options(
    click.option("--figures", type=FILE, metavar="DIR", help="Draw figures into this directory (extra: report)."),
    click.option(
        "--figure-format", type=click.Choice(["svg", "png", "pdf"]), default="svg", help="Format of the figures."
    ),
)


def job_choice(options: dict[str, Any]) -> JobChoice:
    """Remove the values of `job_options` from a command's options, and return them as a choice of jobs."""
    from bftrainer.zeus.simulation.inputs import JobChoice

    values = {"target_metric": "target", "max_epochs": "max_epochs", "default_bs": "default_bs"}
    changes = {name: options.pop(option) for name, option in values.items()}
    chosen = {name: value for name, value in changes.items() if value is not None}
    return JobChoice(options.pop("jobs_file"), options.pop("job_names"), chosen)


def knobs(options: dict[str, Any]) -> dict[str, Any]:
    """Return a simulation's knobs and seed from the options, by their names in `Simulation`."""
    return {"eta_knob": options["eta"], "beta_knob": options["beta"], "seed": options["seed"]}
