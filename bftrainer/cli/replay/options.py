"""The options of a replay: published names first, GNU ones beside them; defaults as published."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.usage import LARGE_PROCESSES, large_option, refuse_unused, size_option

__all__ = ["config_of", "moment", "replay_options", "setting_options"]

FILE = click.Path(path_type=Path)

if TYPE_CHECKING:
    from bftrainer.runs import ReplayConfig

    _MomentType = click.ParamType[datetime | float]
    _QuantityType = click.ParamType[float | Path]
else:
    _MomentType = _QuantityType = click.ParamType  # generic since click 8.2 only


class _Moment(_MomentType):
    """An ISO time (naive: UTC), or seconds since the window's start."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | float:
        """Seconds if it is a number, else the time that the text names."""
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"Expected an ISO time or seconds, got {value!r}.", param, ctx)


_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)", re.ASCII)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class _Length(_Moment):
    """An ISO time, or a length of time: seconds, or with a unit."""

    def __init__(self, *, dates_only: bool) -> None:
        self._dates_only = dates_only

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | float:
        """Seconds if it is a length, else the time that the text names."""
        if self._dates_only:
            try:
                return datetime.fromisoformat(value)
            except ValueError:
                self.fail(f"Expected an ISO time, got {value!r}.", param, ctx)
        length = _LENGTH.fullmatch(value) if isinstance(value, str) else None
        if length is not None:
            return float(length[1]) * _SECONDS[length[2]]
        return super().convert(value, param, ctx)


def moment(*, dates_only: bool = False) -> _MomentType:
    """The type of options that are a time, or how long after another one that is."""
    return _Length(dates_only=dates_only)


def _solver_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from solvers.registry import names

    return [name for name in names() if name.startswith(incomplete)]


def _objective_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from bftrainer.objectives import objective_names

    return [name for name in objective_names() if name.startswith(incomplete)]


class _Quantity(_QuantityType):
    """A number with or without one of its units, or a file of it over time."""

    def __init__(self, units: dict[str, float], expected: str) -> None:
        self.units, self.expected = units, expected
        self.name = "VALUE|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | Path:
        """The number in the base unit, or the file that the text names."""
        parts = re.fullmatch(r"\s*([0-9.][0-9.eE+-]*)\s*([a-zA-Z]*)\s*", str(value))
        if parts and parts[2] in self.units:
            try:
                return float(parts[1]) * self.units[parts[2]]
            except ValueError:
                pass  # such as 1.2.3, which may still be a file's name
        if Path(value).is_file():
            return Path(value)
        self.fail(f"Expected {self.expected}, or a CSV file, got {value!r}.", param, ctx)


_POWER = _Quantity({"": 1.0, "W": 1.0, "kW": 1e3, "MW": 1e6}, "watts (250000, 250kW, 0.25MW)")
_INTENSITY = _Quantity({"": 1.0}, "grams of CO2 per kWh")

# Published names first, GNU ones beside them; defaults as published.
_INPUT_OPTIONS = (
    click.option(
        "-ndmap",
        "--node-log",
        "node_log",
        type=FILE,
        help="Idle nodes over time (Parquet, CSV, legacy pickle or its .tar.gz).  [default: embedded sample]",
    ),
    click.option(
        "-bdfn",
        "--tasks",
        "tasks",
        type=FILE,
        help="Task set (TOML, CSV or legacy bounds).  [default: embedded sample]",
    ),
    click.option(
        "--sample",
        type=click.Choice(["plain", "tuned"]),
        default="plain",
        show_default=True,
        help="Which embedded task set is used without -bdfn: that of tuned tasks learns batch sizes and power limits.",
    ),
    click.option(
        "-scfn",
        "--scalability",
        "scalability",
        type=FILE,
        help="Legacy scalability of the tasks.  [default: the sibling with JNPs for Jbnd]",
    ),
    click.option(
        "--scaling",
        metavar="linear|amdahl:F",
        help="Scaling of legacy tasks that come without.  [default: linear, 1 work/s and node]",
    ),
    click.option(
        "-nis",
        "--first-node",
        "first_node",
        type=int,
        default=0,
        show_default=True,
        help="Index of the first node used.",
    ),
    click.option("-nN", "--node-count", "node_count", type=int, help="How many nodes are used.  [default: all]"),
    click.option("--skip-events", type=int, default=0, show_default=True, help="Drop that many rows of the log first."),
    click.option("--since", type=_Moment(), help="Begin there: ISO time, or seconds since the log's start."),
    click.option("--until", type=_Moment(), help="Stop there: ISO time, or seconds since the window's start."),
    click.option("--max-events", type=int, help="Stop after that many events."),
)
_DECISION_OPTIONS = (
    click.option(
        "-Tfwd",
        "--forward-time",
        "forward_time_s",
        type=float,
        default=10.0,
        show_default=True,
        help="Forward-looking time in seconds.",
    ),
    click.option(
        "-optTL",
        "--time-limit",
        "time_limit_s",
        type=float,
        default=10.0,
        show_default=True,
        help="Seconds that one decision may take.",
    ),
    size_option("-maxJ", "--max-tasks", "max_tasks", default=10, show_default=True, help="Tasks active at once."),
    click.option("-mip", "mip", type=bool, default=None, help="false: --solver equal-share, as published."),
    click.option(
        "--solver", metavar="NAME", shell_complete=_solver_names, help="See `bftrainer solvers`.  [default: cbc]"
    ),
    click.option("--fallback", metavar="NAME", shell_complete=_solver_names, help="Solver to ask when that one fails."),
    click.option(
        "--strict-published", is_flag=True, help="Let equal-share give 0 where the share is just the minimum."
    ),
    click.option(
        "--objective",
        metavar="NAME",
        default="as-given",
        show_default=True,
        shell_complete=_objective_names,
        help="Registered name or module:callable, perhaps after priority:, fair-share: or quota:LIMITS:",
    ),
    click.option(
        "--decide-on",
        type=click.Choice(["all", "nodes"]),
        default="all",
        show_default=True,
        help="Events: also submissions and completions, or rows of the log only.",
    ),
    click.option(
        "--initial",
        type=click.Choice(["solve", "empty", "random"]),
        default="solve",
        show_default=True,
        help="First allocation.",
    ),
    click.option(
        "--startup-cost",
        type=click.Choice(["none", "full"]),
        default="none",
        show_default=True,
        help="Cost of a start from nothing.",
    ),
    click.option(
        "--mip-gap",
        type=float,
        default=1e-9,
        show_default=True,
        help="Relative gap at which a decision is good enough.",
    ),
    click.option("--no-prune", is_flag=True, help="Give solvers all options, also those that no optimum uses."),
    size_option("--threads", usual=LARGE_PROCESSES, default=1, show_default=True, help="Threads of a solver."),
    click.option("--seed", type=int, default=0, show_default=True, help="For --initial random and for tuned tasks."),
)
_POWER_OPTIONS = (
    click.option(
        "--power-cap",
        type=_POWER,
        help="What harvested nodes may draw at the meter: 250kW, or a CSV of time,power_w. All tasks must be tuned.",
    ),
    click.option(
        "--idle-power",
        "idle_power_w",
        type=float,
        default=0.0,
        show_default=True,
        help="Watts of a node that does not train.",
    ),
    click.option(
        "--pue", type=float, default=1.0, show_default=True, help="Watts at the meter for each watt of the nodes."
    ),
    click.option("--carbon", type=_INTENSITY, help="gCO2/kWh: a number, or a CSV of time,gco2_per_kwh."),
    click.option(
        "--power-options",
        type=click.Choice(["chosen", "pareto", "all"]),
        default="chosen",
        show_default=True,
        help="Power limits of tuned tasks that decisions choose from.",
    ),
)
_OUTPUT_OPTIONS = (
    click.option(
        "-name", "--name", "name", default="debug", show_default=True, help="Names the result directory NAME-itrOut."
    ),
    click.option(
        "--output-dir", type=FILE, help="The result directory.  [default: NAME-itrOut; sample runs: the next free one]"
    ),
    click.option("--report", type=FILE, help="Also make one page of the run: a file that any browser shows."),
    click.option("--force", is_flag=True, help="Replace an existing result directory, and an existing page."),
    click.option(
        "-print",
        "--print",
        "print_",
        type=bool,
        default=True,
        show_default="true",
        help="false: print to iter-prints.log in the result directory.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of a table."),
    click.option("--no-baseline", is_flag=True, help="Skip the efficiency against constant pools."),
    click.option(
        "--large-idle",
        type=int,
        metavar="N",
        help="Shares are also given for intervals with fewer idle nodes.  [default: a quarter]",
    ),
    click.option("--dry-run", is_flag=True, help="Validate the inputs, print what is in them, and stop."),
)


def replay_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` all options of a replay."""
    for option in reversed((*_INPUT_OPTIONS, *_DECISION_OPTIONS, *_POWER_OPTIONS, *_OUTPUT_OPTIONS)):
        command = option(command)
    return large_option(command)


def setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of a replay that say what is replayed and how, not where results go."""
    for option in reversed((*_INPUT_OPTIONS, *_DECISION_OPTIONS, *_POWER_OPTIONS)):
        command = option(command)
    return large_option(command)


def _unheeded(solver: str, fallback: str | None) -> dict[str, str]:
    """Options that neither solver heeds, and why that is so."""
    from solvers.registry import heeded

    asked = [name for name in (solver, fallback) if name is not None]
    heeds = frozenset[str]().union(*map(heeded, asked))
    options = {"time_limit_s": "time", "mip_gap": "gap", "threads": "threads", "no_prune": "prune"}
    return {option: f"not heeded by {' and '.join(asked)}" for option, limit in options.items() if limit not in heeds}


def config_of(ctx: click.Context, options: dict[str, Any]) -> ReplayConfig:
    """The configuration that options of `replay_options` or `setting_options` ask for."""
    from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
    from bftrainer.runs import ReplayConfig

    mip = options.pop("mip")
    solver = options.pop("solver")
    if mip is not None and solver is not None:
        raise click.UsageError("Expected either -mip or --solver, got both.", ctx)
    if solver is None:
        solver = "equal-share" if mip is False or options["strict_published"] else "cbc"
    if options["strict_published"] and solver != "equal-share":
        raise click.UsageError(f"Expected --strict-published with --solver equal-share, got {solver}.", ctx)
    options["prune"] = not options.pop("no_prune")
    options["baseline"] = not options.pop("no_baseline", False)
    refuse_unused(
        {
            "sample": options["tasks"] is not None and "-bdfn names the tasks",
            "fallback": options["fallback"] == solver and "it is the solver that would have failed",
            **_unheeded(solver, options["fallback"]),
        }
    )
    if options.pop("sample") == "tuned":
        options["tasks"] = sample_path(SAMPLE_TUNED_TASKS)
    return ReplayConfig(solver=solver, **options)
