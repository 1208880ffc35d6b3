"""Figures of tuned recurring jobs: cumulative regret, and energy against time with the path that tuning took.

The data of a figure are computed apart from drawing it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import OutputError, SettingsError
from bftrainer.files.writing import replacing
from bftrainer.report.drawing import axes_or_new, below_axes, line_look, palette, rendered, require_matplotlib
from bftrainer.report.intervals import student_quantile
from bftrainer.zeus.policies.configurations import Configuration, configurations, optimum, pareto_front
from bftrainer.zeus.policies.job import HistoryEntry, Job
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.optimum import regrets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

CONFIDENCE = 0.95
_SIZE_IN = (7.2, 4.4)

# Axes whose largest value is more than this multiple of the smallest are logarithmic: settings that hardly reach the
# target may take a hundred times as much as good ones, which differ by percents.
_WIDE = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class RegretCurve:
    """Cumulative regret of a policy, over several seeds.

    Parameters
    ----------
    label : str
        Name of the policy.
    mean_j : ndarray of float64, shape (recurrences,)
        Cumulative cost beyond the optimum up to each recurrence, as a mean over the seeds.
    half_width_j : ndarray of float64, shape (recurrences,)
        Half of the mean's 95 % confidence interval by Student's t; 0 for a single seed.
    seeds : int
        Number of seeds.
    """

    label: str
    mean_j: NDArray[np.float64]
    half_width_j: NDArray[np.float64]
    seeds: int


def regret_curve(label: str, regrets_j: Sequence[Sequence[float]]) -> RegretCurve:
    """Compute cumulative regret from the regrets of single recurrences.

    Parameters
    ----------
    label : str
        Name of the curve.
    regrets_j : sequence of sequence of float, shape (seeds, recurrences)
        Regret of each recurrence, for each seed. All are cut to the shortest, because the mean would jump where a seed
        ends early.

    Raises
    ------
    SettingsError
        If there is no seed, or one has no recurrence.
    """
    seeds, length = len(regrets_j), min(map(len, regrets_j), default=0)
    if not length:
        raise SettingsError(f"{label}: Expected regrets of at least one recurrence for each seed, got none.")
    cumulative = np.cumsum([regrets[:length] for regrets in regrets_j], axis=1, dtype=np.float64)
    half_width = np.zeros(length)
    if seeds > 1:
        error = cumulative.std(axis=0, ddof=1) / math.sqrt(seeds)
        half_width = student_quantile(seeds - 1, CONFIDENCE) * error
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

    Parameters
    ----------
    curves : sequence of RegretCurve
        Curves to draw, at least one.
    title : str
        Above the axes.
    ax : Axes, optional
        Where to draw; by default on a figure of its own, ``ax.figure``.

    Raises
    ------
    SettingsError
        If there are no curves, or matplotlib is not installed.
    """
    if not curves:
        raise SettingsError("Expected at least one curve of regret, got none.")
    ax = _titled_axes(ax, title)
    for number, curve in enumerate(curves):
        recurrences, mean = np.arange(1, curve.mean_j.size + 1), curve.mean_j
        label = curve.label if curve.seeds == 1 else f"{curve.label} ({curve.seeds} seeds)"
        (line,) = ax.plot(recurrences, mean, label=label, **line_look(number))
        if curve.seeds > 1:
            low, high = mean - curve.half_width_j, mean + curve.half_width_j
            ax.fill_between(recurrences, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.axhline(0.0, color=palette()["gray"], linewidth=0.8, zorder=0)
    ax.set_xlabel("recurrence")
    return _with_joules(ax, "cumulative regret")


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

    Parameters
    ----------
    settings, front : sequence of Configuration
        All settings that reach the target, at least one, and their Pareto front; both by time.
    best : Configuration, optional
        The cheapest setting, which is marked.
    path : TuningPath, optional
        Drawn from setting to setting; the number beside a place is that of the first run there.
    title : str
        Above the axes.
    ax : Axes, optional
        Where to draw; by default on a figure of its own, ``ax.figure``.

    Raises
    ------
    SettingsError
        If there are no settings, or matplotlib is not installed.
    """
    if not settings:
        raise SettingsError("Expected at least one setting that reaches the target, got none.")
    ax = _titled_axes(ax, title)
    longest_s = max(setting.time_s for setting in settings)
    unit_s, unit = (1.0, "s") if longest_s <= 300 else (60.0, "min") if longest_s <= 4 * 3600 else (3600.0, "h")
    colours = palette()

    ax.plot(*_places(settings, unit_s), ".", color=colours["gray"], label="settings")
    ax.plot(*_places(front, unit_s), "o-", color=colours["blue"], markersize=4, label="Pareto front")
    if path is not None and path.steps:
        _draw_path(ax, path, unit_s)
    if best is not None:
        label = f"optimum: {best.batch_size} at {best.power_limit_w:g} W"
        ax.plot(*_places([best], unit_s), "*", color=colours["red"], markersize=13, label=label)
    times, energies = _places(settings, unit_s)
    if max(times) > _WIDE * min(times):
        ax.set_xscale("log")
        _tick_decades(ax.xaxis)
    if max(energies) > _WIDE * min(energies):
        ax.set_yscale("log")
        _tick_decades(ax.yaxis)
    ax.set_xlabel(f"time to target ({unit})")
    ax.xaxis.set_major_formatter("{x:g}")
    return _with_joules(ax, "energy to target")


def _draw_path(ax: Axes, path: TuningPath, unit_s: float) -> None:
    """Draw a path, with the number of the first run at each place."""
    label = "path of the history"
    if path.unplaced_runs:
        label += f" ({path.unplaced_runs} runs that cannot reach the target left out)"
    times, energies = _places([setting for _, setting in path.steps], unit_s)
    ax.plot(times, energies, "-", color=palette()["orange"], alpha=0.7, label=label)
    firsts: dict[int, tuple[str, tuple[float, float]]] = {}
    for (first_run, setting), time, energy_j in zip(path.steps, times, energies, strict=True):
        text = f"{first_run}: {setting.batch_size}, {setting.power_limit_w:g} W"
        firsts.setdefault(id(setting), (text, (time, energy_j)))
    for text, xy in firsts.values():
        ax.annotate(text, xy, xytext=(5, 5), textcoords="offset points", fontsize="small")


def _places(settings: Sequence[Configuration], unit_s: float) -> tuple[list[float], list[float]]:
    return [setting.time_s / unit_s for setting in settings], [setting.energy_j for setting in settings]


def _tick_decades(axis: Axis) -> None:
    """Mark 1, 2 and 5 of each decade of a logarithmic axis, and nothing between."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())


def _titled_axes(ax: Axes | None, title: str) -> Axes:
    """Return the axes to draw on, by default on a new figure."""
    ax = axes_or_new(ax, _SIZE_IN)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title)
    return ax


def _with_joules(ax: Axes, label: str) -> Axes:
    """Label the vertical axis, in joules, and put the legend below."""
    from matplotlib.ticker import EngFormatter

    ax.set_ylabel(label)
    ax.yaxis.set_major_formatter(EngFormatter(unit="J"))
    below_axes(ax, 0.5)
    return ax


FigurePaths = dict[Job, dict[str, Path]]


def plan_figures(
    directory: Path, form: str, simulations: Sequence[Simulation], *, fronts: bool, force: bool
) -> FigurePaths:
    """Choose the files of each job's figures, and check that they can be drawn.

    Returns
    -------
    dict of Job to dict of str to Path
        Paths by kind: regret and, if requested, pareto with the path of the job's first simulation.

    Raises
    ------
    SettingsError
        If matplotlib is not installed.
    OutputError
        If a file exists already, unless `force` is true.
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
    """Draw and write planned figures; return the files. Jobs that never reach their target have none.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
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
    if not fronts:
        return figures
    title = f"{first.job}\n{first.policies}, seed {first.seed}, eta {first.eta_knob:g}"
    path = tuning_path(settings, results[0].history)
    figures["pareto"] = pareto_figure(settings, pareto_front(settings), best=best, path=path, title=title)
    return figures
