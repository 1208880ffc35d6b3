"""Figures of finished runs: charts of the page's script, pictures, and figures for print with data and a caption.

Runs that differ in seeds alone are one line, with a confidence interval. `print_figure` makes files of print figures.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError, escape_text, suggestion
from bftrainer.report.comparison import figures_of, group_seeds, input_files, setting_label
from bftrainer.report.drawing import (
    MARKERS,
    SERIES,
    PrintFigure,
    Sheet,
    date_of,
    label_dates,
    line_look,
    palette,
    plain,
    put_legend,
    wrap_label,
    write_instead,
)
from bftrainer.report.finished_run import FinishedRun, Floats, machine_in_words, short_names, thin_steps
from bftrainer.report.glossary import (
    ASSUMED,
    format_value,
    is_assumed,
    scale_axis,
    scaling_note,
    suggest_metrics,
)
from bftrainer.report.ledger import FREE, HELD, PARTS
from bftrainer.report.metrics import estimate
from bftrainer.report.page import Picture, Timeline
from bftrainer.terms import GLOSSARY, term_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOUR_S = 3600.0
# Colour and hatching of the shares of the ledger: what became work is solid.
_LOOKS = (
    *(("green", ""), ("orange", "/////"), ("red", "\\\\\\\\\\"), ("purple", ".....")),
    *(("blue", "//"), ("sky", "xxxxx")),
    *(("gray", "-----"), ("ink", "|||||"), ("gantt4", "+++++"), ("gantt2", "....."), ("gantt1", "")),
)
# With more runs than colours, lines differ in their dashes.
_GAPS = ((), (6, 3), (2, 2), (8, 3, 2, 3))
MOST_POINTS = 40_000
"""Points that all lines may have, roughly; of more the outline is drawn."""
MOST_SPANS = 100_000
"""Intervals of all runs of a page; of more, those of a task that are close are joined."""
_LEAST_SHARE = 5e-5
_PAGE_POINTS, _POINTS, _NAME, _MOST_SPANS, _MOST_NAMED = 300, 600, 40, 20_000, 40
_NO_LEDGER = "No idle node-time, or no ledger of it."


def timeline_of(runs: Sequence[FinishedRun]) -> Timeline:
    """Idle and used nodes of runs over time, and spans in which their tasks held nodes."""
    notes: list[str] = []
    starts, zones = {run.summary["window_start"] for run in runs}, {str(run.zone) for run in runs}
    is_one = len(starts) == 1
    encoded = []
    for run in runs:
        spans = run.holdings.spans(run.window_s)
        joined = spans.join(MOST_SPANS // len(runs), run.window_s)
        if joined.begin_s.size < spans.begin_s.size:
            numbers = f"{spans.begin_s.size:,} intervals of tasks are joined to {joined.begin_s.size:,}"
            notes.append(f"{run.name}: for the screen, {numbers}.")
        lengths = joined.end_s - joined.begin_s
        columns = {"begin": joined.begin_s, "length": lengths, "task": joined.task, "nodes": joined.nodes}
        encoded.append({"tasks": run.tasks["name"].tolist(), "spans": columns})
    data: dict[str, Any] = {
        "start": datetime.fromisoformat(starts.pop()[:19]).replace(tzinfo=UTC).timestamp() if is_one else None,
        "zone": zones.pop() if len(zones) == 1 else "UTC",
        "window": max(run.window_s for run in runs),
        "lines": list(pool_lines(runs)),
        "runs": encoded,
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), default=_encode)
    return Timeline(base64.b64encode(zlib.compress(text.encode(), 9)).decode(), [run.name for run in runs], notes)


def _encode(values: Floats) -> list[Any]:
    """Numbers of three decimals at most, whole ones without."""
    return [int(value) if value % 1 == 0 else value for value in values.round(3).tolist()]


def pool_lines(runs: Sequence[FinishedRun]) -> Iterator[dict[str, Any]]:
    """Lines of idle nodes and of nodes that tasks hold: each value lasts until the next time; colours of style.css."""
    runs = short_names(runs)
    for column in ("idle", "used"):
        for place, run in enumerate(runs):
            time_s, nodes = (run.steps[name].astype(np.float64) for name in ("time_s", column))
            rows = thin_steps(time_s, [nodes], run.window_s, max(500, MOST_POINTS // 2 // len(runs)))
            value = np.append(nodes[rows], nodes[rows][-1:])
            yield {
                "name": column if len(runs) == 1 else f"{run.name}: {column}",
                "time": np.append(time_s[rows], run.window_s)[: value.size],
                "value": value,
                "color": "gray" if column == "idle" else SERIES[place % 5],
                "dash": _GAPS[place // 5 % len(_GAPS)],
                "fill": column == "idle" and place == 0,
            }


def draw_window(run: FinishedRun, ax: Axes) -> None:
    """Idle nodes and nodes of tasks by date."""
    if not run.steps["time_s"].size:
        write_instead("No event.", ax)
        return
    time_s, idle, used = _thin_pool(run, _PAGE_POINTS)
    dates = date_of(run.summary["window_start"], np.append(time_s, run.window_s))
    draw_idle(ax, dates, idle, run.summary.get("eq_nodes") or 0.0)
    ax.stairs(used, dates, fill=True, color=palette()["blue"], linewidth=0, label="held by tasks")
    label_dates(ax, run.zone)


def _thin_pool(run: FinishedRun, width: int) -> list[NDArray[Any]]:
    """Times, idle nodes and nodes of tasks that a picture so many points wide can show."""
    columns = [run.steps[name] for name in ("time_s", "idle", "used")]
    rows = thin_steps(columns[0], columns[1:], run.window_s, width)
    return [column[rows] for column in columns]


def draw_idle(ax: Axes, dates: Floats, nodes: NDArray[Any], mean: float) -> None:
    """Draw numbers of idle nodes between dates, as matplotlib counts them, and their mean."""
    ink = palette()
    ax.stairs(nodes, dates, fill=True, color=ink["sky"], alpha=0.3, linewidth=0, label="idle nodes")
    ax.axhline(mean, color=ink["ink"], linewidth=0.8, linestyle="--", label=f"{mean:,.1f} idle on average")
    ax.set(ylabel="nodes", ylim=(0, None), xlim=(dates[0], dates[-1]))


def ledger_picture(ledger: Mapping[str, Any], suffix: str = "", not_counted: float | None = None) -> Picture:
    """The waterfall of a ledger, and its numbers in words; of the useful part some may be `not_counted`."""
    reading = (
        "From all idle node-time, each bar takes away a part that did not become lasting work; the rest is useful."
    )
    shares = [(GLOSSARY[f"ledger.{name}"].label, ledger[name]) for name in PARTS if ledger.get(name) is not None]
    if not_counted is not None and ledger.get("useful") is not None:
        reading += (
            " Shares are of all idle time; what was useful while the machine stood mostly empty is not counted above."
        )
        shares[:1] = [("useful", ledger["useful"] - not_counted), ("useful, not counted", not_counted)]
    words = ", ".join(f"{label} {format_value(share, 'share')}" for label, share in shares)
    title, draw = f"Where the idle node-time went{suffix}", partial(draw_ledger, ledger, not_counted=not_counted or 0.0)
    return Picture("ledger", title, reading, draw, 2.9, f"{words}." if words else "")


def draw_ledger(ledger: Mapping[str, Any], ax: Axes, not_counted: float = 0.0) -> None:
    """Waterfall of the idle node-time: free node-time, then losses of tasks; the rest is useful, counted or not."""
    if ledger.get("useful") is None:
        write_instead(_NO_LEDGER, ax)
        return
    ink, begin = palette(), 100.0
    bars = [("idle node-time", 0.0, 100.0, ink["soft"], "")]
    for name in (*FREE, *HELD[1:]):
        if abs(share := ledger.get(name) or 0.0) >= _LEAST_SHARE:
            begin -= 100 * share
            bars.append((GLOSSARY[f"ledger.{name}"].label, begin, 100 * share, ink["orange"], "////"))
    counted = float(ledger["useful"]) - not_counted
    if not_counted:
        bars.append(("useful, not counted", 100 * counted, 100 * not_counted, ink["gray"], ""))
    bars.append(("useful", 0.0, 100 * counted, ink["green"], ""))
    for row, (_, edge, width, color, hatch) in enumerate(bars):
        fill = "none" if hatch else color
        ax.barh(row, width, left=edge, color=fill, edgecolor=color, hatch=hatch, linewidth=0.8)
        ax.text(max(edge + width, edge) + 1, row, f"{width:.2f} %", va="center")
    ax.set_yticks(range(len(bars)), [label for label, *_ in bars])
    ax.set(ylim=(len(bars) - 0.4, -0.6), xlim=(min(0.0, begin), 112), xlabel="share of the idle node-time (%)")


def losses_picture(runs: Sequence[FinishedRun]) -> Picture:
    """Ledgers of several runs, a bar each."""
    shares = {name: [_ledger_percent(run, name) or 0.0 for run in runs] for name in PARTS}
    draw = partial(_draw_bars, [plain(run.name) for run in short_names(runs)], shares)
    reading = "Each node-second that was idle, once: useful, lost by tasks, or left free, and why."
    return Picture("losses", "Where the idle node-time went", reading, draw, 2.2 + 0.35 * len(runs))


def _draw_bars(labels: Sequence[str], shares: Mapping[str, Sequence[float]], ax: Axes) -> None:
    """Bars of the ledger's shares (%), side by side, a row for each label; they differ in hatching too."""
    ink, edge = palette(), np.zeros(len(labels))
    for (name, values), (color, hatch) in zip(shares.items(), _LOOKS, strict=True):
        amount = np.round(values, 6)
        if amount.any():
            look = {"facecolor": ink["page" if hatch else color], "edgecolor": ink[color], "hatch": hatch}
            ax.barh(range(len(labels)), amount, left=edge, label=GLOSSARY[f"ledger.{name}"].label, **look)
        edge = edge + amount
    if not ax.containers:
        write_instead(_NO_LEDGER, ax)
        return
    ax.set_yticks(range(len(labels)), labels)
    ax.set(xlabel="idle node-time (%)", ylim=(len(labels) - 0.5, -0.5))
    put_legend(ax)


def _ledger_percent(run: FinishedRun, name: str) -> float | None:
    share = (run.summary.get("ledger") or {}).get(name)
    return None if share is None else 100.0 * share


def plot_losses(runs: Sequence[FinishedRun], sheet: Sheet) -> PrintFigure:
    """Plot the ledger of the idle node-time, a bar a run: `SettingsError` if a run has none, as without idle nodes."""
    for run in runs:
        if _ledger_percent(run, "useful") is None:
            raise SettingsError(f"{run.name}: The run has no ledger of its idle node-time, or no idle nodes.")
    groups = _group_seeds(runs)
    labels = [f"{text}, {len(some)} seeds".lstrip(", ") if some[1:] else text for (text, _), some in groups.items()]
    shares = {
        name: [estimate([_ledger_percent(run, name) or 0.0 for run in some]) for some in groups.values()]
        for name in PARTS
    }
    figure = sheet.figure(20 + 8 * len(groups))
    ax = figure.add_subplot()
    names = [wrap_label(label, min(_NAME, sheet.letters(0.35))) for label in labels]
    _draw_bars(names, {name: [share.mean for share in row] for name, row in shares.items()}, ax)
    for row, useful in enumerate(shares["useful"]):
        if useful.half_width:
            ax.errorbar(useful.mean, row, xerr=useful.half_width, color=palette()["ink"], capsize=2)
    rows = [
        (label, shares[name][n].number, name, shares[name][n].mean, shares[name][n].half_width)
        for n, label in enumerate(labels)
        for name in PARTS
    ]
    lead = "Where the idle node-time went, each node-second once; all of it is 100 %"
    columns = ("run", "seeds", "part", "share_percent", "half_width")
    return _finish(PrintFigure(figure, columns, rows, lead), sheet, runs, "ledger.useful", len(groups) < len(runs))


def _group_seeds(runs: Sequence[FinishedRun], apart: str = "") -> dict[tuple[str, Any], list[FinishedRun]]:
    """Runs that differ in seeds alone, as `group_seeds` has their places."""
    groups = group_seeds([run.name for run in runs], [run.summary for run in runs], apart)
    return {key: [runs[place] for place in places] for key, places in groups.items()}


def plot_pool(runs: Sequence[FinishedRun], sheet: Sheet) -> PrintFigure:
    """Idle nodes and nodes of tasks over time, a panel for each run: `SettingsError` if one has no event."""
    ink, rows = palette(), list[tuple[Any, ...]]()
    figure = sheet.figure(10 + len(runs) * max(14.0, min(0.36 * sheet.width_mm, 150.0 / len(runs))))
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for ax, run in zip(panels, runs, strict=True):
        if not run.steps["time_s"].size:
            raise SettingsError(f"{run.name}: The run ended before its first event.")
        time_s, idle, used = _thin_pool(run, _POINTS)
        edges = np.append(time_s, run.window_s) / HOUR_S
        ax.stairs(idle, edges, fill=True, color=ink["rule"], linewidth=0, label="idle")
        ax.stairs(used, edges, fill=True, color=ink["blue"], label="held by tasks")
        if len(runs) > 1:
            ax.set_title(plain(run.name, sheet.letters(0.75)))
        ax.set(ylabel="nodes", ylim=(0, None))
        rows += ((run.name, *row) for row in zip(time_s.tolist(), idle.tolist(), used.tolist(), strict=True))
    panels[-1].set(xlabel="time (h)", xlim=(0, max(run.window_s for run in runs) / HOUR_S))
    put_legend(panels[0])
    lead = "Idle nodes (light) and those that training tasks held (dark) over time"
    lead += "; panels have scales of their own" * (len(runs) > 1)
    return _finish(PrintFigure(figure, ("run", "time_s", "idle", "used"), rows, lead), sheet, runs, "used_node_s")


def plot_allocation(run: FinishedRun, sheet: Sheet) -> PrintFigure:
    """Gantt chart: a row per task in order of their start, darker with more nodes."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import ListedColormap

    spans = run.holdings.spans(run.window_s)
    shown, tasks = spans.join(_MOST_SPANS, run.window_s), np.unique(spans.task)
    order = tasks[np.argsort(run.tasks["started_s"][tasks], kind="stable")]  # NaN come last
    rank = np.zeros(len(run.tasks["name"]), dtype=np.int64)
    rank[order] = np.arange(tasks.size)
    figure = sheet.figure(max(52.0, min(12 + 3.4 * tasks.size, 0.8 * sheet.width_mm)))
    ax = figure.add_subplot()
    shades = ListedColormap([palette()[f"gantt{number}"] for number in (1, 2, 3, 4)])
    x0, x1, row = shown.begin_s / HOUR_S, shown.end_s / HOUR_S, rank[shown.task]
    low, high = row - 0.42, row + 0.42
    corners = np.stack((np.stack((x0, x0, x1, x1), 1), np.stack((low, high, high, low), 1)), 2)
    bars = PolyCollection(corners, array=shown.nodes, cmap=shades, linewidth=0)
    ax.add_collection(bars)
    ax.set(xlabel="time (h)", xlim=(0, run.window_s / HOUR_S), ylim=(max(tasks.size, 1) - 0.5, -0.5))
    ax.set_ylabel("tasks, in order of their start")
    if tasks.size <= _MOST_NAMED:
        names = [plain(str(name), min(24, sheet.letters(0.3))) for name in run.tasks["name"][order]]
        ax.set_yticks(range(tasks.size), names)
    if tasks.size:
        figure.colorbar(bars, ax=ax, label="nodes")
    columns = (run.tasks["name"][shown.task], shown.begin_s, shown.end_s, shown.nodes)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    lead = "Tasks in order of their start, coloured while they held nodes, the darker the more"
    if shown.begin_s.size < spans.begin_s.size:
        lead += f"; {spans.begin_s.size:,} spans are joined to {shown.begin_s.size:,} with their mean number of nodes"
    return _finish(PrintFigure(figure, ("task", "begin_s", "end_s", "nodes"), rows, lead), sheet, [run], "used_node_s")


def plot_setting(runs: Sequence[FinishedRun], setting: str, key: str, sheet: Sheet) -> PrintFigure:
    """Plot a metric against a setting, a line for runs that are alike otherwise: `SettingsError` if one lacks it."""
    size, label = scale_axis([_metric_at(run, setting, key) for run in runs], term_of(key))
    groups = _group_seeds(runs, setting)
    points: dict[str, list[tuple[Any, float, float | None, int]]] = {}
    for (text, x), some in groups.items():
        mean = estimate([_metric_at(run, setting, key) / size for run in some])
        points.setdefault(text, []).append((x, mean.mean, mean.half_width, mean.number))
    figure = sheet.figure(max(42.0, 0.5 * sheet.width_mm))
    ax = figure.add_subplot()
    xs = {x for line in points.values() for x, *_ in line}
    is_number = all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)
    for number, (name, line) in enumerate(points.items()):
        at, means, half, _ = zip(*(sorted(line, key=lambda point: point[:2]) if is_number else line), strict=True)
        look = line_look(number) | {"marker": MARKERS[number % len(MARKERS)], "capsize": 2, "label": plain(name, _NAME)}
        if not is_number:
            at = tuple(plain(str(x), sheet.letters(0.8 / len(xs))) for x in at)
            look["linestyle"] = ""
        ax.errorbar(at, means, np.array(half, dtype=np.float64), **look)
    ax.set(xlabel=setting_label(setting), ylabel=label)
    if len(points) > 1:
        put_legend(ax)
    rows = [(name, *point) for name, line in points.items() for point in line]
    columns = ("line", setting, f"{key}{label.removeprefix(term_of(key).label)}", "half_width", "runs")
    lead = f"{term_of(key).label[0].upper()}{term_of(key).label[1:]} against {setting_label(setting)}"
    return _finish(PrintFigure(figure, columns, rows, lead), sheet, runs, key, len(groups) < len(runs))


def _metric_at(run: FinishedRun, setting: str, key: str) -> float:
    """A metric of a run that has the setting."""
    settings, figures = run.summary["settings"], figures_of(run.summary)
    if setting not in settings:
        raise SettingsError(f"Expected a setting of the runs, got {setting!r}.{suggestion(setting, settings)}")
    if key not in figures:
        raise SettingsError(f"Expected a figure of the runs, got {key!r}.{suggest_metrics(key, figures)}")
    value = figures[key]
    if value is None:
        raise SettingsError(f"{run.name}: The run has no {term_of(key).label} (as with --no-baseline, say).")
    return value


def _finish(
    drawn: PrintFigure, sheet: Sheet, runs: Sequence[FinishedRun], key: str, has_intervals: bool = False
) -> PrintFigure:
    """Add a caption with node logs, machine and window, and the assumption of runs, if the metric rests on it."""
    notes = {run.name: scaling_note(run.summary) for run in runs if is_assumed(run.summary, key)}
    paths = {file["path"] for run in runs for file in input_files(run.summary).get("node_log", ())}
    logs, machines = sorted({escape_text(PurePath(path).name) for path in paths}), {*map(machine_in_words, runs)}
    lead = f"Replay of {logs[0]}" if len(logs) == 1 else f"Replays of {len(logs) or 'other'} node logs"
    texts = [f"{drawn.caption}.", f"{', '.join([lead, *machines]) if len(machines) == 1 else lead}."]
    if has_intervals:
        texts.append("Whiskers are 95 % confidence intervals of the mean over seeds (Student's t).")
    if notes:
        of = "" if len(runs) == 1 else f" ({', '.join(notes)})"
        drawn.figure.suptitle(wrap_label(f"{ASSUMED}{of}", sheet.letters(0.9)), x=0.01, ha="left")
        drawn.figure.set_figheight(drawn.figure.get_figheight() + 0.15)
        texts += [f"Rests on {ASSUMED}{of}: {note}." for note in dict.fromkeys(notes.values())]
    return PrintFigure(drawn.figure, drawn.columns, drawn.rows, " ".join(texts))
