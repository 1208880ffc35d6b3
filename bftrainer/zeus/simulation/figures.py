"""Figures of tuned recurring jobs: cumulative regret, and energy against time with the path that tuning took.

The data of a figure are computed apart from drawing it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import OutputError, SettingsError
from bftrainer.files.writing import replacing
from bftrainer.report.drawing import axes_or_new, below_axes, line_look, palette, rendered, require_matplotlib
from bftrainer.report.intervals import student_quantile
from bftrainer.zeus.policies.job import HistoryEntry, Job
from bftrainer.zeus.policies.trace import Configuration, TrainingTrace, configurations, optimum, pareto_front
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.optimum import regrets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_IN = (7.2, 4.4)

# Axes whose largest value is more than this multiple of the smallest are logarithmic: settings that hardly reach the
# target may take a hundred times as much as good ones, which differ by percents.
_WIDE = 5.0


class RegretCurve(NamedTuple):
    """Cumulative regret of a policy up to each recurrence: mean over seeds, and half of its 95 % confidence interval.

    The interval is Student's; its half width is 0 for a single seed. Both arrays have shape (recurrences,).
    """

    label: str
    mean_j: NDArray[np.float64]
    half_width_j: NDArray[np.float64]
    seeds: int


def regret_curve(label: str, regrets_j: Sequence[Sequence[float]]) -> RegretCurve:
    """Compute cumulative regret from the regrets of single recurrences, shape (seeds, recurrences).

    All are cut to the shortest, because the mean would jump where a seed ends early. `SettingsError` if there is no
    seed, or one has no recurrence.
    """
    seeds, length = len(regrets_j), min(map(len, regrets_j), default=0)
    if not length:
        raise SettingsError(f"{label}: Expected regrets of at least one recurrence for each seed, got none.")
    cumulative = np.cumsum([regrets[:length] for regrets in regrets_j], axis=1, dtype=np.float64)
    half_width = np.zeros(length)
    if seeds > 1:
        half_width = student_quantile(seeds - 1, 0.95) * cumulative.std(axis=0, ddof=1) / math.sqrt(seeds)
    return RegretCurve(label, cumulative.mean(axis=0), half_width, seeds)


class TuningPath(NamedTuple):
    """The settings that a history went through, with the number of the first run, from 1, of each stay at one.

    Runs whose settings never reach the target have no place; they are counted.
    """

    steps: list[tuple[int, Configuration]]
    unplaced_runs: int


def tuning_path(settings: Iterable[Configuration], history: Iterable[HistoryEntry]) -> TuningPath:
    """Follow a history through the settings that reach the target; runs without a place interrupt no stay."""
    places = {(setting.batch_size, setting.power_limit_w): setting for setting in settings}
    steps: list[tuple[int, Configuration]] = []
    unplaced = 0
    for number, entry in enumerate(history, start=1):
        setting = None if entry.pl is None else places.get((entry.bs, entry.pl))
        if setting is None:
            unplaced += 1
        elif not steps or steps[-1][1] is not setting:
            steps.append((number, setting))
    return TuningPath(steps, unplaced)


def regret_figure(curves: Sequence[RegretCurve], *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw cumulative regret over recurrences: a line for each policy, and a band where there are several seeds.

    Without `ax` there is a new figure, ``ax.figure``. `SettingsError` if there are no curves.
    """
    if not curves:
        raise SettingsError("Expected at least one curve of regret, got none.")
    ax = axes_or_new(ax, _SIZE_IN)
    for number, curve in enumerate(curves):
        recurrences, mean = np.arange(1, curve.mean_j.size + 1), curve.mean_j
        label = curve.label if curve.seeds == 1 else f"{curve.label} ({curve.seeds} seeds)"
        (line,) = ax.plot(recurrences, mean, label=label, **line_look(number))
        if curve.seeds > 1:
            low, high = mean - curve.half_width_j, mean + curve.half_width_j
            ax.fill_between(recurrences, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.axhline(0.0, color=palette()["gray"], linewidth=0.8, zorder=0)
    return _label_axes(ax, title, "recurrence", "cumulative regret")


def pareto_figure(
    settings: Sequence[Configuration],
    front: Sequence[Configuration],
    *,
    best: Configuration | None = None,
    path: TuningPath | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw energy against time of each setting, the Pareto front, and the path that a history took.

    There is at least one setting that reaches the target; settings and front are by time. The cheapest one, `best`, is
    marked. A path is drawn from setting to setting; the number beside a place is that of the first run there. For the
    others see `regret_figure`.
    """
    if not settings:
        raise SettingsError("Expected at least one setting that reaches the target, got none.")
    ax = axes_or_new(ax, _SIZE_IN)
    longest_s = max(setting.time_s for setting in settings)
    unit_s, unit = (1.0, "s") if longest_s <= 300 else (60.0, "min") if longest_s <= 4 * 3600 else (3600.0, "h")

    def plot(settings: Iterable[Configuration], look: str, color: str, label: str, **style: float) -> None:
        places = [(setting.time_s / unit_s, setting.energy_j) for setting in settings]
        ax.plot(*zip(*places, strict=True), look, color=palette()[color], label=label, **style)

    plot(settings, ".", "gray", "settings")
    plot(front, "o-", "blue", "Pareto front", markersize=4)
    if path is not None and path.steps:
        out = f" ({path.unplaced_runs} runs that cannot reach the target left out)" if path.unplaced_runs else ""
        plot([setting for _, setting in path.steps], "-", "orange", f"path of the history{out}", alpha=0.7)
        # The latest comes first, so the number that stays is that of the first stay at a setting.
        firsts = {id(setting): (number, setting) for number, setting in reversed(path.steps)}
        for number, setting in sorted(firsts.values(), key=lambda step: step[0]):
            text = f"{number}: {setting.batch_size}, {setting.power_limit_w:g} W"
            place = (setting.time_s / unit_s, setting.energy_j)
            ax.annotate(text, place, xytext=(5, 5), textcoords="offset points", fontsize="small")
    if best is not None:
        plot([best], "*", "red", f"optimum: {best.batch_size} at {best.power_limit_w:g} W", markersize=13)
    _suit_scale(ax, "x", [setting.time_s for setting in settings])
    _suit_scale(ax, "y", [setting.energy_j for setting in settings])
    ax.xaxis.set_major_formatter("{x:g}")
    return _label_axes(ax, title, f"time to target ({unit})", "energy to target")


def _suit_scale(ax: Axes, name: str, values: Sequence[float]) -> None:
    """Make an axis logarithmic if the values need it, with ticks at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullLocator

    if max(values) > _WIDE * min(values):
        axis = {"x": ax.xaxis, "y": ax.yaxis}[name]
        ax.set(**{f"{name}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())


def _label_axes(ax: Axes, title: str, x_label: str, y_label: str) -> Axes:
    """Set title and labels, with joules upwards, and put the legend below."""
    from matplotlib.ticker import EngFormatter

    ax.spines[["top", "right"]].set_visible(False)
    ax.set(title=title, xlabel=x_label, ylabel=y_label)
    ax.yaxis.set_major_formatter(EngFormatter(unit="J"))
    below_axes(ax, 0.5)
    return ax


FigurePaths = dict[Job, dict[str, Path]]


def plan_figures(
    directory: Path, form: str, simulations: Sequence[Simulation], *, fronts: bool, force: bool
) -> FigurePaths:
    """Choose the files of each job's figures by kind, and check that they can be drawn and written.

    The kinds are regret and, with `fronts`, pareto with the path of the job's first simulation.
    """
    require_matplotlib()
    if not next(place for place in (directory, *directory.parents) if os.path.lexists(place)).is_dir():
        raise OutputError(f"{directory}: Expected a directory or nothing, found a file.")
    paths: FigurePaths = {}
    stems: list[str] = []
    for job in dict.fromkeys(simulation.job for simulation in simulations):
        stem = re.sub(r"[^\w.]+", "-", f"{job.dataset}-{job.network}-{job.optimizer}-{job.target_metric}")
        taken = sum(other.startswith(stem) for other in stems)
        stems.append(f"{stem}-{taken + 1}" if taken else stem)
        kinds = ("regret", "pareto") if fronts else ("regret",)
        paths[job] = {kind: directory / f"{kind}-{stems[-1]}.{form}" for kind in kinds}
        for path in paths[job].values():
            if path.exists() and not force:
                raise OutputError(f"{path}: File exists; choose another directory or give --force.")
    return paths


def draw_figures(paths: FigurePaths, trace: TrainingTrace, results: Sequence[SimulationResult]) -> list[Path]:
    """Draw and write planned figures; return the files. Jobs that never reach their target have none."""
    written = []
    for job, by_kind in paths.items():
        of_job = [result for result in results if result.simulation.job == job]
        for kind, axes in _draw_job(trace, of_job, fronts="pareto" in by_kind).items():
            path = by_kind[kind]
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OutputError(f"{path.parent}: cannot be written ({error.strerror}).") from None
            with replacing(path) as stream:
                stream.write(rendered(axes, path.suffix[1:]))
            written.append(path)
    return written


def _draw_job(trace: TrainingTrace, results: Sequence[SimulationResult], *, fronts: bool) -> dict[str, Axes]:
    """Draw a job's figures, by kind."""
    first = results[0].simulation
    settings = configurations(trace.of(first.job), first.job, first.eta_knob)
    if not settings:
        return {}
    best = optimum(settings)
    by_policy: dict[str, list[list[float]]] = {}
    for result in results:
        if result.runs and not result.is_partial:
            by_policy.setdefault(result.simulation.policies, []).append(regrets(result.runs, best))
    figures = {}
    if by_policy:
        curves = [regret_curve(label, regrets_j) for label, regrets_j in by_policy.items()]
        figures["regret"] = regret_figure(curves, title=str(first.job))
    if fronts:
        title = f"{first.job}\n{first.policies}, seed {first.seed}, eta {first.eta_knob:g}"
        path = tuning_path(settings, results[0].history)
        figures["pareto"] = pareto_figure(settings, pareto_front(settings), best=best, path=path, title=title)
    return figures
