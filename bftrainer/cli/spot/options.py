"""Options that the commands of `bftrainer spot` share: the run, what it costs, and where results go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import refuse_inputs, refuse_unused, size_option
from bftrainer.cli.zeus.zeus_options import FILE, with_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bftrainer.spot.checkpointing import CheckpointedTraining
    from bftrainer.spot.run import Prices

__all__ = ["FILE", "Places", "minute_options", "prices_of", "settings_of", "spot_options"]

_TRAINING = (
    click.option(
        "--profile",
        type=FILE,
        help="Measured times of the run: TOML, or a directory with raw CSVs.  [default: an embedded sample]",
    ),
    click.option("--depth", type=int, default=16, show_default=True, help="Nodes of a pipeline."),
    click.option("--max-world-size", type=int, default=64, show_default=True, help="Active nodes at most."),
    click.option(
        "--preparation",
        "preparation_s",
        type=float,
        default=180.0,
        show_default=True,
        help="Seconds from a node's coming to its standing by.",
    ),
    click.option("--load-on-reconfigure", is_flag=True, help="Let reconfigurations load a checkpoint."),
    click.option(
        "--on-loss-during-reconfigure",
        type=click.Choice(["restart", "extend"]),
        default="restart",
        show_default=True,
        help="What a further loss does: start it again, or add a whole one to what is left.",
    ),
    click.option("--tick", "tick_s", type=float, help="Notice everything at multiples of so many seconds only."),
    click.option("--cold-start", is_flag=True, help="Let the first nodes prepare and form pipelines, too."),
    click.option("--samples-per-iteration", type=float, help="For samples per second.  [default: the profile's]"),
)
_COST = (
    click.option("--price", type=float, help="Of a node-hour, in any currency."),
    click.option("--on-demand-price", type=float, help="Of a node-hour that is never taken: compare with such nodes."),
    click.option("--on-demand-nodes", type=int, help="So many of them.  [default: the largest world size]"),
)
_OUTPUT = (
    click.option("-o", "--output-dir", type=FILE, help="Write the results to this directory."),
    click.option("--figure", type=FILE, help="Draw the results: .png, .svg or .pdf."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of a table."),
    click.option("--force", is_flag=True, help="Replace existing results."),
)


spot_options = with_options(*_TRAINING, *_COST, *_OUTPUT)


def settings_of(options: dict[str, Any]) -> tuple[CheckpointedTraining, dict[str, str] | None]:
    """Settings that the options ask for, and where the profile came from; takes them out of `options`."""
    from bftrainer.spot.checkpointing import CheckpointedTraining
    from bftrainer.spot.run import load_profile

    profile, source = load_profile(options.pop("profile"))
    samples = options.pop("samples_per_iteration")
    if samples is not None:
        profile = replace(profile, samples_per_iteration=samples)
    refuse_unused({"load_on_reconfigure": not profile.load_s and "the profile has no time to load a checkpoint"})
    names = [each.name for each in fields(CheckpointedTraining) if each.name != "profile"]
    return CheckpointedTraining(profile, **{name: options.pop(name) for name in names}), source


def prices_of(options: dict[str, Any]) -> Prices | None:
    """Prices that the options tell, if any; takes them out of `options`."""
    from bftrainer.spot.run import Prices

    price, on_demand, nodes = (options.pop(name) for name in ("price", "on_demand_price", "on_demand_nodes"))
    refuse_unused(
        dict.fromkeys(("on_demand_price", "on_demand_nodes"), price is None and "without --price nothing is compared")
    )
    return None if price is None else Prices(price, on_demand, nodes)


class Places:
    """Where results go; takes them out of `options`, and refuses places that cannot be used.

    Parameters
    ----------
    options : dict
        Of a command with `spot_options`.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        from bftrainer.cli._shared.usage import refuse_figure
        from bftrainer.files.writing import check_free

        self._directory: Path | None = options.pop("output_dir")
        self._figure: Path | None = options.pop("figure")
        self._force: bool = options.pop("force")
        refuse_unused({"force": self._directory is self._figure is None and "nothing is written"})
        if self._directory is not None:
            check_free(self._directory, force=self._force)
        refuse_inputs(self._figure)
        refuse_figure(self._figure, force=self._force)

    def put(self, write: Callable[[Path], None], draw: Callable[[], Figure]) -> None:
        """Have the files written and the figure drawn where that was asked for, and say where they are.

        Parameters
        ----------
        write : callable
            Writes the files of the results to the directory that it is given.
        draw : callable
            Gives the figure.
        """
        from bftrainer.cli._shared.usage import write_figure
        from bftrainer.files.writing import result_directory

        if self._directory is not None:
            with result_directory([self._directory], force=self._force) as directory:
                write(directory.working)
            tell(f"Results: {self._directory}")
        if self._figure is not None:
            write_figure(self._figure, draw())
            tell(f"Figure: {self._figure}")


def minute_options(before: str = "") -> tuple[Callable[[Any], Any], ...]:
    """Options with the names of `MinuteOptions`, but for the levels.

    Parameters
    ----------
    before : str
        What each line of help begins with.
    """
    like = "or that of the trace it is like]"
    figures = (
        ("preemption-chance", f"Chance that a minute sees a preemption.  [default: 0.16338, {like}"),
        ("preemption-mean", f"Mean number of nodes of a preemption.  [default: 2.4138, {like}"),
        ("preemption-std", f"Its standard deviation.  [default: 2.0862, {like}"),
        ("addition-chance", f"Chance that a minute sees an addition.  [default: 0.14366, {like}"),
        ("addition-mean", f"Mean number of nodes of a regular addition.  [default: 2.5417, {like}"),
        ("addition-std", f"Its standard deviation.  [default: 1.9456, {like}"),
        ("big-addition-share", f"Share of additions of 11 to 31 nodes.  [default: 0.0588, {like}"),
    )
    return (
        *(click.option(f"--{name}", type=float, help=before + text) for name, text in figures),
        size_option("--initial-nodes", help=f"{before}Nodes at the start.  [default: 32, or the trace's mean]"),
        size_option("--max-nodes", help=f"{before}Nodes at most.  [default: 64, or the trace's largest number]"),
        click.option("--exact-mean", is_flag=True, default=None, help=f"{before}Let sizes have the means asked for."),
    )
