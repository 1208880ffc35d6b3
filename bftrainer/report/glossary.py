"""Labels, units and meanings of a run's figures, values as text with units, and what rests on an assumption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from bftrainer.errors import SettingsError, suggestion

Unit = Literal["share", "s", "wall_s", "node_s", "nodes", "work", "count", "J", "W", "g", "rate"]


@dataclass(frozen=True, slots=True)
class Term:
    """Figure of a summary.

    Parameters
    ----------
    label : str
    unit : str
    meaning : str
        One or two sentences for a newcomer.
    better : int
        1 if more of it is better, -1 if less is, 0 if neither.
    scaling : bool
        Whether it rests on how tasks scale, directly or by the decisions; others are the log's alone.
    over : str
        Key of the figure that says of how many tasks it is, if not of all.
    """

    label: str
    unit: Unit
    meaning: str
    better: int = 0
    scaling: bool = True
    over: str = ""


GLOSSARY: dict[str, Term] = {
    "efficiency": Term(
        "efficiency U",
        "share",
        "The work that was harvested, as a share of what as many dedicated nodes would have done in the same time. "
        "Above 100 %, a pool that changes suits the tasks better than its mean does.",
        1,
    ),
    "efficiency_eq_nodes": Term(
        "dedicated nodes of U", "nodes", "How many dedicated nodes U compares with.", scaling=False
    ),
    "efficiency_horizon_s": Term(
        "horizon of U", "s", "From the start until dedicated nodes would have run out of tasks, or the end."
    ),
    "ideal_work": Term("work of dedicated nodes", "work", "What those dedicated nodes would have done until then."),
    "eq_nodes": Term("idle nodes", "nodes", "Mean number of idle nodes, over the time of the window.", scaling=False),
    "idle_node_s": Term("idle node-time", "node_s", "Time that nodes were idle, summed over nodes.", scaling=False),
    "used_node_s": Term("used node-time", "node_s", "Time that tasks held nodes, summed over nodes.", 1),
    "occupancy": Term("occupancy", "share", "How much of the idle node-time tasks held.", 1),
    "work_done": Term("work done", "work", "Work of all tasks, less what rescaling and preemption cost.", 1),
    "rescale_loss_share": Term(
        "rescale loss", "share", "Work that was lost while tasks grew or shrank, as a share of all work.", -1
    ),
    "rescale_loss_work": Term("work lost by rescaling", "work", "In the tasks' unit of work."),
    "preemption_loss_share": Term(
        "preemption loss", "share", "Work that was lost when the batch scheduler took nodes back, likewise.", -1
    ),
    "preemption_loss_work": Term("work lost by preemption", "work", "In the tasks' unit of work."),
    "given_back_loss_share": Term(
        "give-back loss", "share", "Work that was lost when decisions gave nodes back, likewise.", -1
    ),
    "given_back_loss_work": Term("work lost by giving back", "work", "In the tasks' unit of work."),
    "saving_loss_share": Term("checkpoint loss", "share", "Work that was not done while tasks saved, likewise.", -1),
    "saving_loss_work": Term("work lost by saving", "work", "In the tasks' unit of work."),
    "ledger.useful": Term("useful", "share", "Idle node-time that became lasting work, at the tasks' best rate.", 1),
    "ledger.rescaling": Term("rescaling", "share", "Idle node-time that growing and shrinking by choice cost.", -1),
    "ledger.preemption": Term(
        "preemption", "share", "Idle node-time whose work was lost as nodes were taken back.", -1
    ),
    "ledger.given_back": Term("given back", "share", "Idle node-time that making room for the scheduler cost.", -1),
    "ledger.saving": Term("saving", "share", "Idle node-time that checkpoints took.", -1),
    "ledger.below_best": Term(
        "below best rate", "share", "Held by tasks at counts at which they do less a node, or after they were done.", -1
    ),
    "ledger.not_offered": Term(
        "not offered", "share", "Withheld: idle too short, or about to leave as planned.", scaling=False
    ),
    "ledger.capped": Term("capped", "share", "Wanted by active tasks, and forbidden by the power cap."),
    "ledger.declined": Term("declined", "share", "Wanted, and left free by decisions: for costs or minima.", -1),
    "ledger.admission": Term("not admitted", "share", "Wanted by waiting tasks alone, which -maxJ did not admit.", -1),
    "ledger.demand": Term("no demand", "share", "Wanted by no task."),
    "return_on_investment": Term(
        "return on investment", "share", "Work that was done, as a share of what the decisions expected.", 1
    ),
    "loss_variability_share": Term(
        "variability loss", "share", "Loss of a varying pool against a constant one of the same mean size.", -1
    ),
    "loss_horizon_share": Term(
        "horizon loss", "share", "Loss because decisions look a fixed time ahead and weigh rescaling.", -1
    ),
    "tasks_completed": Term("tasks completed", "count", "Tasks that did all their work within the window.", 1),
    "tasks_started": Term("tasks started", "count", "Tasks that ran at least once.", 1),
    "tasks_total": Term("tasks", "count", "Tasks of the set.", scaling=False),
    "makespan_s": Term(
        "makespan", "s", "From the first submission until the last completion.", -1, over="tasks_completed"
    ),
    "turnaround_mean_s": Term(
        "mean turnaround", "s", "From submission until done, mean of the tasks that are.", -1, over="tasks_completed"
    ),
    "turnaround_p90_s": Term(
        "p90 turnaround",
        "s",
        "Nine of ten tasks took no longer from submission until done.",
        -1,
        over="tasks_completed",
    ),
    "wait_mean_s": Term("mean wait", "s", "From submission until a task first ran.", -1, over="tasks_started"),
    "preemptions": Term("preemptions", "count", "How often a task lost nodes to the batch scheduler.", -1),
    "give_backs": Term("give-backs", "count", "How often a decision chose a task to give nodes back.", -1),
    "rescales": Term("rescales", "count", "How often a decision changed the nodes of a running task.", -1),
    "preemptions_per_node_hour": Term("preemptions per node-hour", "rate", "Preemptions over used node-hours.", -1),
    "rescales_per_node_hour": Term("rescales per node-hour", "rate", "Rescales over used node-hours.", -1),
    "energy_j": Term("energy of tasks", "J", "What tuned tasks drew while they held nodes.", -1),
    "idle_energy_j": Term("energy of idle nodes", "J", "What nodes of the pool drew without training.", -1),
    "site_energy_j": Term("energy of the site", "J", "All of that times the site's PUE."),
    "average_power_w": Term("average power", "W", "What the pool's nodes drew on average."),
    "peak_power_w": Term("peak power", "W", "The most that the pool's nodes drew."),
    "emissions_gco2": Term("emissions", "g", "Carbon dioxide that the energy stands for, with the site's PUE.", -1),
    "train_s": Term("training time", "s", "Time that tuned tasks trained, summed over tasks.", -1),
    "attempts": Term("tries", "count", "Runs of tuned tasks, those that were stopped early included.", -1),
    "tasks_reached": Term("targets reached", "count", "Tuned tasks that reached their target metric.", 1),
    "tasks_failed": Term("tasks given up", "count", "Tuned tasks that could not go on.", -1),
    "events": Term("events", "count", "Instants at which nodes or tasks came or went.", scaling=False),
    "decisions": Term("decisions", "count", "Times that nodes were allocated anew.", scaling=False),
    "decisions_optimal": Term(
        "proven optimal", "count", "Decisions that are proven to be the best possible.", 1, scaling=False
    ),
    "decisions_claimed": Term(
        "claimed optimal", "count", "Decisions that only a plug-in calls the best possible.", -1, scaling=False
    ),
    "decisions_incumbent": Term(
        "best found", "count", "Decisions that were not proven, with an allocation.", -1, scaling=False
    ),
    "decisions_kept": Term("kept", "count", "Decisions that found nothing and kept the allocation.", -1, scaling=False),
    "decisions_fallback": Term("by the fallback", "count", "Decisions in which the solver failed.", -1, scaling=False),
    "backend_asked": Term(
        "left to the solver", "count", "Decisions that pruning and search had not settled before.", scaling=False
    ),
    "backend_s": Term(
        "time of the solver", "wall_s", "Time in which the solver searched, summed over decisions.", scaling=False
    ),
    "solve_wall_share": Term("share of deciding", "share", "How much of the wall time decisions took.", scaling=False),
    "gap_max": Term(
        "worst gap", "share", "Largest possible shortfall of a decision from the best one.", -1, scaling=False
    ),
    "solve_s_median": Term(
        "decision time, median", "wall_s", "Half of the decisions took no longer.", -1, scaling=False
    ),
    "solve_s_p95": Term("decision time, p95", "wall_s", "19 of 20 decisions took no longer.", -1, scaling=False),
    "solve_s_max": Term("decision time, longest", "wall_s", "The decision that took longest.", -1, scaling=False),
    "window_s": Term("window", "s", "How much of the log was replayed.", scaling=False),
    "nodes_total": Term("nodes of the machine", "count", "Nodes in the log.", scaling=False),
    "wall_s": Term("wall time", "wall_s", "How long the replay took to compute.", -1, scaling=False),
    "load_s": Term("time to load", "wall_s", "How long reading the inputs took.", scaling=False),
    "replay_s": Term("time to replay", "wall_s", "How long the replay itself took.", scaling=False),
    "baseline_s": Term("time for U", "wall_s", "How long the replays for efficiency took.", scaling=False),
    "below_large_idle.large_idle": Term(
        "large idle", "count", "From how many idle nodes on a time is left out here.", scaling=False
    ),
    "below_large_idle.time_share": Term(
        "time with few idle nodes", "share", "How much of the window is left then.", scaling=False
    ),
    "below_large_idle.idle_node_s_share": Term(
        "idle node-time with few idle nodes", "share", "How much of the idle node-time is left then.", scaling=False
    ),
}
"""Figures that pages and tables tell of, by their key in `summary.json`, in the order in which they do."""


JUDGED = tuple(key for key, term in GLOSSARY.items() if term.better and term.unit != "wall_s")
"""Figures that can be better or worse, but for times of a clock, in which equal inputs differ."""


def term_of(key: str) -> Term:
    """What is known of a figure by its full name; ``below_large_idle.occupancy`` is like ``occupancy``."""
    group, _, name = key.rpartition(".")
    found = GLOSSARY.get(key) or GLOSSARY.get(name) or Term(name, "node_s" if name.endswith("node_s") else "rate", "")
    within = {"": "", "below_large_idle": " (few nodes idle)"}.get(group, f" ({group})")
    return found if key.startswith("below_") and key in GLOSSARY else replace(found, label=f"{found.label}{within}")


HEADLINES = (
    *("efficiency", "occupancy", "work_done", "tasks_completed", "makespan_s", "turnaround_mean_s"),
    *("ledger.useful", "energy_j", "solve_s_median"),
)
"""Those that fit into one line a run."""
COMPARED = (
    *("efficiency", "ledger.useful", "eq_nodes", "occupancy", "work_done", "tasks_completed", "makespan_s"),
    *("turnaround_mean_s", "wait_mean_s", "preemptions", "rescales", "energy_j", "emissions_gco2"),
    *("decisions_optimal", "solve_s_median"),
)
"""Those that a comparison of a few runs shows, unless all are asked for."""
OVER_TASKS = {key: term.over for key, term in GLOSSARY.items() if term.over}
"""Figures of some tasks only, and the figure that says of how many."""
WORK_SHARES = tuple(key for key in GLOSSARY if "loss" in key and key.endswith("_share"))
"""Figures of other wholes than the ledger's; tables and pages that show the ledger leave them out."""
ON_SCALING = tuple(key for key, term in GLOSSARY.items() if term.scaling)
"""Figures of a summary that follow from how tasks scale, directly or by the decisions; others are the log's alone."""

# From which value on a unit is used, and its size.
_SCALES: dict[Unit, tuple[tuple[float, float, str], ...]] = {
    "s": ((172800.0, 86400.0, "d"), (3600.0, 3600.0, "h"), (60.0, 60.0, "min"), (0.0, 1.0, "s")),
    "wall_s": ((60.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs")),
    "J": ((3.6e9, 3.6e9, "MWh"), (3.6e6, 3.6e6, "kWh"), (3600.0, 3600.0, "Wh"), (0.0, 1.0, "J")),
    "W": ((1e6, 1e6, "MW"), (1e3, 1e3, "kW"), (0.0, 1.0, "W")),
    "g": ((1e6, 1e6, "t"), (1e3, 1e3, "kg"), (0.0, 1.0, "g")),
}


def key_of(name: str) -> str:
    """The key of a figure that is named by it, or by the words that pages have for it; other names stay as they are.

    Examples
    --------
    >>> key_of("work done"), key_of("Mean wait"), key_of("work_done"), key_of("wrok")
    ('work_done', 'wait_mean_s', 'work_done', 'wrok')
    """
    labels = {term.label.casefold(): key for key, term in GLOSSARY.items()}
    return name if name in GLOSSARY else labels.get(name.casefold(), name)


def check_metric(name: str) -> None:
    """Refuse a figure that cannot be better or worse, or that depends on the clock, as equal inputs would differ in it.

    Raises
    ------
    SettingsError
        Naming those that are like it.
    """
    if name not in JUDGED:
        raise SettingsError(f"Expected a metric to improve, got {name!r}.{suggestion(name, JUDGED)}")


def format_value(value: float | None, unit: Unit) -> str:
    """Format a figure with its unit.

    Examples
    --------
    >>> format_value(-1e-16, "share"), format_value(224292.8, "s"), format_value(1.2e-4, "wall_s")
    ('0.00 %', '2.6 d', '120 µs')
    >>> format_value(None, "W"), format_value(17308566170.0, "work"), format_value(9598018.9, "node_s")
    ('-', '1.731e+10', '2,666 node-hours')
    >>> format_value(90000.0, "work"), format_value(1.2, "node_s")
    ('90,000', '0.00033 node-hours')
    """
    if value is None:
        return "-"
    if unit == "share":
        return f"{round(100 * value, 2) + 0.0:.2f} %"  # rounding noise below 0 is no loss and no gain
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "nodes":
        return f"{value:,.1f}"
    if unit == "node_s":
        hours = round(value / 3600, 6)
        return f"{hours:,.0f} node-hours" if abs(hours) >= 10 or not hours else f"{hours:.2g} node-hours"
    if unit in _SCALES:
        size, name = scale(value, unit)
        amount = value / size
        return f"{amount:,.0f} {name}" if abs(amount) >= 1000 else f"{amount:.3g} {name}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e6 else f"{value:.4g}"


def scale(value: float, unit: Unit) -> tuple[float, str]:
    """Size and name of the unit in which figures up to this value are told; the name is empty for plain numbers.

    Examples
    --------
    >>> scale(0.3, "share"), scale(7200.0, "s"), scale(5.0, "count")
    ((0.01, '%'), (3600.0, 'h'), (1.0, ''))
    """
    if unit in _SCALES:
        return next((size, name) for least, size, name in _SCALES[unit] if abs(value) >= least)
    return {"share": (0.01, "%"), "node_s": (3600.0, "node-hours"), "nodes": (1.0, "nodes")}.get(unit, (1.0, ""))


def scaled_label(values: Iterable[float | None], term: Term) -> tuple[float, str]:
    """The unit in which such values are drawn, as a number, and the label of their axis, which names it."""
    size, unit = scale(max((abs(value) for value in values if value is not None), default=0.0), term.unit)
    return size, f"{term.label} ({unit})" if unit else term.label


ASSUMED = "assumed scaling"
MARK = "*"
"""What stands beside a figure that rests on an assumption, where there is room for words and where there is none."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """Assumption of a run.

    Parameters
    ----------
    note : str
        The assumption and the options that replace it, without a full stop.
    figures : frozenset of str
        Keys of the figures that rest on it.
    """

    note: str
    figures: frozenset[str]

    def bears(self, key: str) -> bool:
        """Whether a figure rests on it; ``below_large_idle.occupancy`` does if ``occupancy`` does."""
        return key.rpartition(".")[2] in self.figures


def assumption(summary: Mapping[str, Any]) -> Assumption | None:
    """The assumed scaling in a run's summary; None if the scaling of all tasks was given."""
    found = summary.get("assumed_scaling")
    if found is not None:
        return Assumption(found["note"], frozenset(found["figures"]))
    # Earlier versions recorded only the law.
    law = (summary.get("settings") or {}).get("scaling")
    if law is None or "assumed_scaling" in summary:
        return None
    return Assumption(f"{law} from 1 work/s on one node; -scfn names measured scaling", frozenset(ON_SCALING))
