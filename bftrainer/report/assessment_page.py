"""Page of an assessment, made of its JSON alone; it needs neither network nor scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer._version import __version__
from bftrainer.report.brief import Brief, Card
from bftrainer.report.drawing import palette
from bftrainer.report.glossary import GLOSSARY, format_value
from bftrainer.report.ledger import PARTS, limit_in_words
from bftrainer.report.page import rendered_page
from bftrainer.report.pictures import Picture, date_of, draw_idle, waterfall, with_dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_CARDS = 6
_LIMITS = {"pool": "idle nodes"} | {part: GLOSSARY[f"ledger.{part}"].label for part in PARTS[1:]}
_STYLES = (("green", "-", "o"), ("blue", "--", "s"), ("purple", ":", "^"))
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TONES = {"green": "good", "amber": "fair", "red": "poor", "gray": "none"}


def assessment_page(found: Mapping[str, Any]) -> str:
    """Make the page of an assessment, which `bftrainer.campaigns.assess.assess` made."""
    log, idle = found["log"], found["idle"]
    best = found["recommended"]
    return rendered_page(
        "assessment.html",
        version=__version__,
        found=found,
        brief=assessment_brief(found),
        tone=_TONES[found["colour"]],
        cards=_cards(found)[_MOST_CARDS:],
        best=best and best | {"called": "your tasks" if best["kind"] == "own" else f"{best['kind']} models"},
        is_priced=found["prices"]["price_node_hour"] is not None,
        kinds=[_kind_row(kind) for kind in found["kinds"]],
        parts=[
            (GLOSSARY[f"ledger.{part}"], [format_value(kind["ledger"][part], "share") for kind in found["kinds"]])
            for part in PARTS
            if all(part in kind["ledger"] for kind in found["kinds"])
        ],
        grants=None if found["grants"] is None else _grants_picture(found).drawn(),
        week=_week(idle["nodes_by_hour_of_week"], log["nodes"]),
        most_idle=max((each for each in idle["nodes_by_hour_of_week"] if each is not None), default=0.0),
        causes=_causes(log),
        partitions=[
            (name, f"{each['nodes']:,}", format_value(each["share"], "share"))
            for name, each in idle["by_partition"].items()
        ],
        assumed=[_assumed(kind) for kind in found["kinds"]],
        made=_made(found),
    )


def assessment_brief(found: Mapping[str, Any]) -> Brief:
    """Make the brief of an assessment: its verdict, and the pictures of the kind that it is about."""
    log, kind = found["log"], _kind(found)
    name = "your tasks" if kind["name"] == "own" else f"{kind['name']} models"
    ledger = waterfall(kind["ledger"])
    pictures = [
        Picture(
            "window",
            f"What was idle, and what {name} made of it",
            "The light area is what the machine left idle, the dark line how many of those nodes did lasting work.",
            partial(_draw_window, found),
            2.3,
        ),
        replace(ledger, title=f"{ledger.title}, for {name}"),
    ]
    unit = kind["blocks"]["unit"]
    if unit is not None:
        number = len(kind["blocks"]["node_s"])
        reading = f"Useful node-hours as a share of the machine's, in {number} equal stretches of about a {unit}."
        least = "the least share that is worth it"
        least += "" if found["prices"]["price_node_hour"] is None else " without a price"
        reading += f" Dashed gray: {least}. Band: the mean's 95 % interval, of {name}."
        pictures.append(Picture("weeks", f"From {unit} to {unit}", reading, partial(_draw_blocks, found), 1.9))
    return Brief(
        "assessment",
        "Is harvesting worth it here?",
        f"{log['nodes']:,} nodes, {log['window'][0][:16]} to {log['window'][1][:16]} UTC",
        " ".join(_sentences(found, kind, name)),
        tuple(_cards(found)[:_MOST_CARDS]),
        tuple(found["caveats"]),
        kind["ledger"],
        tuple(pictures),
        found["command"],
    )


def _sentences(found: Mapping[str, Any], kind: Mapping[str, Any], name: str) -> list[str]:
    """What stands on top: the verdict, what it does not count, and what limits the kind."""
    limit = limit_in_words(kind)
    sentences = [found["sentence"], found["mostly_empty"]]
    sentences.append(None if limit is None else f"What limits {name}: {limit}.")
    return [sentence for sentence in sentences if sentence is not None]


def _grants_picture(found: Mapping[str, Any]) -> Picture:
    """What the scheduler could grant, as three bars."""
    reading = "Useful node-hours with nodes taken as now, and with each grant. Whiskers: 95 % intervals of the change."
    return Picture("grants", "What you could grant", reading, partial(_draw_grants, found), 1.9)


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
            ax.errorbar(place, hours, whisker, color="black", capsize=4, linewidth=1.0)
        text = f"{hours:,.0f}" + (f" ({100 * grant['gain']:+.1f} %)" if place else "")
        ax.annotate(text, (place, hours), (0, 10), textcoords="offset points", ha="center")
    ax.set_xticks(range(len(names)), list(names.values()))
    ax.set(ylabel="useful node-hours", xlim=(-0.6, len(names) - 0.4))
    ax.margins(y=0.3)


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
    text = f"By {kind['name']} tasks; the bar is 1 %."
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


def _week(hours: list[float | None], nodes: int) -> list[tuple[str, list[tuple[int, str]]]]:
    """Rows of days: for each hour the strength of its colour in percent, and words."""
    most = max((each for each in hours if each is not None), default=0.0) or 1.0
    rows = []
    for day, name in enumerate(_DAYS):
        cells = []
        for hour, value in enumerate(hours[24 * day : 24 * day + 24]):
            said = "not in the window" if value is None else f"{value:,.1f} nodes ({100 * value / nodes:.1f} %)"
            cells.append((0 if value is None else round(100 * value / most), f"{name} {hour}:00: {said}"))
        rows.append((name, cells))
    return rows


def _causes(log: Mapping[str, Any]) -> list[tuple[str, str, str]]:
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


def _assumed(kind: Mapping[str, Any]) -> str:
    """What is assumed of a kind, in a sentence."""
    given = kind["assumed"]
    if "parameters" not in given:
        return f"{kind['name']}: {given['tasks']:,} tasks of the site, repeated to {kind['tasks']:,}."
    return (
        f"{kind['name']}: {given['parameters'] / 1e9:g} billion parameters, "
        f"{given['min_nodes']} to {given['max_nodes']} nodes (Amdahl's law, {100 * given['parallel_fraction']:.4g} % "
        f"parallel), 24 h on the most or more; a start or planned change takes {given['grow_cost_s']:.0f} s, a loss "
        f"{given['shrink_cost_s']:.0f} s, a checkpoint {given['save_s']:.1f} s every "
        f"{given['checkpoint_interval_s']:,.0f} s; {kind['tasks']:,} such tasks."
    )


def _made(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How it was made: thresholds, prices, sources."""
    provenance = found["log"]["provenance"]
    rows = [(name.replace("_", " "), str(value)) for name, value in found["thresholds"].items()]
    rows += [(name.replace("_", " "), str(value)) for name, value in found["prices"].items() if value is not None]
    rows += [(name.replace("_", " "), str(found[name])) for name in ("offer_after_s", "solver", "startup_cost")]
    known = (key for key in ("format", "source", "tool", "inventory", "zone") if provenance.get(key) is not None)
    return rows + [(key, str(provenance[key])) for key in known]
