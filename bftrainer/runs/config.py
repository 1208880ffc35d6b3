"""Configuration of a run: the one place where each option of a replay is declared."""

# ruff: noqa: RUF009 - `option_field` gives what `field` gives

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bftrainer.errors import SettingsError
from bftrainer.runs.option import Option, check_value, option_field, option_time_ns

if TYPE_CHECKING:  # reading the declarations, as help does, must not import more
    from bftrainer.model import NodeLog, Objective, TaskSpec
    from bftrainer.replay.allocator_settings import Settings
    from solvers import Solver

DecideOn = Literal["all", "nodes"]
Initial = Literal["solve", "empty", "random"]
StartupCost = Literal["none", "full"]
Compat = Literal["none", "published"]
Isolate = Literal["auto", "always", "never"]
SOLVER = "a name or an object with name and solve"
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

    node_log: Path | NodeLog | None = option_field(
        None,
        Path,
        "inputs: -ndmap --node-log",
        "Idle nodes over time (Parquet, CSV, legacy pickle or its .tar.gz).",
        unset="embedded sample",
        expected="a path or a NodeLog",
    )
    tasks: Path | Sequence[TaskSpec] | None = option_field(
        None,
        Path,
        "inputs: -bdfn --tasks",
        "Task set (TOML or legacy bounds).",
        unset="embedded sample",
        expected="a path or TaskSpecs",
    )
    scalability: Path | None = option_field(
        None,
        Path,
        "inputs: -scfn --scalability",
        "Legacy scalability of the tasks.",
        unset="the sibling with JNPs for Jbnd",
    )
    scaling: str | None = option_field(
        None,
        str,
        "inputs: --scaling",
        "Scaling of legacy tasks that come without; or decisions know none and learn it.",
        unset="linear, 1 work/s and node",
        metavar="linear|amdahl:F|learned",
    )
    profile_noise: float = option_field(
        0.02,
        float,
        "learning: --profile-noise",
        "Relative standard deviation of a task's throughput measured in a minute, where curves are learnt.",
        least=0,
    )
    first_node: int = option_field(0, int, "inputs: -nis --first-node", "Index of the first node used.", least=0)
    node_count: int | None = option_field(
        None, int, "inputs: -nN --node-count", "Number of nodes used.", unset="all", least=1
    )
    skip_events: int = option_field(0, int, "inputs: --skip-events", "Drop this many rows of the log first.", least=0)
    since: datetime | float | None = option_field(
        None, datetime, "inputs: --since", "Begin there: ISO time, or seconds since the log's start."
    )
    until: datetime | float | None = option_field(
        None, datetime, "inputs: --until", "Stop there: ISO time, or seconds since the window's start."
    )
    offer_after_s: float = option_field(
        0.0, float, "inputs: --offer-after", "Offer a node only once it has been idle for so many seconds.", least=0
    )
    planned_departures: Path | None = option_field(
        None,
        Path,
        "inputs: --planned-departures",
        "CSV of node,time: when nodes leave for maintenance or reservations, known the forward time before.",
    )
    cache: bool = option_field(
        True, bool, "inputs: --no-cache", "Parse the node log anew, and keep it nowhere.", changes_result=False
    )
    max_events: int | None = option_field(None, int, "inputs: --max-events", "Stop after this many events.", least=1)
    decide_on: DecideOn = option_field(
        None,
        DecideOn,
        "start: --decide-on",
        "Events: also submissions and completions, or rows of the log only.",
        unset="all; nodes with --compat published",
    )
    compat: Compat = option_field(
        "none",
        Compat,
        "start: --compat",
        "published: differ in nothing from the published replayer, with --decide-on nodes and its strict heuristic.",
        default_told=False,
    )
    initial: Initial = option_field("solve", Initial, "start: --initial", "First allocation.")
    startup_cost: StartupCost = option_field(
        "none", StartupCost, "start: --startup-cost", "Cost of a start from nothing."
    )
    objective: str | Objective = option_field(
        "as-given",
        str,
        "objective: --objective",
        "Registered name or module:callable, perhaps after priority:, fair-share: or quota:LIMITS:",
        metavar="NAME",
        expected="the name of an objective or a callable",
    )
    solver: str | Solver = option_field(
        "cbc",
        str,
        "solver: --solver",
        "See `bftrainer solvers`; or module:callable.",
        metavar="NAME",
        expected=SOLVER,
    )
    fallback: str | Solver | None = option_field(
        None, str, "solver: --fallback", "Solver to ask when that one fails.", metavar="NAME", expected=SOLVER
    )
    forward_time_s: float = option_field(
        10.0, float, "horizon: -Tfwd --forward-time", "Forward-looking time in seconds."
    )
    time_limit_s: float = option_field(
        10.0, float, "horizon: -optTL --time-limit", "Seconds that one decision may take.", limit="time"
    )
    effort: int | None = option_field(
        None,
        int,
        "limits: --effort",
        "Nodes of each branch-and-bound tree, and thousands of labels of dp: the same on any machine, however busy.",
        unset="no limit",
        metavar="N",
        least=1,
        limit="effort",
    )
    mip_gap: float = option_field(
        1e-09, float, "limits: --mip-gap", "Relative gap at which a decision is good enough.", limit="gap"
    )
    threads: int = option_field(1, int, "limits: --threads", "Threads of a solver.", sized="processes", limit="threads")
    max_tasks: int = option_field(10, int, "horizon: -maxJ --max-tasks", "Tasks active at once.", sized="tasks")
    seed: int = option_field(0, int, "limits: --seed", "For --initial random, tuned tasks and learned curves.", least=0)
    prune: bool = option_field(
        True, bool, "limits: --no-prune", "Give solvers all options, also those that no optimum uses.", limit="prune"
    )
    isolate: Isolate = option_field(
        "auto",
        Isolate,
        "solver: --isolate",
        "Solvers that answer in a process of their own: other packages', all that call a library, or none.",
        changes_result=False,
    )
    strict_published: bool = option_field(
        False, bool, "solver: --strict-published", "Let equal-share give 0 where the share is just the minimum."
    )
    baseline: bool = option_field(True, bool, "figures: --no-baseline", "Skip the efficiency against constant pools.")
    bounds: bool = option_field(
        False,
        bool,
        "figures: --bounds",
        "Also replay with knowledge of when nodes leave, and with free changes: how much more could be done?",
        changes_result=False,
    )
    large_idle: int | None = option_field(
        None,
        int,
        "figures: --large-idle",
        "Shares are also given for intervals with fewer idle nodes.",
        unset="a quarter",
        metavar="N",
        least=1,
    )
    idle_power_w: float = option_field(0.0, float, "power: --idle-power", "Watts of a node that does not train.")
    pue: float = option_field(1.0, float, "power: --pue", "Watts at the meter for each watt of the nodes.")
    power_options: PowerOptions = option_field(
        "chosen", PowerOptions, "power: --power-options", "Power limits of tuned tasks that decisions choose from."
    )
    policy: str = option_field(
        "zeus",
        str,
        "power: --policy",
        "Chooses batch sizes of tuned tasks: zeus, gts, default, grid, ucb, oracle or module:callable.",
        metavar="NAME",
        default_told=False,
    )
    power_policy: str = option_field(
        "jit",
        str,
        "power: --power-policy",
        "Chooses their power limits: jit, max-power, oracle or module:callable.",
        metavar="NAME",
        default_told=False,
    )
    power_cap: float | Path | None = option_field(
        None,
        float,
        "power: --power-cap",
        "What harvested nodes may draw at the meter: 250kW, or a CSV of time,power_w. All tasks must be tuned.",
        units={"": 1.0, "W": 1.0, "kW": 1000.0, "MW": 1000000.0},
        expected="watts (250000, 250kW, 0.25MW)",
        least=0,
    )
    carbon: float | Path | None = option_field(
        None,
        float,
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
        if self.strict_published and self.solver != "equal-share":
            raise SettingsError(f"Expected strict_published with the solver equal-share, got {self.solver!r}.")

    def without_effect(self, *, tuned: bool | None = None, learned: bool = False) -> dict[str, str]:
        """Options that have no effect in this configuration, and why.

        Parameters
        ----------
        tuned : bool, optional
            Whether there are tuned tasks; unknown before tasks are read.
        learned : bool
            Whether there are tasks whose curves are learned.
        """
        found = {}
        if self.fallback is not None and self.fallback == self.solver:
            found["fallback"] = "it is the solver that would have failed"
        found |= self._without_effect()
        if tuned is False:
            if self.initial != "random" and not learned:
                found["seed"] = "nothing is drawn without --initial random, tuned tasks or learned curves"
            found |= dict.fromkeys(("power_options", "policy", "power_policy"), "no task is tuned")
            if not self.idle_power_w:
                unknown = "no power is known without tuned tasks or --idle-power"
                found |= dict.fromkeys(("carbon", "pue"), unknown)
        return found

    def _without_effect(self) -> dict[str, str]:
        """Options that the solver and the fallback both ignore, as far as they declare that."""
        from solvers.registry import declaration

        asked = [each for each in (self.solver, self.fallback) if each is not None]
        names = [each for each in asked if isinstance(each, str)]
        if len(names) < len(asked):
            return {}
        heeds = frozenset[str]().union(*(declaration(name).heeds for name in names))
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
        return option_time_ns(log.start_ns, self.since, "since")

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
            seconds = (option_time_ns(start_ns, self.until, "until") - start_ns) / NS_PER_S
        else:
            seconds = float(self.until)
        if not seconds > 0:
            raise SettingsError(f"Expected --until after the window's start, got {self.until}.")
        return seconds


OPTIONS: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(ReplayConfig)}
"""All options by their field names, which are keys of sweep files and of the summary."""
