"""Figures of finished runs for print, each with its data and a caption; runs that differ in seeds alone are one.

Each is a function of runs and the sheet that it is drawn on; `printed` makes files of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError, escaped, suggestion
from bftrainer.report.comparison import Alike, alike, figures_of, input_files, setting_label
from bftrainer.report.drawing import PART_LOOKS, PrintFigure, Sheet, legend_above, line_look, palette, plain, wrapped
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption, scale, term_of
from bftrainer.report.intervals import estimate
from bftrainer.report.ledger import PARTS, ledger_share
from bftrainer.report.thinning import TaskSpans, join_spans, thin_steps

HOUR_S = 3600.0
_COMPARED = ("efficiency", "loss_variability_share", "loss_horizon_share")
_POINTS, _BINS, _NAME, _MOST_SPANS, _MOST_NAMED = 600, 200, 40, 20_000, 40
_MARKERS = "osD^vPX*"
_INTERVALS = "Bands and whiskers are 95 % confidence intervals of the mean over seeds (Student's t)."


def plot_pool(runs: Sequence[FinishedRun], sheet: Sheet) -> PrintFigure:
    """Idle nodes, and those that tasks hold, over time; a panel for each run, or for runs that differ in seeds."""
    ink, groups = palette(), _alike(runs)
    series = [_over_time([runs[place] for place in group.places]) for group in groups]
    figure = sheet.figure(10 + len(groups) * max(14.0, min(0.36 * sheet.width_mm, 150.0 / len(groups))))
    most = [max(each["idle"].max(), 1) for each in series]
    is_like = max(most) < 4 * min(most)
    panels = figure.subplots(len(groups), 1, sharex=True, sharey=is_like, squeeze=False)[:, 0]
    rows: list[tuple[Any, ...]] = []
    for ax, group, each in zip(panels, groups, series, strict=True):
        edges, idle, used, half = (each[name] for name in ("edges", "idle", "used", "half"))
        ax.stairs(idle, edges, fill=True, color=ink["rule"], linewidth=0, label="idle")
        ax.stairs(used, edges, fill=half is None, color=ink["blue"], label="held by tasks")
        if half is not None:
            band = [np.append(end, end[-1:]).clip(min=0.0) for end in (used - half, used + half)]
            ax.fill_between(edges, *band, step="post", color=ink["blue"], alpha=0.35, linewidth=0)
        if len(groups) > 1:
            ax.set_title(plain(group.label, sheet.letters(0.75)))
        ax.set(ylabel="nodes")
        widths = [None] * used.size if half is None else half.tolist()
        cells = zip((edges[:-1] * HOUR_S).tolist(), idle.tolist(), used.tolist(), widths, strict=True)
        rows += [(group.label, len(group.places), *row) for row in cells]
    for ax in panels:  # once all is drawn: a limit that is set ends autoscaling of the panels that share the axis
        ax.set(ylim=(0, None))
    panels[-1].set(xlabel="time (h)", xlim=(0, max(run.window_s for run in runs) / HOUR_S))
    legend_above(figure, *panels[0].get_legend_handles_labels())
    lead = "Idle nodes (light) and those that training tasks held (dark) over time"
    lead += "" if is_like else "; panels have scales of their own"
    columns = ("run", "seeds", "time_s", "idle", "used", "used_half_width")
    return _finish(PrintFigure(figure, columns, rows, lead), sheet, runs, groups, "used_node_s")


def _over_time(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Hours of edges, idle and held nodes between them, and half an interval of the latter; None for a single run.

    Of a single run, the extremes of many short pieces are kept; of several, there are means over pieces of the time.
    """
    for run in runs:
        if not run.steps["time_s"].size:
            raise SettingsError(f"{run.name}: The run ended before its first event.")
    if len(runs) == 1:
        time_s, idle, used = (runs[0].steps[name] for name in ("time_s", "idle", "used"))
        kept = thin_steps(time_s, [idle, used], runs[0].window_s, _POINTS)
        edges = np.append(time_s[kept], runs[0].window_s) / HOUR_S
        return {"edges": edges, "idle": idle[kept], "used": used[kept], "half": None}
    edges_s = np.linspace(0.0, min(run.window_s for run in runs), _BINS + 1)
    idle, used = (np.array([_means(run, name, edges_s) for run in runs]) for name in ("idle", "used"))
    half = np.array([estimate(column).half_width for column in used.T.tolist()])
    return {"edges": edges_s / HOUR_S, "idle": idle.mean(axis=0), "used": used.mean(axis=0), "half": half}


def _means(run: FinishedRun, name: str, edges_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean number of nodes between times."""
    time_s = np.append(run.steps["time_s"], run.window_s)
    sums = np.append(0.0, np.cumsum(run.steps[name] * np.diff(time_s)))
    return np.asarray(np.diff(np.interp(edges_s, time_s, sums)) / np.diff(edges_s))


def plot_allocation(run: FinishedRun, sheet: Sheet) -> PrintFigure:
    """Gantt chart: a row per task in order of their start, darker with more nodes."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import ListedColormap

    begin, end, task, nodes = run.holdings.spans(run.window_s)
    held = np.unique(task)
    spans = join_spans(TaskSpans(begin, end, task, nodes.astype(np.float64)), _MOST_SPANS, run.window_s)
    started = run.tasks["started_s"][held]
    order = held[np.argsort(np.where(np.isnan(started), np.inf, started), kind="stable")]
    rank = np.zeros(len(run.tasks["name"]), dtype=np.int64)
    rank[order] = np.arange(held.size)
    figure = sheet.figure(max(52.0, min(12 + 3.4 * held.size, 0.8 * sheet.width_mm)))
    ax = figure.add_subplot()
    left, right, row = spans.begin_s / HOUR_S, spans.end_s / HOUR_S, rank[spans.task]
    low, high = row - 0.42, row + 0.42
    corners = np.stack((np.stack((left, left, right, right), 1), np.stack((low, high, high, low), 1)), 2)
    shades = ListedColormap([palette()[f"gantt{number}"] for number in (1, 2, 3, 4)])
    bars = PolyCollection(corners, array=spans.nodes, cmap=shades, linewidth=0)
    ax.add_collection(bars)
    ax.set(xlabel="time (h)", xlim=(0, run.window_s / HOUR_S), ylim=(max(held.size, 1) - 0.5, -0.5))
    if held.size <= _MOST_NAMED:
        names = [plain(str(name), min(24, sheet.letters(0.3))) for name in run.tasks["name"][order]]
        ax.set_yticks(range(held.size), names)
    else:
        ax.set_ylabel("tasks, in order of their start")
    if held.size:
        figure.colorbar(bars, ax=ax, label="nodes")
    names = run.tasks["name"][spans.task].tolist()
    rows = list(zip(names, spans.begin_s.tolist(), spans.end_s.tolist(), spans.nodes.tolist(), strict=True))
    lead = "Tasks in order of their start, coloured while they held nodes, the darker the more"
    if spans.begin_s.size < begin.size:
        lead += f"; {begin.size:,} spans are joined to {spans.begin_s.size:,} with their mean number of nodes"
    found = PrintFigure(figure, ("task", "begin_s", "end_s", "nodes"), rows, lead)
    return _finish(found, sheet, [run], [], "used_node_s")


def plot_setting(runs: Sequence[FinishedRun], setting: str, key: str, sheet: Sheet) -> PrintFigure:
    """Plot a figure of the summary against a setting: a line for runs that are alike otherwise.

    Raises
    ------
    SettingsError
        If runs have no such setting or figure, or one of them has no number there.
    """
    values = [_number(run, setting, key) for run in runs]
    groups = alike([run.name for run in runs], [run.summary for run in runs], apart=setting)
    size, unit = scale(max(map(abs, values)), term_of(key).unit)
    label = f"{term_of(key).label} ({unit})" if unit else term_of(key).label
    points: dict[str, list[tuple[Any, float, float | None, int]]] = {}
    for group in groups:
        found = estimate([values[place] / size for place in group.places])
        x = runs[group.places[0]].summary["settings"][setting]
        points.setdefault(group.setting, []).append((x, found.mean, found.half_width, found.number))
    figure = sheet.figure(max(42.0, 0.5 * sheet.width_mm))
    ax = figure.add_subplot()
    xs = [x for line in points.values() for x, *_ in line]
    is_number = all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)
    for number, (name, line) in enumerate(points.items()):
        ordered = sorted(line, key=lambda point: point[:2]) if is_number else line
        at, mean, half, _ = zip(*ordered, strict=True)
        look = _look(number) | {"marker": _MARKERS[number % len(_MARKERS)], "capsize": 2, "label": plain(name, _NAME)}
        place = at if is_number else [plain(str(each), sheet.letters(0.8 / len(set(xs)))) for each in at]
        ax.errorbar(place, mean, np.array(half, dtype=np.float64), **look if is_number else look | {"linestyle": ""})
    ax.set(xlabel=setting_label(setting), ylabel=label)
    if len(points) > 1:
        legend_above(figure, *ax.get_legend_handles_labels())
    rows = [(name, *point) for name, line in points.items() for point in line]
    columns = ("line", setting, f"{key} ({unit})" if unit else key, "half_width", "runs")
    lead = f"{term_of(key).label[0].upper()}{term_of(key).label[1:]} against {setting_label(setting)}"
    return _finish(PrintFigure(figure, columns, rows, lead), sheet, runs, groups, key)


def _look(number: int) -> dict[str, Any]:
    """Colour, of the style's cycle, and dashes of a line among others."""
    return line_look(number) | {"color": f"C{number}"}


def _number(run: FinishedRun, setting: str, key: str) -> float:
    """A figure of a run that has the setting."""
    settings, figures = run.summary["settings"], figures_of(run.summary)
    if setting not in settings:
        raise SettingsError(f"Expected a setting of the runs, got {setting!r}.{suggestion(setting, settings)}")
    if key not in figures:
        raise SettingsError(f"Expected a figure of the runs, got {key!r}.{suggestion(key, figures)}")
    value = figures[key]
    if value is None:
        reason = " (replayed with --no-baseline, or tuned tasks whose work does not add up)" if key in _COMPARED else ""
        raise SettingsError(f"{run.name}: The run has no {key}{reason}.")
    return value


def plot_losses(runs: Sequence[FinishedRun], sheet: Sheet) -> PrintFigure:
    """Plot the ledger of the idle node-time, a bar a run; parts that no run has are left out.

    Raises
    ------
    SettingsError
        If a run has no ledger, as those of earlier versions, or had no idle nodes.
    """
    for run in runs:
        if ledger_share(run, "useful") is None:
            raise SettingsError(f"{run.name}: The run has no ledger of its idle node-time, or no idle nodes.")
    ink, groups = palette(), _alike(runs)
    found = {
        part: [estimate([100 * (ledger_share(runs[place], part) or 0.0) for place in group.places]) for group in groups]
        for part in PARTS
    }
    figure = sheet.figure(20 + 8 * len(groups))
    ax = figure.add_subplot()
    above, below = np.zeros(len(groups)), np.zeros(len(groups))
    for (part, known), (color, hatch) in zip(found.items(), PART_LOOKS, strict=True):
        amount = np.round([each.mean for each in known], 6)
        if amount.any():
            tone, label = ink[color], GLOSSARY[f"ledger.{part}"].label
            fill = {"facecolor": "white" if hatch else tone, "edgecolor": tone, "hatch": hatch, "label": label}
            ax.barh(range(len(groups)), amount, left=np.where(amount < 0, below, above), **fill)
        above, below = above + np.maximum(amount, 0.0), below + np.minimum(amount, 0.0)
    for row, each in enumerate(found["useful"]):
        if each.half_width:
            ax.errorbar(each.mean, row, xerr=each.half_width, color=ink["ink"], capsize=2)
    ax.set(xlabel="idle node-time (%)", ylim=(len(groups) - 0.5, -0.5), xlim=(below.min(), max(100.0, above.max())))
    ax.set_yticks(range(len(groups)), [wrapped(group.label, min(_NAME, sheet.letters(0.35))) for group in groups])
    legend_above(figure, *ax.get_legend_handles_labels())
    rows = [
        (group.label, len(group.places), part, known[place].mean, known[place].half_width)
        for place, group in enumerate(groups)
        for part, known in found.items()
    ]
    lead = "Where the idle node-time went, each node-second once; all of it is 100 %"
    columns = ("run", "seeds", "part", "share_percent", "half_width")
    return _finish(PrintFigure(figure, columns, rows, lead), sheet, runs, groups, "ledger.useful")


def plot_energy(runs: Sequence[FinishedRun], tuned: Sequence[Mapping[str, str]], sheet: Sheet) -> PrintFigure:
    """Energy of each tuned task against its time to the target, from submission; a colour and marker a group of tasks.

    Parameters
    ----------
    runs : sequence of FinishedRun
    tuned : sequence of mapping of str to str
        For each run, the group of each tuned task, by its name.
    sheet : Sheet

    Raises
    ------
    SettingsError
        If no task of the runs is tuned and complete.
    """
    rows: list[tuple[Any, ...]] = []
    for run, group_of in zip(runs, tuned, strict=True):
        tasks = run.tasks
        for place in np.flatnonzero(np.isfinite(tasks["energy_j"]) & np.isfinite(tasks["completed_s"])).tolist():
            name, hours = tasks["name"][place], (tasks["completed_s"][place] - tasks["submitted_s"][place]) / HOUR_S
            kwh = float(tasks["energy_j"][place]) / 3.6e6
            rows.append((run.name, group_of.get(name, "tuned"), name, float(hours), kwh))
    if not rows:
        raise SettingsError("No tuned task of the runs reached its target.")
    figure = sheet.figure(max(42.0, 0.5 * sheet.width_mm))
    ax = figure.add_subplot()
    for number, (run_name, group) in enumerate(sorted({row[:2] for row in rows})):
        x, y = np.array([row[3:] for row in rows if row[:2] == (run_name, group)]).T
        label = group if len(runs) == 1 else f"{plain(run_name, _NAME)}: {group}"
        look = {"facecolor": "none", "edgecolor": _look(number)["color"], "marker": _MARKERS[number % len(_MARKERS)]}
        ax.scatter(x, y, s=9, label=label, **look)
    ax.set(xlabel="time to target (h)", ylabel="energy (kWh)")
    # Groups of points would lie upon each other else.
    for axis, values in (("x", [row[3] for row in rows]), ("y", [row[4] for row in rows])):
        is_wide = 0 < 20 * min(values) < max(values)
        ax.set(**{f"{axis}scale": "log"} if is_wide else {f"{axis}lim": (0, None)})
    legend_above(figure, *ax.get_legend_handles_labels())
    lead = "Energy of tuned tasks against the time from their submission to their target, a mark a task"
    columns = ("run", "group", "task", "time_h", "energy_kwh")
    return _finish(PrintFigure(figure, columns, rows, lead), sheet, runs, [], "energy_j")


def _alike(runs: Sequence[FinishedRun]) -> list[Alike]:
    return alike([run.name for run in runs], [run.summary for run in runs])


def _finish(
    drawn: PrintFigure, sheet: Sheet, runs: Sequence[FinishedRun], groups: Sequence[Alike], key: str
) -> PrintFigure:
    """Add what was assumed of the runs, if the figure of the summary with this key rests on it, and a caption."""
    found = [(run.name, assumption(run.summary)) for run in runs]
    notes = {name: each.note for name, each in found if each is not None and each.bears(key)}
    texts = [f"{drawn.caption}.", _describe_replay([run.summary for run in runs])]
    if any(len(group.places) > 1 for group in groups):
        texts.append(_INTERVALS)
    if notes:
        of = "" if len(runs) == 1 else f" ({', '.join(notes)})"
        drawn.figure.supxlabel(wrapped(f"{ASSUMED}{of}", sheet.letters(0.9)), x=0.01, ha="left")
        drawn.figure.set_figheight(drawn.figure.get_figheight() + 0.15)
        texts += [f"Rests on {ASSUMED}{of}: {note}." for note in dict.fromkeys(notes.values())]
    return PrintFigure(drawn.figure, drawn.columns, drawn.rows, " ".join(texts))


def _describe_replay(summaries: Sequence[Mapping[str, Any]]) -> str:
    """What was replayed, and the settings that all runs have in common, as a sentence."""
    first, files = summaries[0], [file for each in summaries for file in input_files(each).get("node_log", ())]
    logs = list(dict.fromkeys(escaped(PurePath(file["path"]).name) for file in files))
    parts = [f"Replay of {logs[0]}" if len(logs) == 1 else f"Replays of {len(logs) or 'other'} node logs"]
    texts = {
        "nodes_total": "{:,} nodes",
        "window_start": "from {:.16} UTC",
        "solver": "solver {}",
        "objective": "objective {}",
        "forward_time_s": "decisions look {:g} s ahead",
        "max_tasks": "at most {} tasks at once",
    }
    common = [key for key in texts if first.get(key) is not None and len({each.get(key) for each in summaries}) == 1]
    parts += [texts[key].format(first[key]) for key in common]
    return f"{', '.join(parts)}."
