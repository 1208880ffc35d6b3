"""Page of an assessment, made of its JSON alone; it needs neither network nor scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.report.drawing import date_of, label_dates, palette
from bftrainer.report.glossary import format_value, limit_in_words, name_tasks
from bftrainer.report.ledger import PARTS
from bftrainer.report.page import MOST_CARDS, Card, Page, PageTable, Picture
from bftrainer.report.run_figures import draw_idle, ledger_picture
from bftrainer.terms import GLOSSARY, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Assessment = Mapping[str, Any]
Kind = Mapping[str, Any]
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TONES = {"green": "good", "amber": "fair", "red": "poor", "gray": ""}
_GRANTS = {"named": "as now", "chosen": "harvester chooses nodes", "notice": "two minutes' notice"}
_NOT_COUNTED = " Gray: mostly empty (more than half of the nodes are idle); the line does not count what is done then."
_DOUBTED = "Without a verdict, these figures say what would come out if the log could be trusted."
_WORDS: dict[str, tuple[str, Unit | None]] = {
    "worth_share": ("least share of the machine that is worth it", "share"),
    "worth_value": ("net value that must be exceeded", None),
    "least_window_s": ("shortest log that gets a verdict", "s"),
    "price_node_hour": ("worth of a useful node-hour", None),
    "price_kwh": ("price of a kWh", None),
    "node_w": ("power of a node that trains", "W"),
    "idle_w": ("power of an idle node", "W"),
    "pue": ("watts at the meter for each watt of the nodes (PUE)", None),
    "carbon_gco2_per_kwh": ("CO2 of a kWh", "g"),
    "offer_after_s": ("how long a node is idle before it is offered", "s"),
    "solver": ("solver", None),
    "startup_cost": ("cost of starts", None),
}
"""Assumptions in words, and their unit; None for plain numbers and texts."""
_CARDS = {
    "gpu_hours": ("GPU-hours", "", "Useful node-hours times GPUs of a node."),
    "net_value": (
        "net value",
        "",
        "In your currency: worth of the useful node-hours, less energy if its price is given.",
    ),
    "energy_kwh": ("energy", " kWh", "Beyond what idle nodes would draw, at the meter; in the whole window."),
    "emissions_kg": ("emissions", " kg CO2", "Of that energy."),
    "node_starts_per_day": ("node starts a day", "", "How often a node is given to a task; each is given back."),
    "preemptions_per_day": ("interruptions a day", "", "How often a task loses nodes to the scheduler."),
}
"""Label, unit and meaning of cards of a kind of tasks."""


def assessment_page(result: Assessment) -> Page:
    """Make the page of an assessment, from the JSON of `bftrainer.campaigns.assess.assess`."""
    log, kind = result["log"], _best_kind(result)
    limit, name = limit_in_words(kind), name_tasks(kind["name"])
    has_empty = bool(result["idle"]["mostly_empty"]["node_hours"])
    # What is not counted may be more than any loss, and without a verdict there is nothing to limit.
    is_said = limit is None or limit in result["sentence"] or result["verdict"] == "none"
    ledger = kind["ledger"]
    empty_s = 3600 * max(0.0, kind["mostly_empty_node_hours"])
    not_counted = empty_s / ledger["idle_node_s"] if has_empty and ledger["idle_node_s"] else None
    losses = [ledger.get(part) or 0.0 for part in PARTS[1:]]
    is_larger = max(losses) > result["idle"]["mostly_empty"]["share"]
    texts = [result["sentence"], result["mostly_empty"], is_larger and not is_said and f"What limits {name}: {limit}."]
    partitions = [
        [partition, f"{row['nodes']:,}", format_value(row["share"], "share")]
        for partition, row in result["idle"]["by_partition"].items()
    ]
    reading = "The light area is what the machine left idle, the dark line how many of those nodes did lasting work."
    reading += _NOT_COUNTED * has_empty
    window = Picture("window", f"Idle nodes, and what {name} made of them", reading, partial(_draw_window, result), 2.3)
    causes = []  # which may overlap
    if (quality := log["quality"]) is not None:
        for cause, node_s in (quality["busy_node_s"] | {"idle": quality["idle_node_s"]}).items():
            if node_s:
                text = "busy with jobs" if cause == "job" else cause.replace("_", " ")
                share = format_value(node_s / (log["nodes"] * log["window_s"]), "share")
                causes.append([text, f"{node_s / 3600:,.0f}", share])
    advice = []
    if (best := result["recommended"]) is not None:
        advice.append(
            f"Begin with -Tfwd {best['forward_time_s']:g} -maxJ {best['max_tasks']} for {name_tasks(best['kind'])}: "
            f"each decision plans {best['forward_time_s'] / 60:g} min ahead, and at most {best['max_tasks']} tasks run "
            "at once."
        )
        if len(result["worth_for"]) > 1:
            advice.append(f"Worth it for: {', '.join(result['worth_for'])}.")
        command = "bftrainer harvest run tasks.toml --engine slurm --partition NAME --dry-run"
        advice.append(f"Then train: {command} says what it would start.")
    return Page(
        title="Is harvesting worth it here?",
        subtitle=f"{log['nodes']:,} nodes, {log['window'][0][:16]} to {log['window'][1][:16]} UTC",
        verdict=" ".join(filter(None, texts)),
        tone=_TONES[result["colour"]],
        cards=tuple(_cards(result, kind))[:MOST_CARDS],
        figures=(window, ledger_picture(ledger, f", for {name}", not_counted)),
        next_step=advice[0] if advice else "",
        notes=tuple(result["caveats"]),
        tables=(
            PageTable("What to begin with", texts=advice),
            _grants(result["grants"], kind),
            PageTable("What to measure next", texts=result["next"]),
            _kind_table(result),
            _week_table(result["idle"]["nodes_by_hour_of_week"]),
            PageTable("What nodes did", ("nodes were", "node-hours", "of the machine"), causes),
            PageTable("By partition", ("partition", "nodes", "idle"), partitions),
            PageTable("What was assumed", ("what", "value"), list(_assumptions(result))),
        ),
        command=result["command"],
    )


def _best_kind(result: Assessment) -> Kind:
    """The kind of tasks of the verdict."""
    kind: Kind = next(kind for kind in result["kinds"] if kind["name"] == result["about"])
    return kind


def _cards(result: Assessment, kind: Kind) -> Iterator[Card]:
    """Figures of the log and of the best kind."""
    idle, notes = result["idle"], " ".join(result["log"]["provenance"].get("notes") or [])
    text = f"{idle['mean_nodes']:,.1f} nodes on average"
    if result["log"]["quality"] is None or "when nodes were down" in notes:
        text += ", if none was down: an upper bound"
    share, empty = format_value(idle["share"], "share"), idle["mostly_empty"]["share"]
    if empty:
        text = f"{share} with what is not counted: {text}"
        share = format_value(idle["share"] * (1.0 - empty), "share")
    yield Card("idle and counted" if empty else "idle", share, f"{text}.")
    if result["verdict"] == "none":
        return
    low, high = kind["useful_node_hours_ci95"]
    when = ", while at least half of the nodes are busy" if idle["mostly_empty"]["node_hours"] else ""
    text = f"{low:,.0f} to {high:,.0f} (95 %){when}."
    yield Card("useful node-hours", f"{kind['useful_node_hours']:,.0f}", text)
    bar = format_value(result["thresholds"]["worth_share"], "share")
    text = f"By {kind['name']} tasks; the bar is {bar}."
    yield Card("of the machine", format_value(kind["useful_share"], "share"), text)
    for key, (label, _, meaning) in _CARDS.items():
        if kind[key] is not None:
            yield Card(label, _describe_amount(kind, key), meaning)


def _describe_amount(kind: Kind, key: str) -> str:
    return "-" if kind[key] is None else f"{kind[key]:,.0f}{_CARDS[key][1]}"


def _draw_window(result: Assessment, ax: Axes) -> None:
    """Idle nodes over the window, and those that did lasting work in each week or day, or on average."""
    log, kind = result["log"], _best_kind(result)
    nodes = np.array(result["idle"]["nodes_over_window"])
    useful = np.array(kind["blocks"]["node_s"] or [kind["useful_node_s"]])
    useful = useful * (kind["useful_node_hours"] * 3600 / kind["useful_node_s"] if kind["useful_node_s"] else 0.0)
    edges_s = [np.linspace(0.0, log["window_s"], values.size + 1) for values in (nodes, useful)]
    idle_dates, dates = (date_of(log["window"][0], edges) for edges in edges_s)
    draw_idle(ax, idle_dates, nodes, result["idle"]["mean_nodes"])
    label = f"useful, a {kind['blocks']['unit']}'s mean" if useful.size > 1 else "useful, on average"
    useful = np.maximum(useful / np.diff(edges_s[1]), 0.0)
    ax.stairs(useful, dates, baseline=None, color=palette()["blue"], linewidth=2.2, label=label)
    if (is_empty := 2 * nodes > log["nodes"]).any():
        look = {"fill": True, "color": palette()["gray"], "alpha": 0.35, "linewidth": 0, "zorder": 0}
        ax.stairs(is_empty, idle_dates, label="mostly empty", transform=ax.get_xaxis_transform(), **look)
    label_dates(ax)


def _grants(grants: Mapping[str, Any] | None, kind: Kind) -> PageTable:
    """What the scheduler could grant; an empty section where that was not computed."""
    if not grants:
        return PageTable("What you could grant")
    hours = {
        name: kind["useful_node_hours"] * grants[name]["useful_node_s"] / kind["useful_node_s"] for name in _GRANTS
    }
    rows = []
    for name, label in _GRANTS.items():
        low, high = grants[name]["gain_ci95"]
        interval = "-" if low is None or name == "named" else f"{100 * low:+.1f} to {100 * high:+.1f} %"
        rows.append((label, f"{hours[name]:,.0f}", f"{100 * grants[name]['gain']:+.1f} %", interval))
    reading = "Useful node-hours with nodes taken as now, and with each grant. Whiskers: 95 % intervals of the change."

    def draw(ax: Axes) -> None:
        """Useful node-hours with each grant, side by side, with the interval of its change."""
        ink = palette()
        ax.bar(list(_GRANTS.values()), list(hours.values()), 0.6, color=[ink["gray"], ink["blue"], ink["blue"]])
        for label, (name, value) in zip(_GRANTS.values(), hours.items(), strict=True):
            low, high = (None if end is None else end - grants[name]["gain"] for end in grants[name]["gain_ci95"])
            if name != "named" and low is not None and high is not None:
                ends = [[-low * hours["named"]], [high * hours["named"]]]
                ax.errorbar([label], [value], ends, color=ink["ink"], capsize=4, linewidth=1.0)
        ax.set(ylabel="useful node-hours")

    picture = Picture("grants", "Useful node-hours by grant", reading, draw, 1.9)
    headings = "grant", "useful node-hours", "gain", "95 %"
    return PageTable("What you could grant", headings, rows, texts=[grants["sentence"]], figure=picture)


def _kind_table(result: Assessment) -> PageTable:
    """Table of kinds of tasks, a row each."""
    limits = {"pool": "idle nodes"} | {name: GLOSSARY[f"ledger.{name}"].label for name in PARTS[1:]}
    keys = [key for key in _CARDS if any(kind[key] is not None for kind in result["kinds"])]
    rows = []
    for kind in result["kinds"]:
        low, high = kind["useful_node_hours_ci95"]
        row = {
            "tasks": kind["name"],
            "useful node-hours": f"{kind['useful_node_hours']:,.0f}",
            "95 %": "-" if low is None else f"{low:,.0f} to {high:,.0f}",
            "of the machine": format_value(kind["useful_share"], "share"),
            **{_CARDS[key][0]: _describe_amount(kind, key) for key in keys},
            "-Tfwd, -maxJ": f"{kind['settings']['forward_time_s']:g} s, {kind['settings']['max_tasks']}",
            "limited by": limits.get(kind["limited_by"], "-"),
        }
        rows.append(row)
    note = _DOUBTED if result["verdict"] == "none" else ""
    return PageTable("By kind of models", tuple(rows[0]), [list(row.values()) for row in rows], note)


def _week_table(hours: list[float | None]) -> PageTable:
    """Mean idle nodes by day of the week and quarter of the day, from those of its hours."""
    quarters = np.ma.masked_invalid(np.array(hours, dtype=np.float64)).reshape(7, 4, 6).mean(axis=2).filled(np.nan)
    rows = [
        [day, *("-" if np.isnan(nodes) else f"{nodes:,.1f}" for nodes in row)]
        for day, row in zip(_DAYS, quarters.tolist(), strict=True)
    ]
    headings = ("mean idle nodes", "0:00 to 6:00", "6:00 to 12:00", "12:00 to 18:00", "18:00 to 24:00")
    return PageTable("When nodes are idle", headings, rows, "Times are UTC.")


def _assumptions(result: Assessment) -> Iterator[tuple[str, str]]:
    """Tasks of each kind, thresholds, prices and sources."""
    yield from ((name_tasks(kind["name"]), _describe_tasks(kind)) for kind in result["kinds"])
    values = {**result, **result["thresholds"], **result["prices"]}
    if values["price_node_hour"] is None:
        values["worth_value"] = None  # it decides nothing then
    for name, (label, unit) in _WORDS.items():
        value = values[name]
        if value is not None:
            is_plain = unit is None and not isinstance(value, str)
            yield label, f"{value:,.10g}" if is_plain else value if unit is None else format_value(value, unit)
    for name in ("format", "source", "tool", "inventory", "zone"):
        if (value := result["log"]["provenance"].get(name)) is not None:
            yield name, str(value)


def _describe_tasks(kind: Kind) -> str:
    """Assumed tasks of a kind."""
    tasks = kind["assumed"]
    if "parameters" not in tasks:
        return f"{tasks['tasks']:,} tasks of the site, repeated to {kind['tasks']:,}."
    return (
        f"{tasks['parameters'] / 1e9:g} billion parameters, "
        f"{tasks['min_nodes']} to {tasks['max_nodes']} nodes (Amdahl's law, {100 * tasks['parallel_fraction']:.4g} % "
        f"parallel), 24 h on the most or more; a start or planned change takes {tasks['grow_cost_s']:.0f} s, a loss "
        f"{tasks['shrink_cost_s']:.0f} s, a checkpoint {tasks['save_s']:.1f} s every "
        f"{tasks['checkpoint_interval_s']:,.0f} s; {kind['tasks']:,} such tasks."
    )
