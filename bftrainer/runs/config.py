"""Configuration of a run: the one place where each option of a replay is declared, and what values it takes."""

# ruff: noqa: RUF009 - `option` gives what `field` gives

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    "learning": "What do decisions not know of scaling?",
    "departures": "Which nodes leave, and how long is that known before?",
    "start": "When are decisions made, and how do runs start?",
    "limits": "How accurate are decisions?",
    "power": "How much power is drawn?",
    "figures": "What else is reported?",
}
"""Sections of options in the order of help and documentation, and the question that each answers."""


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option of a replay."""

    section: str
    flags: tuple[str, ...]  # those with one dash are also keys of sweep files; of a default True they make False
    default: Any
    text: str
    kind: Any = None  # the first type of its field, or a `Literal` of all values; a `datetime` may be seconds
    unset: str = ""  # what None stands for
    metavar: str | None = None
    least: int | None = None
    units: Mapping[str, float] = field(default_factory=dict)  # of a number, which may also be a file of them over time
    expected: str = ""  # its values, if their type does not say it
    changes_result: bool = True  # else summaries leave it out
    default_told: bool = True  # else summaries leave it out where it has its default

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


def option(default: Any, place: str, text: str, **more: Any) -> Any:
    """Declare a field that is an option; `place` holds its section and flags."""
    section, flags = place.split(": ")
    return field(default=default, metadata={"option": Option(section, tuple(flags.split()), default, text, **more)})


DecideOn = Literal["all", "nodes"]
Initial = Literal["solve", "empty", "random"]
StartupCost = Literal["none", "full"]
Compat = Literal["none", "published"]
Isolate = Literal["auto", "always", "never"]
GiveWay = Literal["named", "chosen"]
PowerOptions = Literal["chosen", "pareto", "all"]


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

    node_log: Path | NodeLog | None = option(
        None,
        "inputs: -ndmap --node-log",
        "Node log: Parquet, CSV, legacy pickle or its .tar.gz.",
        unset="embedded sample",
    )
    tasks: Path | Sequence[TaskSpec] | None = option(
        None, "inputs: -bdfn --tasks", "Task set (TOML or legacy bounds).", unset="embedded sample"
    )
    scalability: Path | None = option(
        None, "inputs: -scfn --scalability", "Legacy scalability of the tasks.", unset="the sibling with JNPs for Jbnd"
    )
    scaling: str | None = option(
        None,
        "inputs: --scaling",
        "Scaling of legacy tasks without scalability; learned: hide curves from decisions, which learn them.",
        unset="linear, 1 work/s and node",
        metavar="linear|amdahl:F|learned",
    )
    profile_noise: float = option(
        0.02, "learning: --profile-noise", "Relative noise of a throughput measured in a minute.", least=0
    )
    first_node: int = option(0, "inputs: -nis --first-node", "Index of the first node used.", least=0)
    node_count: int | None = option(None, "inputs: -nN --node-count", "Number of nodes used.", unset="all", least=1)
    skip_events: int = option(0, "inputs: --skip-events", "Drop this many rows of the log first.", least=0)
    since: datetime | float | None = option(
        None, "inputs: --since", "Begin there: ISO time, or seconds since the log's start."
    )
    until: datetime | float | None = option(
        None, "inputs: --until", "Stop there: ISO time, or seconds since the window's start."
    )
    offer_after_s: float = option(
        0.0, "inputs: --offer-after", "Offer a node only after so many idle seconds.", least=0
    )
    planned_departures: Path | None = option(
        None,
        "departures: --planned-departures",
        "CSV of node,time: when nodes leave for maintenance or reservations, known from the start on.",
    )
    give_way: GiveWay = option(
        "named",
        "departures: --give-way",
        "Nodes that leave: named by the log, or as many that decisions have chosen.",
        default_told=False,
    )
    notice_s: float = option(
        0.0,
        "departures: --notice",
        "Seconds before a node leaves from which on decisions know it.",
        least=0,
        default_told=False,
    )
    max_events: int | None = option(None, "inputs: --max-events", "Stop after this many events.", least=1)
    decide_on: DecideOn = option(
        None,
        "start: --decide-on",
        "all: rows of the log, submissions and completions; nodes: rows of the log only.",
        unset="all; nodes with --compat published",
    )
    compat: Compat = option(
        "none", "start: --compat", "published: the published replayer's rules in every detail.", default_told=False
    )
    initial: Initial = option("solve", "start: --initial", "First allocation.")
    startup_cost: StartupCost = option("none", "start: --startup-cost", "Cost of a start from nothing.")
    objective: str | Objective = option(
        "as-given",
        "objective: --objective",
        "Registered name or module:callable, perhaps after priority:, fair-share: or quota:LIMITS:",
    )
    solver: str | Solver = option("cbc", "solver: --solver", "See `bftrainer solvers`; or module:callable.")
    fallback: str | Solver | None = option(None, "solver: --fallback", "Solver to ask when that one fails.")
    forward_time_s: float = option(10.0, "horizon: -Tfwd --forward-time", "Forward-looking time in seconds.")
    time_limit_s: float = option(10.0, "horizon: -optTL --time-limit", "Seconds for one decision.")
    effort: int | None = option(
        None,
        "limits: --effort",
        "Branch-and-bound nodes, or thousands of labels of dp: a limit that is the same on any machine.",
        unset="no limit",
        least=1,
    )
    mip_gap: float = option(1e-09, "limits: --mip-gap", "Relative gap at which a decision is good enough.")
    threads: int = option(1, "limits: --threads", "Threads of a solver.", least=1)
    max_tasks: int = option(10, "horizon: -maxJ --max-tasks", "Tasks active at once.", least=1)
    seed: int = option(0, "limits: --seed", "For --initial random, tuned tasks and learned curves.", least=0)
    prune: bool = option(True, "limits: --no-prune", "Give solvers all options, also useless ones.")
    isolate: Isolate = option(
        "auto",
        "solver: --isolate",
        "Solvers in a process of their own: those of other packages, all that call a library, or none.",
        changes_result=False,
    )
    strict_published: bool = option(
        False, "solver: --strict-published", "Let equal-share give 0 where the share is just the minimum."
    )
    baseline: bool = option(True, "figures: --no-baseline", "Skip the efficiency against constant pools.")
    large_idle: int | None = option(
        None, "figures: --large-idle", "Also give shares of times with fewer idle nodes.", unset="a quarter", least=1
    )
    idle_power_w: float = option(0.0, "power: --idle-power", "Watts of a node that does not train.")
    pue: float = option(1.0, "power: --pue", "Watts at the meter for each watt of the nodes.")
    power_options: PowerOptions = option(
        "chosen", "power: --power-options", "Power limits of tuned tasks that decisions choose from."
    )
    policy: str = option(
        "zeus",
        "power: --policy",
        "Chooses batch sizes of tuned tasks: zeus, gts, default, grid, oracle or module:callable.",
        default_told=False,
    )
    power_policy: str = option(
        "jit",
        "power: --power-policy",
        "Chooses their power limits: jit, max-power, oracle or module:callable.",
        default_told=False,
    )
    power_cap: float | Path | None = option(
        None,
        "power: --power-cap",
        "What harvested nodes may draw at the meter: 250kW, or a CSV of time,power_w. All tasks must be tuned.",
        units={"": 1.0, "W": 1.0, "kW": 1000.0, "MW": 1000000.0},
        expected="watts (250000, 250kW, 0.25MW)",
        least=0,
    )
    carbon: float | Path | None = option(
        None,
        "power: --carbon",
        "gCO2/kWh: a number, or a CSV of time,gco2_per_kwh.",
        units={"": 1.0},
        expected="grams of CO2 per kWh",
        least=0,
    )

    def __post_init__(self) -> None:
        if self.decide_on is None:
            object.__setattr__(self, "decide_on", "nodes" if self.compat == "published" else "all")
        for name, option in OPTIONS.items():
            object.__setattr__(self, name, check_value(name, option, getattr(self, name)))
        if self.compat == "published" and self.decide_on != "nodes":
            raise SettingsError(f"Expected decide_on nodes with compat published, got {self.decide_on}.")
        if self.compat == "published" and (self.give_way != "named" or self.notice_s or self.planned_departures):
            ways = f"{self.give_way} and {self.notice_s:g} s"
            ways += " and planned departures" if self.planned_departures else ""
            raise SettingsError(f"Expected give_way named and no notice with compat published, got {ways}.")
        if self.strict_published and self.solver != "equal-share":
            raise SettingsError(f"Expected strict_published with the solver equal-share, got {self.solver!r}.")

    def list_ineffective(self, *, tuned: bool, learned: bool) -> dict[str, str]:
        """List options without effect on a run with or without tuned tasks and learned curves, and why."""
        reasons = {} if learned else {"profile_noise": "no curve is learned"}
        if tuned:
            return reasons
        if self.initial != "random" and not learned:
            reasons["seed"] = "nothing is drawn without --initial random, tuned tasks or learned curves"
        reasons |= dict.fromkeys(("power_options", "policy", "power_policy"), "no task is tuned")
        if not self.idle_power_w:
            reasons |= dict.fromkeys(("carbon", "pue"), "no power is known without tuned tasks or --idle-power")
        return reasons

    def settings(self, objective: Objective, solver: str | Solver) -> Settings:
        """Settings of the allocator, with this objective and solver: `SettingsError` if one is out of range."""
        from bftrainer.replay.allocator_settings import Settings
        from solvers import Limits

        names = [field.name for field in fields(Settings) if field.name in OPTIONS]
        same = {name: getattr(self, name) for name in names}
        return Settings(
            **same | {"objective": objective, "solver": solver},
            limits=Limits(self.time_limit_s, self.mip_gap, self.threads, self.prune, self.effort or math.inf),
            completions="reported" if self.decide_on == "all" else "noticed",
            idle_node_w=self.idle_power_w,
        )

    def start_ns(self, log: NodeLog) -> int:
        """Start of the replay of a log, in nanoseconds since the Unix epoch: `SettingsError` if no log can hold it."""
        return log.start_ns if self.since is None else _option_ns(log.start_ns, self.since, "since")

    def until_s(self, start_ns: int) -> float:
        """Latest end of the replay, in seconds since the window's start: `SettingsError` if it is not after that."""
        from bftrainer.model import NS_PER_S

        if self.until is None:
            return math.inf
        seconds = self.until
        if isinstance(seconds, datetime):
            # Computed exactly like the times of the log's rows, so that rounding does not miss a row at this time.
            seconds = (_option_ns(start_ns, seconds, "until") - start_ns) / NS_PER_S
        if not seconds > 0:
            raise SettingsError(f"Expected --until after the window's start, got {self.until}.")
        return float(seconds)


_KINDS = vars(builtins) | globals()  # by which annotations name the first type of a field
OPTIONS: dict[str, Option] = {
    item.name: replace(item.metadata["option"], kind=_KINDS[str(item.type).partition(" ")[0]])
    for item in fields(ReplayConfig)
}
"""All options by their field names, which are keys of sweep files and of the summary."""

_TYPES: dict[Any, tuple[type, ...]] = {float: (int, float), datetime: (datetime, int, float)}
_OBJECTS = {
    "node_log": "a path or a NodeLog",
    "tasks": "a path or TaskSpecs",
    "objective": "the name of an objective or a callable",
    **dict.fromkeys(("solver", "fallback"), "a name or an object with name and solve"),
}
_WORDS = {int: "whole", float: "a number", bool: "true or false", str: "text", Path: "a path", datetime: "a time"}


def check_value(name: str, option: Option, value: Any) -> Any:
    """Check type and range of a value: numbers of NumPy become those of Python, and names of files paths."""
    import numpy as np

    if isinstance(value, np.number | np.bool_):
        value = value.item()
    if option.is_file and isinstance(value, str):
        value = Path(value)
    if value is None is option.default or _is_object(name, value):
        return value
    if get_origin(option.kind) is Literal:
        fits, expected = isinstance(value, str) and value in get_args(option.kind), " or ".join(get_args(option.kind))
    else:
        types = _TYPES.get(option.kind, (option.kind,)) + ((Path,) if option.units else ())
        fits = isinstance(value, types) and isinstance(value, bool) == (option.kind is bool)
        expected = option.expected or _OBJECTS.get(name) or _WORDS[option.kind]
    if not fits:
        shown = f"the class {value.__name__}: make one of it" if isinstance(value, type) else repr(value)
        raise SettingsError(f"Expected {name} to be {expected}, got {shown}.")
    if isinstance(value, int) and not abs(value) < 2**63:
        raise SettingsError(f"Expected {name} to be a number of 64 bits, got {value}.")  # as summaries hold
    if option.least is not None and isinstance(value, int | float) and not option.least <= value < math.inf:
        raise SettingsError(f"Expected {name} >= {option.least}, got {value}.")
    return value


def _is_object(name: str, value: Any) -> bool:
    """Whether code may hand this over instead of the name of a file, of a solver or of an objective."""
    from bftrainer.model import NodeLog, TaskSpec

    if name in ("solver", "fallback"):
        has_solve = not isinstance(value, type) and callable(getattr(value, "solve", None))
        return has_solve and isinstance(getattr(value, "name", None), str)
    if name == "tasks":
        return isinstance(value, Sequence) and all(isinstance(task, TaskSpec) for task in value)
    return isinstance(value, NodeLog) if name == "node_log" else name == "objective" and callable(value)


def _option_ns(start_ns: int, moment: datetime | float, option: str) -> int:
    """Nanoseconds since the Unix epoch of a time; a number is in seconds after the start."""
    from bftrainer.model import NS_PER_S, instant_ns

    if not isinstance(moment, datetime) and not math.isfinite(moment):
        raise SettingsError(f"Expected --{option} to be a time, got {moment}.")
    try:
        time_ns = instant_ns(moment) if isinstance(moment, datetime) else start_ns + round(float(moment) * NS_PER_S)
    except OverflowError as error:
        raise SettingsError(f"--{option}: {error}") from None
    if abs(time_ns) >= 2**63:
        raise SettingsError(f"--{option}: Expected a time between the years 1678 and 2262, got {moment} s.")
    return time_ns
