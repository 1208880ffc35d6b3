"""Where a harvest stands, for people: as text, as rows of a table, and as a page that loads itself anew."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from bftrainer.harvest.controller import Controller
from bftrainer.model import NS_PER_S, iso

_HEADINGS = ("task", "status", "nodes", "work", "done", "work/s", "generation", "failures")
_EVERY_S = 2
_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3em .6em; border-bottom: 1px solid #8884 }
progress { width: 8em } @media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } }"""


def status_of(controller: Controller) -> dict[str, Any]:
    """Where a harvest stands, as plain values."""
    pool, lives = controller.pool, controller.tasks.values()
    return {
        "start_ns": controller.start_ns,
        "time_s": controller.time_s,
        "idle": len(pool.idle),
        "held": sum(not carrier.leaving for carrier in pool.carriers.values()),
        "leaving": sum(carrier.leaving for carrier in pool.carriers.values()),
        "requested": len(pool.requested),
        "closed": pool.closed,
        "tasks": [
            {
                "task": life.name,
                "status": str(life.status),
                "nodes": len(life.nodes),
                "work": life.work,
                "total": life.task.spec.work,
                "saved": life.saved,
                "rate": life.rate if life.current is not None else 0.0,
                "generation": life.generations,
                "failures": life.failures,
                "why": life.why,
                "books": life.books,
                "unmeasured": [name for name in life.books if name not in life.measured_books],
            }
            for life in lives
        ],
    }


def status_text(status: Mapping[str, Any], *, runs: bool) -> str:
    """One line: whether it runs, and how many nodes it has."""
    state = f"over ({status['over']})" if status["over"] else "running" if runs else "not running; to be started again"
    nodes = f"{status['held']} nodes held, {status['leaving']} leaving, {status['requested']} asked for"
    nodes = f"{nodes}, of {status['idle']} idle"
    nodes += ", and no more are taken" if status["closed"] and not status["over"] else ""
    if not runs and not status["over"]:
        nodes = f"the {status['held'] + status['leaving']} nodes that it held are given back without it"
    return f"{state}, {status['time_s']:,.0f} s after it was begun; {nodes}"


def status_rows(status: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows: a task each."""
    rows: list[tuple[str, ...]] = []
    for each in status["tasks"]:
        done = f"{100 * min(1.0, each['work'] / each['total']):.1f} %"
        rate = f"{each['rate']:,.0f}" if each["rate"] >= 1000 else f"{each['rate']:.4g}"
        figures = str(each["nodes"]), f"{each['work']:,.0f}", done, rate
        rows.append((each["task"], each["status"], *figures, str(each["generation"]), str(each["failures"])))
    return _HEADINGS, rows


def status_page(name: str, status: Mapping[str, Any]) -> str:
    """A page without scripts; while the harvest runs it loads itself anew."""
    headings, rows = status_rows(status)
    again = "" if status["over"] else f'<meta http-equiv="refresh" content="{_EVERY_S}">'
    lines = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f"<title>Harvest {escape(name)}</title>{again}<style>{_STYLE}</style></head><body>",
        f"<h1>Harvest {escape(name)}</h1><p>{escape(status_text(status, runs=True))}</p>",
        f"<p>As of {iso(status['start_ns'] + round(status['time_s'] * NS_PER_S))[:19]} UTC.</p><table><tr>",
        *(f'<th scope="col">{escape(each)}</th>' for each in headings),
        "</tr>",
    ]
    for row, each in zip(rows, status["tasks"], strict=True):
        share = min(1.0, each["work"] / each["total"])
        bar = f'<progress value="{share:.4f}" aria-label="work done"></progress> {escape(row[4])}'
        cells = [bar if place == 4 else escape(cell) for place, cell in enumerate(row)]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in reversed(status["notes"]))
    return "\n".join([*lines, f"</table><h2>What happened</h2><ul>{notes}</ul></body></html>\n"])
