"""Figures of finished runs for print, each with its data and a caption; runs that differ in seeds alone are one.

Each is a function of runs and the sheet that it is drawn on; `printed` makes files of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError, escaped, suggestion
from bftrainer.report.chart import TaskSpans, joined, ledger_share, node_classes, thinned_steps
from bftrainer.report.comparison import Alike, alike, figures_of, input_files, setting_label
from bftrainer.report.drawing import (
    MM_PER_IN,
    PrintFigure,
    Sheet,
    area_legend,
    legend_above,
    line_look,
    palette,
    plain,
    small_pt,
    wrapped,
)
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption, scale, term_of
from bftrainer.report.intervals import estimate
from bftrainer.report.ledger import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HOUR_S = 3600.0
_Point = tuple[Any, float, float | None, int]
_COMPARED = ("efficiency", "loss_variability_share", "loss_horizon_share")
_POINTS, _BINS, _NAME, _MOST_SPANS = 600, 200, 40, 20_000
_MARKERS, _HATCHES = "osD^vPX*", ("", "/////", ".....", "xxxxx", "-----")
# Colour and hatching of the parts of the ledger: what became work is solid, what nobody held is lighter.
PART_LOOKS = (
    *(("green", ""), ("orange", "/////"), ("red", "\\\\\\\\\\"), ("purple", ".....")),
    *(("blue", "//"), ("sky", "xxxxx")),
    *(("gray", "-----"), ("ink", "|||||"), ("gantt4", "+++++"), ("gantt2", "....."), ("gantt1", "")),
)
_INTERVALS = "Bands and whiskers are 95 % confidence intervals of the mean over seeds (Student's t)."


def plot_pool(runs: Sequence[FinishedRun], sheet: Sheet) -> PrintFigure:
    """Idle nodes, and those that tasks hold, over time; a panel for each run, or for runs that differ in seeds."""
    ink, groups = palette(), _alike(runs)
    series = [_over_time([runs[place] for place in group.places]) for group in groups]
    figure = sheet.figure(10 + len(groups) * max(14.0, min(0.36 * sheet.width_mm, 150.0 / len(groups))))
    most = [max(idle.max(), 1) for _, idle, _, _ in series]
    is_like = max(most) < 4 * min(most)
    panels = figure.subplots(len(groups), 1, sharex=True, sharey=is_like, squeeze=False)[:, 0]
    rows: list[tuple[Any, ...]] = []
    for ax, group, (edges, idle, used, half) in zip(panels, groups, series, strict=True):
        ax.stairs(idle, edges, fill=True, color=ink["rule"], linewidth=0)
        ax.stairs(used, edges, fill=half is None, color=ink["blue"], linewidth=0 if half is None else 0.9)
        if half is not None:
            band = [np.append(end, end[-1:]).clip(min=0.0) for end in (used - half, used + half)]
            ax.stairs(idle, edges, color=ink["gray"], linewidth=0.7)
            ax.fill_between(edges, *band, step="post", color=ink["blue"], alpha=0.35, linewidth=0)
        if len(groups) > 1:
            ax.set_title(plain(group.label, sheet.letters(0.75)), pad=2)
        ax.set(ylabel="nodes", ylim=(0, None))
        widths = [None] * used.size if half is None else half.tolist()
        cells = zip((edges[:-1] * HOUR_S).tolist(), idle.tolist(), used.tolist(), widths, strict=True)
        rows += [(group.label, len(group.places), *each) for each in cells]
    panels[-1].set(xlabel="time (h)", xlim=(0, max(run.window_s for run in runs) / HOUR_S))
    area_legend(figure, [(ink["rule"], "", "idle"), (ink["blue"], "", "held by tasks")])
    lead = "Idle nodes (light) and those that training tasks held (dark) over time"
    lead += "" if is_like else "; panels have scales of their own"
    columns = ("run", "seeds", "time_s", "idle", "used", "used_half_width")
    return _finished(figure, sheet, runs, groups, "used_node_s", columns, rows, lead)


def _over_time(runs: Sequence[FinishedRun]) -> tuple[Any, Any, Any, Any]:
    """Hours of edges, idle and held nodes between them, and half an interval of the latter; None for a single run.

    Of a single run, the extremes of many short pieces are kept; of several, there are means over pieces of the time.
    """
    for run in runs:
        if not run.steps["time_s"].size:
            raise SettingsError(f"{run.name}: The run ended before its first event.")
    if len(runs) == 1:
        time_s, idle, used = (runs[0].steps[name] for name in ("time_s", "idle", "used"))
        kept = thinned_steps(time_s, [idle, used], runs[0].window_s, _POINTS)
        return np.append(time_s[kept], runs[0].window_s) / HOUR_S, idle[kept], used[kept], None
    edges_s = np.linspace(0.0, min(run.window_s for run in runs), _BINS + 1)
    means = np.array([[_means(run, name, edges_s) for run in runs] for name in ("idle", "used")])
    half = [estimate(column).half_width for column in means[1].T.tolist()]
    return edges_s / HOUR_S, means[0].mean(axis=0), means[1].mean(axis=0), np.array(half)


def _means(run: FinishedRun, name: str, edges_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean number of nodes between times."""
    time_s = np.append(run.steps["time_s"], run.window_s)
    sums = np.append(0.0, np.cumsum(run.steps[name] * np.diff(time_s)))
    return np.asarray(np.diff(np.interp(edges_s, time_s, sums)) / np.diff(edges_s))


def plot_allocation(run: FinishedRun, sheet: Sheet) -> PrintFigure:
    """Gantt chart: a row per task in order of their start, darker with more nodes."""
    from matplotlib.collections import PolyCollection

    ink, (begin, end, task, nodes) = palette(), run.holdings.spans(run.window_s)
    held = np.unique(task)
    spans = joined(TaskSpans(begin, end, task, nodes.astype(np.float64)), _MOST_SPANS, run.window_s)
    rank, started = np.zeros(len(run.tasks["name"]), dtype=np.int64), run.tasks["started_s"][held]
    order = held[np.argsort(np.where(np.isnan(started), np.inf, started), kind="stable")]
    rank[order] = np.arange(held.size)
    figure = sheet.figure(max(52.0, min(max(0.4 * sheet.width_mm, 12 + 3.4 * held.size), 0.8 * sheet.width_mm)))
    ax, looks = figure.add_subplot(), []
    for mask, label, shade in node_classes(spans.nodes):
        left, right, row = spans.begin_s[mask] / HOUR_S, spans.end_s[mask] / HOUR_S, rank[spans.task[mask]]
        low, high = row - 0.42, row + 0.42
        corners = np.stack((np.stack((left, left, right, right), 1), np.stack((low, high, high, low), 1)), 2)
        ax.add_collection(PolyCollection(corners, facecolor=ink[shade[1:]], linewidth=0))
        looks.append((ink[shade[1:]], "", label))
    ax.set(xlabel="time (h)", xlim=(0, run.window_s / HOUR_S), ylim=(max(held.size, 1) - 0.5, -0.5))
    if held.size <= figure.get_figheight() * MM_PER_IN / 3.4:
        ax.set_yticks(
            range(held.size), [plain(str(name), min(24, sheet.letters(0.3))) for name in run.tasks["name"][order]]
        )
    else:
        ax.set_ylabel("tasks, in order of their start")
    if held.size:
        area_legend(figure, looks)
    names = run.tasks["name"][spans.task].tolist()
    rows = list(zip(names, spans.begin_s.tolist(), spans.end_s.tolist(), spans.nodes.tolist(), strict=True))
    lead = "Tasks in order of their start, coloured while they held nodes, the darker the more"
    if spans.begin_s.size < begin.size:
        lead += f"; {begin.size:,} spans are joined to {spans.begin_s.size:,} with their mean number of nodes"
    return _finished(figure, sheet, [run], [], "used_node_s", ("task", "begin_s", "end_s", "nodes"), rows, lead)


def plot_setting(runs: Sequence[FinishedRun], setting: str, key: str, sheet: Sheet) -> PrintFigure:
    """Plot a figure of the summary against a setting: a line for runs that are alike otherwise, bars for texts.

    Raises
    ------
    SettingsError
        If runs have no such setting or figure, or one of them has no number there.
    """
    values = [_number(run, setting, key) for run in runs]
    groups = alike([run.name for run in runs], [run.summary for run in runs], apart=setting)
    size, unit = scale(max(map(abs, values)), term_of(key).unit)
    points: dict[str, list[_Point]] = {}
    for group in groups:
        found = estimate([values[place] / size for place in group.places])
        x = runs[group.places[0]].summary["settings"][setting]
        points.setdefault(group.setting, []).append((x, found.mean, found.half_width, found.number))
    figure = sheet.figure(max(42.0, 0.5 * sheet.width_mm))
    ax = figure.add_subplot()
    xs = [x for line in points.values() for x, *_ in line]
    is_number = all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)
    drawn = _setting_lines(ax, points) if is_number else _setting_bars(ax, points, list(dict.fromkeys(map(str, xs))))
    ax.set(xlabel=setting_label(setting), ylabel=f"{term_of(key).label} ({unit})" if unit else term_of(key).label)
    if len(points) > 1:
        legend_above(figure, drawn, list(points))
    rows = [(label, *point) for label, line in points.items() for point in line]
    columns = ("line", setting, f"{key} ({unit})" if unit else key, "half_width", "runs")
    lead = f"{term_of(key).label[0].upper()}{term_of(key).label[1:]} against {setting_label(setting)}"
    return _finished(figure, sheet, runs, groups, key, columns, rows, lead)


def _setting_lines(ax: Axes, points: Mapping[str, list[_Point]]) -> list[Any]:
    drawn = []
    for number, line in enumerate(points.values()):
        columns = list(zip(*sorted(line, key=lambda point: point[:2]), strict=True))
        x, mean, half = (np.array(each, dtype=np.float64) for each in columns[:3])  # NaN for an interval of one run
        (handle,) = ax.plot(x, mean, **_look(number), marker=_MARKERS[number % len(_MARKERS)])
        if x.size > 1 and np.isfinite(half).all():
            ax.fill_between(x, mean - half, mean + half, color=handle.get_color(), alpha=0.2, linewidth=0)
        elif np.isfinite(half).any():  # a band needs neighbours
            ax.errorbar(x, mean, half, fmt="none", ecolor=handle.get_color(), capsize=2, linewidth=0.8)
        drawn.append(handle)
    return drawn


def _setting_bars(ax: Axes, points: Mapping[str, list[_Point]], names: Sequence[str]) -> list[Any]:
    ink, drawn, wide = palette()["ink"], [], 0.8 / len(points)
    for number, line in enumerate(points.values()):
        at = [names.index(str(x)) + (number - (len(points) - 1) / 2) * wide for x, *_ in line]
        whiskers, color = [half or 0.0 for _, _, half, _ in line], _look(number)["color"]
        hatch = _HATCHES[number % len(_HATCHES)]
        look = {"facecolor": "white" if hatch else color, "edgecolor": color, "hatch": hatch, "linewidth": 0.6}
        found = ax.bar(at, [mean for _, mean, *_ in line], 0.9 * wide, **look)
        if any(whiskers):
            ax.errorbar(at, [mean for _, mean, *_ in line], whiskers, fmt="none", ecolor=ink, capsize=2, linewidth=0.8)
        drawn.append(found)
    ax.set_xticks(range(len(names)), [wrapped(name, 20) for name in names])
    return drawn


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
    figure = sheet.figure(12 + 7 * len(groups))
    looks: list[tuple[str, str, str]] = []
    ax = figure.add_subplot()
    above, below = np.zeros(len(groups)), np.zeros(len(groups))
    for (part, known), (color, hatch) in zip(found.items(), PART_LOOKS, strict=True):
        amount = np.round([each.mean for each in known], 6)
        left = np.where(amount < 0, below, above)
        if amount.any():
            tone = ink[color]
            fill = {"facecolor": "white" if hatch else tone, "edgecolor": tone if hatch else "white"}
            ax.barh(range(len(groups)), amount, 0.72, left=left, hatch=hatch, linewidth=0.5, **fill)
            looks.append((tone, hatch, GLOSSARY[f"ledger.{part}"].label))
            for row, (width, begin) in enumerate(zip(amount.tolist(), left.tolist(), strict=True)):
                if abs(width) >= 500 / sheet.width_mm * 1.6:
                    paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
                    ax.text(
                        begin + width / 2,
                        row,
                        f"{width:.1f}",
                        size=small_pt(),
                        ha="center",
                        va="center",
                        bbox=paper,
                    )
        above, below = above + np.maximum(amount, 0.0), below + np.minimum(amount, 0.0)
    for row, each in enumerate(found["useful"]):
        if each.half_width:
            ax.errorbar(each.mean, row, xerr=each.half_width, color=ink["ink"], capsize=2, linewidth=0.8)
    ax.set(
        xlabel="idle node-time (%)", ylim=(len(groups) - 0.5, -0.5), xlim=(below.min() * 1.02, max(100.0, above.max()))
    )
    ax.set_yticks(range(len(groups)), [wrapped(group.label, min(_NAME, sheet.letters(0.35))) for group in groups])
    area_legend(figure, looks)
    rows = [
        (group.label, len(group.places), part, known[place].mean, known[place].half_width)
        for place, group in enumerate(groups)
        for part, known in found.items()
    ]
    lead = "Where the idle node-time went, each node-second once; all of it is 100 %"
    columns = ("run", "seeds", "part", "share_percent", "half_width")
    return _finished(figure, sheet, runs, groups, "ledger.useful", columns, rows, lead)


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
            rows.append(
                (run.name, group_of.get(name, "tuned"), name, float(hours), float(tasks["energy_j"][place]) / 3.6e6)
            )
    if not rows:
        raise SettingsError("No tuned task of the runs reached its target.")
    groups, names = sorted({row[1] for row in rows}), [run.name for run in runs]
    figure = sheet.figure(max(42.0, 0.5 * sheet.width_mm))
    panels = figure.subplots(1, len(_alike(runs)), sharex=True, sharey=True, squeeze=False)[0]
    drawn: list[Any] = []
    for ax, panel in zip(panels, _alike(runs), strict=True):
        within, drawn = {names[place] for place in panel.places}, []
        for number, group in enumerate(groups):
            points = [row[3:] for row in rows if row[0] in within and row[1] == group]
            x, y = np.array(points).reshape(-1, 2).T
            options = {"marker": _MARKERS[number % len(_MARKERS)], "s": 9, "linewidths": 0.6}
            drawn.append(ax.scatter(x, y, facecolor="none", edgecolor=_look(number)["color"], **options))
        ax.set_xlabel("time to target (h)")
        if len(panels) > 1:
            ax.set_title(wrapped(panel.label, sheet.letters(0.75 / len(panels))), pad=2)
    _wide(panels[0], rows)
    panels[0].set(ylabel="energy (kWh)")
    legend_above(figure, drawn, groups)
    lead = "Energy of tuned tasks against the time from their submission to their target, a mark a task"
    return _finished(figure, sheet, runs, [], "energy_j", ("run", "group", "task", "time_h", "energy_kwh"), rows, lead)


def _wide(ax: Axes, rows: Sequence[tuple[Any, ...]]) -> None:
    """Make axes logarithmic on which groups of points would lie upon each other else."""
    for axis, name, values in ((ax.xaxis, "x", [row[3] for row in rows]), (ax.yaxis, "y", [row[4] for row in rows])):
        if 0 < 20 * min(values) < max(values):
            ax.set(**{f"{name}scale": "log"})
            axis.set_major_formatter("{x:g}")
        else:
            ax.set(**{f"{name}lim": (0, None)})


def _alike(runs: Sequence[FinishedRun]) -> list[Alike]:
    return alike([run.name for run in runs], [run.summary for run in runs])


def _finished(
    figure: Figure,
    sheet: Sheet,
    runs: Sequence[FinishedRun],
    groups: Sequence[Alike],
    key: str,
    columns: tuple[str, ...],
    rows: list[tuple[Any, ...]],
    lead: str,
) -> PrintFigure:
    """Add what was assumed of the runs, if the figure of the summary with this key rests on it, and a caption."""
    found = [(run.name, assumption(run.summary)) for run in runs]
    notes = {name: each.note for name, each in found if each is not None and each.bears(key)}
    texts = [f"{lead}.", _replayed([run.summary for run in runs])]
    if any(len(group.places) > 1 for group in groups):
        texts.append(_INTERVALS)
    if notes:
        of = "" if len(runs) == 1 else f" ({', '.join(notes)})"
        figure.supxlabel(wrapped(f"{ASSUMED}{of}", sheet.letters(0.9)), x=0.01, ha="left")
        figure.set_figheight(figure.get_figheight() + 0.15)
        texts += [f"Rests on {ASSUMED}{of}: {note}." for note in dict.fromkeys(notes.values())]
    return PrintFigure(figure, columns, rows, " ".join(texts))


def _replayed(summaries: Sequence[Mapping[str, Any]]) -> str:
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
