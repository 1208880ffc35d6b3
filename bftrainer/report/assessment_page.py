"""Page of an assessment, made of its JSON alone; it needs neither network nor scripts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.report.drawing import palette
from bftrainer.report.glossary import GLOSSARY, Unit, format_value
from bftrainer.report.ledger import PARTS, limit_in_words
from bftrainer.report.page import MOST_CARDS, Card, Page, PageTable, Picture
from bftrainer.report.pictures import date_of, draw_idle, waterfall, with_dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LIMITS = {"pool": "idle nodes"} | {part: GLOSSARY[f"ledger.{part}"].label for part in PARTS[1:]}
_STYLES = (("green", "-", "o"), ("blue", "--", "s"), ("purple", ":", "^"))
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TONES = {"green": "good", "amber": "fair", "red": "poor", "gray": ""}
_OF_ALL = "Shares are of all idle time, also that while the machine stood mostly empty."
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
"""What is assumed, in words, and its unit; None for plain numbers and texts."""
_DOUBTED = "Without a verdict, these figures say what would come out if the log could be trusted."


def assessment_page(found: Mapping[str, Any]) -> Page:
    """Make the page of an assessment, which `bftrainer.campaigns.assess.assess` made."""
    log, kind, cards = found["log"], _kind(found), _cards(found)
    limit, name = limit_in_words(kind), _name_kind(kind["name"])
    is_new = limit is not None and limit not in found["sentence"]
    said = [found["sentence"], found["mostly_empty"], is_new and f"What limits {name}: {limit}."]
    return Page(
        title="Is harvesting worth it here?",
        subtitle=f"{log['nodes']:,} nodes, {log['window'][0][:16]} to {log['window'][1][:16]} UTC",
        verdict=" ".join(filter(None, said)),
        tone=_TONES[found["colour"]],
        cards=tuple(cards[:MOST_CARDS]),
        figures=tuple(_pictures(found, kind, name)),
        notes=tuple(found["caveats"]),
        tables=(
            PageTable("What to begin with", texts=_advice(found)),
            _grants(found),
            PageTable("What to measure next", texts=found["next"]),
            _kinds(found, cards[MOST_CARDS:]),
            _ledgers(found),
            _week(found),
            PageTable("What nodes did", ("nodes were", "node-hours", "of the machine"), _causes(log)),
            PageTable("By partition", ("partition", "nodes", "idle"), _partitions(found)),
            PageTable("What was assumed", ("what", "value"), _assumptions(found)),
        ),
        command=found["command"],
    )


def _name_kind(kind: str) -> str:
    return "your tasks" if kind == "own" else f"{kind} models"


def _pictures(found: Mapping[str, Any], kind: Mapping[str, Any], name: str) -> list[Picture]:
    """Pictures of the first side: idle nodes and their use, the ledger, and how stretches of the window differ."""
    reading = "The light area is what the machine left idle, the dark line how many of those nodes did lasting work."
    title = f"What was idle, and what {name} made of it"
    pictures = [
        Picture("window", title, reading, partial(_draw_window, found), 2.3),
        waterfall(kind["ledger"], f", for {name}", _OF_ALL if found["idle"]["mostly_empty"]["node_hours"] else ""),
    ]
    unit = kind["blocks"]["unit"]
    if unit is not None:
        number = len(kind["blocks"]["node_s"])
        reading = f"Useful node-hours as a share of the machine's, in {number} equal stretches of about a {unit}."
        least = "the least share that is worth it"
        least += "" if found["prices"]["price_node_hour"] is None else " without a price"
        reading += f" Dashed gray: {least}. Band: the mean's 95 % interval, of {name}."
        pictures.append(Picture("weeks", f"From {unit} to {unit}", reading, partial(_draw_blocks, found), 1.9))
    return pictures


def _advice(found: Mapping[str, Any]) -> list[str]:
    """Settings to begin with, if harvesting is recommended."""
    best = found["recommended"]
    if best is None:
        return []
    texts = [
        f"Begin with -Tfwd {best['forward_time_s']:g} -maxJ {best['max_tasks']} for {_name_kind(best['kind'])}: each "
        f"decision counts on {best['forward_time_s'] / 60:g} min of work, and at most {best['max_tasks']} tasks run "
        "at once."
    ]
    if len(found["worth_for"]) > 1:
        texts.append(f"Worth it for: {', '.join(found['worth_for'])}.")
    return texts


def _grants(found: Mapping[str, Any]) -> PageTable:
    """What the scheduler could grant; an empty section where that was not computed."""
    if not found["grants"]:
        return PageTable("What you could grant")
    reading = "Useful node-hours with nodes taken as now, and with each grant. Whiskers: 95 % intervals of the change."
    picture = Picture("grants", "Useful node-hours by grant", reading, partial(_draw_grants, found), 1.9)
    return PageTable("What you could grant", texts=[found["grants"]["sentence"]], figure=picture)


def _draw_grants(found: Mapping[str, Any], ax: Axes) -> None:
    """Useful node-hours with each grant, side by side, with the interval of what it changes."""
    grants, kind, ink = found["grants"], _kind(found), palette()
    to_hours = kind["useful_node_hours"] / kind["useful_node_s"]
    names = {"named": "as now", "chosen": "harvester chooses nodes", "notice": "two minutes' notice"}
    for place, name in enumerate(names):
        grant = grants[name]
        hours = to_hours * grant["useful_node_s"]
        ax.bar(place, hours, 0.6, color=ink["blue" if place else "gray"])
        low, high = (None if bound is None else bound - grant["gain"] for bound in grant["gain_ci95"])
        if place and low is not None:
            whisker = [[-low * kind["useful_node_hours"]], [high * kind["useful_node_hours"]]]
            ax.errorbar(place, hours, whisker, color=ink["ink"], capsize=4, linewidth=1.0)
        text = f"{hours:,.0f}" + (f" ({100 * grant['gain']:+.1f} %)" if place else "")
        ax.annotate(text, (place, hours), (0, 10), textcoords="offset points", ha="center")
    ax.set_xticks(range(len(names)), list(names.values()))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    ax.set(ylabel="useful node-hours", xlim=(-0.6, len(names) - 0.4))
    ax.margins(y=0.3)


def _kinds(found: Mapping[str, Any], cards: list[Card]) -> PageTable:
    """Table of kinds of tasks, a row each."""
    price = ["net value"] if found["prices"]["price_node_hour"] is not None else []
    headings = ("tasks", "useful node-hours", "95 %", "of the machine", *price, "-Tfwd, -maxJ")
    headings += ("node starts a day", "interruptions a day", "limited by")
    rows = [_kind_row(kind) for kind in found["kinds"]]
    return PageTable("By kind of models", headings, rows, _DOUBTED if found["verdict"] == "none" else "", cards=cards)


def _ledgers(found: Mapping[str, Any]) -> PageTable:
    """Ledgers of all kinds."""
    kinds, rows = found["kinds"], []
    for part in PARTS:
        if all(part in kind["ledger"] for kind in kinds):
            term = GLOSSARY[f"ledger.{part}"]
            shares = [format_value(kind["ledger"][part], "share") for kind in kinds]
            rows.append([f"{term.label}: {term.meaning}", *shares])
    headings = ("share of idle node-time", *(kind["name"] for kind in kinds))
    return PageTable("Where the idle node-time goes", headings, rows)


def _partitions(found: Mapping[str, Any]) -> list[list[str]]:
    idle = found["idle"]["by_partition"]
    return [[name, f"{each['nodes']:,}", format_value(each["share"], "share")] for name, each in idle.items()]


def _week(found: Mapping[str, Any]) -> PageTable:
    """Mean idle nodes by hour of the week, as a picture."""
    hours = found["idle"]["nodes_by_hour_of_week"]
    most = max((each for each in hours if each is not None), default=0.0)
    reading = "Mean idle nodes in each hour of the week, midnight to midnight UTC, "
    reading += f"from none to {most:,.1f}, the strongest colour."
    picture = Picture("week", "Hours of the week", reading, partial(_draw_week, hours, most or 1.0), 1.9)
    return PageTable("When nodes are idle", figure=picture)


def _draw_week(hours: list[float | None], most: float, ax: Axes) -> None:
    """A row a day, a cell an hour, the stronger the more nodes were idle."""
    from matplotlib.patches import Rectangle

    for place, nodes in enumerate(hours):
        corner = (place % 24, place // 24)
        ax.add_patch(Rectangle(corner, 0.96, 0.92, facecolor=palette()["blue"], alpha=(nodes or 0.0) / most, lw=0))
    ax.set_yticks([day + 0.5 for day in range(7)], _DAYS)
    ax.set_xticks(range(0, 25, 6), [f"{hour}:00" for hour in range(0, 25, 6)])
    ax.set(xlim=(0, 24), ylim=(7, 0))


def _kind(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The kind of tasks that the verdict is about."""
    kind: Mapping[str, Any] = next(each for each in found["kinds"] if each["name"] == found["about"])
    return kind


def _useful_nodes(kind: Mapping[str, Any]) -> Any:
    """Node-seconds that became lasting work in each stretch, checkpoints deducted."""
    saved = kind["useful_node_hours"] * 3600 / kind["useful_node_s"] if kind["useful_node_s"] else 0.0
    return saved * np.array(kind["blocks"]["node_s"])


def _draw_window(found: Mapping[str, Any], ax: Axes) -> None:
    """Idle nodes over the window, and those that did lasting work in each week or day, or on average."""
    log, kind = found["log"], _kind(found)
    nodes = np.array(found["idle"]["nodes_over_window"])
    useful = _useful_nodes(kind) if kind["blocks"]["node_s"] else np.array([kind["useful_node_hours"] * 3600])
    edges_s = [np.linspace(0.0, log["window_s"], values.size + 1) for values in (nodes, useful)]
    useful = np.maximum(useful / np.diff(edges_s[1]), 0.0)
    text = f"useful, a {kind['blocks']['unit']}'s mean" if useful.size > 1 else "useful, on average"
    used = (text, edges_s[1], useful)
    draw_idle(log["window"][0], (edges_s[0], nodes), used, found["idle"]["mean_nodes"], ax, is_exact=False)


def _draw_blocks(found: Mapping[str, Any], ax: Axes) -> None:
    """Useful share of the machine in each stretch of the window, of each kind; the interval of the best one's mean."""
    log, ink = found["log"], palette()
    best, number = _kind(found), len(found["kinds"][0]["blocks"]["node_s"])
    edges = np.linspace(0.0, log["window_s"], number + 1)
    dates = date_of(log["window"][0], (edges[:-1] + edges[1:]) / 2)
    for kind, (color, line, mark) in zip(found["kinds"], _STYLES, strict=False):
        shares = 100 * _useful_nodes(kind) / (log["nodes"] * log["window_s"] / number)
        look = {"color": ink[color], "linestyle": line, "marker": mark, "markersize": 3, "linewidth": 1.2}
        ax.plot(dates, shares, label="your tasks" if kind["name"] == "own" else kind["name"], **look)
        if kind is best:
            low, high = kind["useful_share_ci95"]
            ax.axhspan(100 * low, 100 * high, facecolor=ink[color], alpha=0.2, linewidth=0)
    ax.axhline(100 * found["thresholds"]["worth_share"], color=ink["gray"], linestyle="--", linewidth=0.8)
    ax.set(ylabel="% of nodes", xlim=date_of(log["window"][0], [0.0, log["window_s"]]), ylim=(None, None))
    with_dates(ax)


def _cards(found: Mapping[str, Any]) -> list[Card]:
    """Figures on top: of the best kind, as measured."""
    idle, notes = found["idle"], " ".join(found["log"]["provenance"].get("notes") or [])
    text = f"{idle['mean_nodes']:,.1f} nodes on average"
    if found["log"]["quality"] is None or "when nodes were down" in notes:
        text += ", if none was down: an upper bound"
    cards = [Card("idle", format_value(idle["share"], "share"), f"{text}.")]
    if found["verdict"] == "none":
        return cards
    kind = _kind(found)
    low, high = kind["useful_node_hours_ci95"]
    cards.append(Card("useful node-hours", f"{kind['useful_node_hours']:,.0f}", f"{low:,.0f} to {high:,.0f} (95 %)."))
    text = f"By {kind['name']} tasks; the bar is {format_value(found['thresholds']['worth_share'], 'share')}."
    cards.append(Card("of the machine", format_value(kind["useful_share"], "share"), text))
    more = (
        ("gpu_hours", "GPU-hours", "{:,.0f}", "Useful node-hours times GPUs of a node."),
        (
            "net_value",
            "net value",
            "{:,.0f}",
            "In your currency: worth of the useful node-hours, less energy where its price is given.",
        ),
        (
            "energy_kwh",
            "energy",
            "{:,.0f} kWh",
            "Beyond what idle nodes would draw, at the meter; in the whole window.",
        ),
        ("emissions_kg", "emissions", "{:,.0f} kg CO2", "Of that energy."),
        (
            "node_starts_per_day",
            "node starts a day",
            "{:,.0f}",
            "How often a node is given to a task; each is given back.",
        ),
        ("preemptions_per_day", "interruptions a day", "{:,.0f}", "How often a task loses nodes to the scheduler."),
    )
    known = ((label, form.format(kind[key]), text) for key, label, form, text in more if kind[key] is not None)
    return cards + [Card(*each) for each in known]


def _kind_row(kind: Mapping[str, Any]) -> list[str]:
    low, high = kind["useful_node_hours_ci95"]
    settings = kind["settings"]
    return [
        kind["name"],
        f"{kind['useful_node_hours']:,.0f}",
        "-" if low is None else f"{low:,.0f} to {high:,.0f}",
        format_value(kind["useful_share"], "share"),
        *([] if kind["net_value"] is None else [f"{kind['net_value']:,.0f}"]),
        f"{settings['forward_time_s']:g} s, {settings['max_tasks']}",
        f"{kind['node_starts_per_day']:,.0f}",
        f"{kind['preemptions_per_day']:,.0f}",
        _LIMITS.get(kind["limited_by"], "-"),
    ]


def _causes(log: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Node-hours by what nodes did, and their share of the machine's; causes may overlap."""
    if log["quality"] is None:
        return []
    whole_s = log["nodes"] * log["window_s"]
    found = [*log["quality"]["busy_node_s"].items(), ("idle", log["quality"]["idle_node_s"])]
    return [
        (
            {"job": "busy with jobs"}.get(name, name.replace("_", " ")),
            f"{node_s / 3600:,.0f}",
            format_value(node_s / whole_s, "share"),
        )
        for name, node_s in found
        if node_s
    ]


def _describe_tasks(kind: Mapping[str, Any]) -> str:
    """What is assumed of a kind, in a sentence."""
    given = kind["assumed"]
    if "parameters" not in given:
        return f"{given['tasks']:,} tasks of the site, repeated to {kind['tasks']:,}."
    return (
        f"{given['parameters'] / 1e9:g} billion parameters, "
        f"{given['min_nodes']} to {given['max_nodes']} nodes (Amdahl's law, {100 * given['parallel_fraction']:.4g} % "
        f"parallel), 24 h on the most or more; a start or planned change takes {given['grow_cost_s']:.0f} s, a loss "
        f"{given['shrink_cost_s']:.0f} s, a checkpoint {given['save_s']:.1f} s every "
        f"{given['checkpoint_interval_s']:,.0f} s; {kind['tasks']:,} such tasks."
    )


def _assumptions(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Tasks of each kind, thresholds, prices and sources."""
    provenance = found["log"]["provenance"]
    rows = [(_name_kind(kind["name"]), _describe_tasks(kind)) for kind in found["kinds"]]
    given = {**found, **found["thresholds"], **found["prices"]}
    if given["price_node_hour"] is None:
        given["worth_value"] = None  # it decides nothing then
    rows += [(label, _in_words(given[name], unit)) for name, (label, unit) in _WORDS.items() if given[name] is not None]
    known = (key for key in ("format", "source", "tool", "inventory", "zone") if provenance.get(key) is not None)
    return rows + [(key, str(provenance[key])) for key in known]


def _in_words(value: Any, unit: Unit | None) -> str:
    """An assumed value with its unit, if it has one."""
    if unit is not None:
        return format_value(value, unit)
    return value if isinstance(value, str) else f"{value:,.10g}"
