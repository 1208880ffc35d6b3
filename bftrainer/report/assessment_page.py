"""Page of an assessment, made of its JSON alone; it needs neither network nor scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bftrainer.report.glossary import GLOSSARY, format_value
from bftrainer.report.ledger import PARTS
from bftrainer.report.page import rendered_page

_COLORS = ("green", "orange", "red", "purple", "sky", "gray", "ink", "soft", "gantt1", "amber")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TONES = {"worth it": "good", "only for some": "fair", "not worth it": "poor", "none": "none"}


def assessment_page(found: Mapping[str, Any]) -> str:
    """Make the page of an assessment, which `bftrainer.campaigns.assess.assess` made."""
    log, idle = found["log"], found["idle"]
    best = found["recommended"]
    return rendered_page(
        "assessment.html",
        found=found,
        tone=_TONES[found["verdict"]],
        subtitle=f"{log['nodes']:,} nodes, {log['window'][0][:16]} to {log['window'][1][:16]} UTC",
        cards=_cards(found),
        best=best and best | {"called": "your tasks" if best["kind"] == "own" else f"{best['kind']} models"},
        is_priced=found["prices"]["price_node_hour"] is not None,
        kinds=[_kind_row(kind) for kind in found["kinds"]],
        bars=[_bar(kind) for kind in found["kinds"]],
        parts=[(GLOSSARY[f"ledger.{part}"], color) for part, color in zip(PARTS, _COLORS, strict=True)],
        blocks=_blocks(found),
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


def _cards(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and meaning of the figures on top: of the best kind, as measured."""
    idle, notes = found["idle"], " ".join(found["log"]["provenance"].get("notes") or [])
    text = f"{idle['mean_nodes']:,.1f} nodes on average"
    if found["log"]["quality"] is None or "when nodes were down" in notes:
        text += ", if none was down: an upper bound"
    cards = [("idle", format_value(idle["share"], "share"), f"{text}.")]
    if found["verdict"] == "none":
        return cards
    name = (found["recommended"] or {}).get("kind")
    kind = next((each for each in found["kinds"] if each["name"] == name), None)
    kind = kind or max(found["kinds"], key=lambda each: each["useful_share"])
    low, high = kind["useful_node_hours_ci95"]
    cards.append(("useful node-hours", f"{kind['useful_node_hours']:,.0f}", f"{low:,.0f} to {high:,.0f} (95 %)."))
    cards.append(
        (
            "of the machine",
            format_value(kind["useful_share"], "share"),
            f"By {kind['name']} tasks, in the whole window.",
        )
    )
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
    return cards + [(label, form.format(kind[key]), text) for key, label, form, text in more if kind[key] is not None]


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
        {"pool": "idle nodes", "demand": "tasks", "admission": "-maxJ"}.get(kind["limited_by"], "-"),
    ]


def _bar(kind: Mapping[str, Any]) -> dict[str, Any]:
    """Bar of a kind's ledger, in percent; what is negative has no length, and is in the table."""
    place, pieces = 0.0, []
    for part, color in zip(PARTS, _COLORS, strict=True):
        share = max(0.0, 100 * (kind["ledger"][part] or 0.0))
        if share > 0.005:
            pieces.append(
                (round(place, 3), round(share, 3), color, f"{GLOSSARY[f'ledger.{part}'].label} {share:.2f} %")
            )
        place += share
    scale = max(100.0, place)
    shares = [format_value(kind["ledger"][part], "share") for part in PARTS]
    return {"name": kind["name"], "pieces": pieces, "scale": round(scale, 3), "shares": shares}


def _blocks(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Useful share of the machine in each stretch of the window, of each kind, for a chart."""
    first = found["kinds"][0]["blocks"]
    if not first["node_s"]:
        return None
    number = len(first["node_s"])
    machine_s = found["log"]["nodes"] * found["log"]["window_s"] / number
    lines = []
    for kind, color in zip(found["kinds"], ("green", "blue", "purple"), strict=False):
        saved = kind["useful_node_hours"] * 3600 / kind["useful_node_s"] if kind["useful_node_s"] else 0.0
        lines.append((kind["name"], color, [100 * saved * node_s / machine_s for node_s in kind["blocks"]["node_s"]]))
    most = max(1e-9, *(max(shares) for _, _, shares in lines), 100 * found["thresholds"]["worth_share"])
    least = min(0.0, *(min(shares) for _, _, shares in lines))

    def height(share: float) -> float:
        """Place on the chart, from the top."""
        return float(round(160 - 150 * (share - least) / (most - least), 2))

    drawn = [
        (
            name,
            color,
            " ".join(
                f"{round(1000 * (place + 0.5) / number, 2)},{height(share)}" for place, share in enumerate(shares)
            ),
        )
        for name, color, shares in lines
    ]
    return {
        "unit": first["unit"],
        "number": number,
        "window": [time[:10] for time in found["log"]["window"]],
        "lines": drawn,
        "threshold": height(100 * found["thresholds"]["worth_share"]),
        "most": f"{most:.3g} %",
        "least": f"{least:.3g} %",
    }


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
