"""Configuration of a run: the one place where each option of a replay is declared."""

# ruff: noqa: RUF009 - `_option` gives what `field` gives

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from bftrainer.errors import SettingsError

if TYPE_CHECKING:  # reading the declarations, as help does, must not import more
    from bftrainer.model import NodeLog, Objective, TaskSpec
    from bftrainer.replay.allocator_settings import Settings
    from solvers import Solver

SECTIONS = {
    "inputs": "What is read, and which part of it is used?",
    "horizon": "How far do decisions look, how long may they take, and for how many tasks?",
    "solver": "Which solver decides?",
    "objective": "What is maximised?",
    "start": "When are decisions made, and how do runs start?",
    "limits": "How accurate are decisions?",
    "power": "How much power is drawn?",
    "figures": "What else is reported?",
}
"""Sections of options in the order of help and documentation, and the question that each answers."""


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option of a replay.

    Parameters
    ----------
    section : str
        One of `SECTIONS`.
    flags : tuple of str
        On the command line; those with one dash are also keys of sweep files. If the default is True, they make it
        False.
    kind : type
        ``int``, ``float``, ``bool``, ``str``, `Path`, `datetime` (or seconds), or a ``Literal`` of all it may be.
    default : object
    text : str
    unset : str
        Description of the default, if it is None.
    metavar : str, optional
    least : int, optional
        Smallest allowed value.
    sized : {"", "tasks", "processes"}
        What the number counts, if unusually large ones need `--large`.
    units : mapping of str to float
        Units of a number that may have one on the command line, or be a file with its values over time.
    expected : str
        Description of such a number in messages.
    limit : str
        Name in `solvers.registry.heeded` of a limit that a solver may ignore.
    changes_result : bool
        False if it only says how the result is obtained; summaries and keys of sweeps leave it out then.
    """

    section: str
    flags: tuple[str, ...]
    kind: Any
    default: Any
    text: str
    unset: str = ""
    metavar: str | None = None
    least: int | None = None
    sized: Literal["", "tasks", "processes"] = ""
    units: Mapping[str, float] = field(default_factory=dict)
    expected: str = ""
    limit: str = ""
    changes_result: bool = True

    @property
    def flag(self) -> str:
        """The flag that messages name."""
        return max(self.flags, key=len)

    @property
    def is_setting(self) -> bool:
        """Whether summaries keep it among the settings; inputs and times are kept in other forms."""
        return self.changes_result and self.kind not in (Path, datetime)

    @property
    def is_file(self) -> bool:
        """Whether it names, or may name, a file."""
        return self.kind is Path or bool(self.units)

    @property
    def type(self) -> Any:
        """Type of its values in files, except None."""
        if self.kind is datetime:
            return datetime | float
        return (float | str if self.units else str) if self.is_file else self.kind


DecideOn = Literal["all", "nodes"]
Initial = Literal["solve", "empty", "random"]
StartupCost = Literal["none", "full"]
PowerOptions = Literal["chosen", "pareto", "all"]


def _option(default: Any, kind: Any, place: str, text: str, **more: Any) -> Any:
    """Declare a field that is an option; `place` holds its section and its flags."""
    section, flags = place.split(": ")
    return field(
        default=default, metadata={"option": Option(section, tuple(flags.split()), kind, default, text, **more)}
    )


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Inputs and settings of one replay; defaults are the published ones, if any.

    The parameters are the options of `bftrainer replay`, as docs/options.md lists them. A path may be a str, a node log
    a `NodeLog`, tasks a sequence of `TaskSpec`, an objective a callable ``credit(task, counts, now_s)``, and a solver a
    `solvers.Solver`.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    node_log: Path | NodeLog | None = _option(
        None,
        Path,
        "inputs: -ndmap --node-log",
        "Idle nodes over time (Parquet, CSV, legacy pickle or its .tar.gz).",
        unset="embedded sample",
    )
    tasks: Path | Sequence[TaskSpec] | None = _option(
        None, Path, "inputs: -bdfn --tasks", "Task set (TOML, CSV or legacy bounds).", unset="embedded sample"
    )
    scalability: Path | None = _option(
        None,
        Path,
        "inputs: -scfn --scalability",
        "Legacy scalability of the tasks.",
        unset="the sibling with JNPs for Jbnd",
    )
    scaling: str | None = _option(
        None,
        str,
        "inputs: --scaling",
        "Scaling of legacy tasks that come without.",
        unset="linear, 1 work/s and node",
        metavar="linear|amdahl:F",
    )
    first_node: int = _option(0, int, "inputs: -nis --first-node", "Index of the first node used.", least=0)
    node_count: int | None = _option(
        None, int, "inputs: -nN --node-count", "Number of nodes used.", unset="all", least=1
    )
    skip_events: int = _option(0, int, "inputs: --skip-events", "Drop this many rows of the log first.", least=0)
    since: datetime | float | None = _option(
        None, datetime, "inputs: --since", "Begin there: ISO time, or seconds since the log's start."
    )
    until: datetime | float | None = _option(
        None, datetime, "inputs: --until", "Stop there: ISO time, or seconds since the window's start."
    )
    cache: bool = _option(
        True, bool, "inputs: --no-cache", "Parse the node log anew, and keep it nowhere.", changes_result=False
    )
    max_events: int | None = _option(None, int, "inputs: --max-events", "Stop after this many events.", least=1)
    decide_on: DecideOn = _option(
        "all", DecideOn, "start: --decide-on", "Events: also submissions and completions, or rows of the log only."
    )
    initial: Initial = _option("solve", Initial, "start: --initial", "First allocation.")
    startup_cost: StartupCost = _option("none", StartupCost, "start: --startup-cost", "Cost of a start from nothing.")
    objective: str | Objective = _option(
        "as-given",
        str,
        "objective: --objective",
        "Registered name or module:callable, perhaps after priority:, fair-share: or quota:LIMITS:",
        metavar="NAME",
    )
    solver: str | Solver = _option("cbc", str, "solver: --solver", "See `bftrainer solvers`.", metavar="NAME")
    fallback: str | Solver | None = _option(
        None, str, "solver: --fallback", "Solver to ask when that one fails.", metavar="NAME"
    )
    forward_time_s: float = _option(10.0, float, "horizon: -Tfwd --forward-time", "Forward-looking time in seconds.")
    time_limit_s: float = _option(
        10.0, float, "horizon: -optTL --time-limit", "Seconds that one decision may take.", limit="time"
    )
    effort: int | None = _option(
        None,
        int,
        "limits: --effort",
        "Nodes of each branch-and-bound tree, and thousands of labels of dp: the same on any machine, however busy.",
        unset="no limit",
        metavar="N",
        least=1,
        limit="effort",
    )
    mip_gap: float = _option(
        1e-09, float, "limits: --mip-gap", "Relative gap at which a decision is good enough.", limit="gap"
    )
    threads: int = _option(1, int, "limits: --threads", "Threads of a solver.", sized="processes", limit="threads")
    max_tasks: int = _option(10, int, "horizon: -maxJ --max-tasks", "Tasks active at once.", sized="tasks")
    seed: int = _option(0, int, "limits: --seed", "For --initial random and for tuned tasks.", least=0)
    prune: bool = _option(
        True, bool, "limits: --no-prune", "Give solvers all options, also those that no optimum uses.", limit="prune"
    )
    strict_published: bool = _option(
        False, bool, "solver: --strict-published", "Let equal-share give 0 where the share is just the minimum."
    )
    baseline: bool = _option(True, bool, "figures: --no-baseline", "Skip the efficiency against constant pools.")
    large_idle: int | None = _option(
        None,
        int,
        "figures: --large-idle",
        "Shares are also given for intervals with fewer idle nodes.",
        unset="a quarter",
        metavar="N",
        least=1,
    )
    idle_power_w: float = _option(0.0, float, "power: --idle-power", "Watts of a node that does not train.")
    pue: float = _option(1.0, float, "power: --pue", "Watts at the meter for each watt of the nodes.")
    power_options: PowerOptions = _option(
        "chosen", PowerOptions, "power: --power-options", "Power limits of tuned tasks that decisions choose from."
    )
    power_cap: float | Path | None = _option(
        None,
        float,
        "power: --power-cap",
        "What harvested nodes may draw at the meter: 250kW, or a CSV of time,power_w. All tasks must be tuned.",
        units={"": 1.0, "W": 1.0, "kW": 1000.0, "MW": 1000000.0},
        expected="watts (250000, 250kW, 0.25MW)",
    )
    carbon: float | Path | None = _option(
        None,
        float,
        "power: --carbon",
        "gCO2/kWh: a number, or a CSV of time,gco2_per_kwh.",
        units={"": 1.0},
        expected="grams of CO2 per kWh",
    )

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if option.is_file and isinstance(value, str):
                object.__setattr__(self, name, Path(value))
            if option.kind in (int, float, bool) and not (value is None is option.default or option.is_file):
                object.__setattr__(self, name, value := _checked(name, option.kind, value))
            if option.least is not None and value is not None and value < option.least:
                raise SettingsError(f"Expected {name} >= {option.least}, got {value}.")
            if option.units and isinstance(value, int | float) and not 0 <= value < math.inf:
                raise SettingsError(f"Expected {name} of 0 or more, got {value}.")
            if get_origin(option.kind) is Literal and value not in get_args(option.kind):
                *others, last = get_args(option.kind)
                raise SettingsError(f"Expected {name} to be {', '.join(others)} or {last}, got {value!r}.")
        if not callable(self.objective) and not isinstance(self.objective, str):
            raise SettingsError(f"Expected the name of an objective or a callable, got {self.objective!r}.")
        _check_solver("solver", self.solver)
        if self.fallback is not None:
            _check_solver("fallback", self.fallback)
        if self.strict_published and self.solver != "equal-share":
            raise SettingsError(f"Expected strict_published with the solver equal-share, got {self.solver!r}.")

    def without_effect(self, *, tuned: bool | None = None) -> dict[str, str]:
        """Options that have no effect in this configuration, and why.

        Parameters
        ----------
        tuned : bool, optional
            Whether there are tuned tasks; unknown before tasks are read.
        """
        found = {}
        if self.fallback is not None and self.fallback == self.solver:
            found["fallback"] = "it is the solver that would have failed"
        found |= self._without_effect()
        if tuned is False:
            if self.initial != "random":
                found["seed"] = "nothing is drawn without --initial random or tuned tasks"
            found["power_options"] = "no task is tuned"
            if not self.idle_power_w:
                unknown = "no power is known without tuned tasks or --idle-power"
                found |= dict.fromkeys(("carbon", "pue"), unknown)
        return found

    def _without_effect(self) -> dict[str, str]:
        """Options that the solver and the fallback both ignore, as far as they declare that."""
        from solvers.registry import heeded

        asked = [each for each in (self.solver, self.fallback) if each is not None]
        names = [each for each in asked if isinstance(each, str)]
        if len(names) < len(asked):
            return {}
        heeds = frozenset[str]().union(*map(heeded, names))
        why = f"not heeded by {' and '.join(names)}"
        return {name: why for name, option in OPTIONS.items() if option.limit and option.limit not in heeds}

    def settings(self, objective: Objective, solver: str | Solver) -> Settings:
        """Settings of the allocator, with this objective and solver.

        Raises
        ------
        SettingsError
            If a number is out of range or a choice unknown.
        """
        from bftrainer.replay.allocator_settings import Settings
        from solvers import Limits

        same = {each.name: getattr(self, each.name) for each in fields(Settings) if each.name in OPTIONS}
        return Settings(
            **same | {"objective": objective, "solver": solver},
            limits=Limits(self.time_limit_s, self.mip_gap, self.threads, self.prune, self.effort or math.inf),
            completions="reported" if self.decide_on == "all" else "noticed",
            idle_node_w=self.idle_power_w,
        )

    def start_ns(self, log: NodeLog) -> int:
        """Start of the replay of a log, in nanoseconds since the Unix epoch.

        Raises
        ------
        SettingsError
            If that is before the log's start, or a date beyond what logs can hold.
        """
        if self.since is None:
            return log.start_ns
        return _instant_ns(log.start_ns, self.since, "since")

    def until_s(self, start_ns: int) -> float:
        """Latest end of the replay, in seconds since the window's start.

        Raises
        ------
        SettingsError
            If that is not after the window's start, or a date beyond what logs can hold.
        """
        if self.until is None:
            return math.inf
        if isinstance(self.until, datetime):
            from bftrainer.model import NS_PER_S

            # Computed exactly like the times of the log's rows, so that rounding does not miss a row at this time.
            seconds = (_instant_ns(start_ns, self.until, "until") - start_ns) / NS_PER_S
        else:
            seconds = float(self.until)
        if not seconds > 0:
            raise SettingsError(f"Expected --until after the window's start, got {self.until}.")
        return seconds


OPTIONS: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(ReplayConfig)}
"""All options by their field names, which are keys of sweep files and of the summary."""


def _checked(name: str, kind: type, value: Any) -> Any:
    """A number or a truth value, of Python or NumPy, as one of Python."""
    from bftrainer.model.type_checks import real_number, whole_number

    if kind is int:
        return whole_number(name, value, SettingsError)
    if kind is float:
        return value if type(value) is int else real_number(name, value, SettingsError)
    if type(value).__name__ not in ("bool", "bool_"):
        raise SettingsError(f"Expected {name} to be true or false, got {value!r}.")
    return bool(value)


def _check_solver(option: str, solver: object) -> None:
    """Refuse a value that is neither a name nor a solver."""
    if isinstance(solver, str):
        return
    if isinstance(solver, type):
        raise SettingsError(
            f"Expected {option} to be a name or a solver, got the class {solver.__name__}: make one of it."
        )
    if not callable(getattr(solver, "solve", None)) or not isinstance(getattr(solver, "name", None), str):
        raise SettingsError(f"Expected {option} to be a name or an object with name and solve, got {solver!r}.")


def _instant_ns(start_ns: int, moment: datetime | float, option: str) -> int:
    """Nanoseconds since the Unix epoch of a time; a number is in seconds after the start."""
    from bftrainer.model import NS_PER_S, instant_ns

    if not isinstance(moment, datetime) and not math.isfinite(moment):
        raise SettingsError(f"Expected --{option} to be a time, got {moment}.")
    try:
        return instant_ns(moment) if isinstance(moment, datetime) else start_ns + round(float(moment) * NS_PER_S)
    except OverflowError as error:
        raise SettingsError(f"--{option}: {error}") from None
