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
from typing import TYPE_CHECKING

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

# Longest times that are shown in seconds and in minutes.
_SECONDS_S, _MINUTES_S = 300.0, 4 * 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class RegretCurve:
    """Cumulative regret of a policy, over several seeds.

    Parameters
    ----------
    label : str
        Name of the policy.
    mean_j : ndarray of float64, shape (recurrences,)
        Cumulative cost beyond the optimum up to each recurrence, as a mean over the seeds.
    low_j, high_j : ndarray of float64, shape (recurrences,)
        Ends of the mean's confidence interval; the mean itself for a single seed.
    seeds : int
        Number of seeds.
    """

    label: str
    mean_j: NDArray[np.float64]
    low_j: NDArray[np.float64]
    high_j: NDArray[np.float64]
    seeds: int


def regret_curve(label: str, regrets_j: Sequence[Sequence[float]]) -> RegretCurve:
    """Compute cumulative regret from the regrets of single recurrences.

    Parameters
    ----------
    label : str
        Name of the curve.
    regrets_j : sequence of sequence of float, shape (seeds, recurrences)
        Regret of each recurrence, for each seed. All are cut to the shortest, because the mean would jump where a seed
        ends early. The interval is by Student's t.

    Raises
    ------
    SettingsError
        If there is no seed, or one has no recurrence.
    """
    seeds = len(regrets_j)
    length = min(map(len, regrets_j), default=0)
    if not length:
        raise SettingsError(f"{label}: Expected regrets of at least one recurrence for each seed, got none.")
    cumulative = np.cumsum([each[:length] for each in regrets_j], axis=1, dtype=np.float64)
    mean = cumulative.mean(axis=0)
    if seeds == 1:
        return RegretCurve(label, mean, mean, mean, 1)
    error = cumulative.std(axis=0, ddof=1) / math.sqrt(seeds)
    half = student_quantile(seeds - 1, CONFIDENCE) * error
    return RegretCurve(label, mean, mean - half, mean + half, seeds)


@dataclass(frozen=True, slots=True)
class PathStep:
    """Runs in a row with one setting.

    Parameters
    ----------
    first_run, runs : int
        Number of the first run in its history, from 1, and number of runs.
    setting : Configuration
        The setting, with the means of a recurrence.
    """

    first_run: int
    runs: int
    setting: Configuration


@dataclass(frozen=True, slots=True)
class TuningPath:
    """The settings that a history went through.

    Parameters
    ----------
    steps : tuple of PathStep
        Steps in the order of the runs.
    unplaced_runs : int
        Number of runs with settings that never reach the target, and so have no place.
    """

    steps: tuple[PathStep, ...]
    unplaced_runs: int


def tuning_path(settings: Iterable[Configuration], history: Iterable[HistoryEntry]) -> TuningPath:
    """Follow a history through the settings.

    Parameters
    ----------
    settings : iterable of Configuration
        Settings that reach the target, each once.
    history : iterable of HistoryEntry
        Runs in order. Consecutive runs with one setting form one step, even across runs that have no place.
    """
    places = {(setting.batch_size, setting.power_limit_w): setting for setting in settings}
    steps: list[PathStep] = []
    unplaced = 0
    for number, entry in enumerate(history, start=1):
        setting = None if entry.pl is None else places.get((entry.bs, entry.pl))
        if setting is None:
            unplaced += 1
        elif steps and steps[-1].setting is setting:
            steps[-1] = PathStep(steps[-1].first_run, steps[-1].runs + 1, setting)
        else:
            steps.append(PathStep(number, 1, setting))
    return TuningPath(tuple(steps), unplaced)


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
    ax = _axes(ax, title)
    for number, curve in enumerate(curves):
        recurrences = np.arange(1, curve.mean_j.size + 1)
        label = curve.label if curve.seeds == 1 else f"{curve.label} ({curve.seeds} seeds)"
        (line,) = ax.plot(recurrences, curve.mean_j, label=label, **line_look(number))
        if curve.seeds > 1:
            ax.fill_between(recurrences, curve.low_j, curve.high_j, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.axhline(0.0, color=palette()["gray"], linewidth=0.8, zorder=0)
    ax.set_xlabel("recurrence")
    ax.set_ylabel("cumulative regret")
    _in_joules(ax)
    below_axes(ax, 0.5)
    return ax


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
    ax = _axes(ax, title)
    unit_s, unit = _time_unit(max(each.time_s for each in settings))
    ax.plot(*_places(settings, unit_s), ".", color=palette()["gray"], label="settings")
    ax.plot(*_places(front, unit_s), "o-", color=palette()["blue"], markersize=4, label="Pareto front")
    if path is not None and path.steps:
        _draw_path(ax, path, unit_s)
    if best is not None:
        label = f"optimum: {best.batch_size} at {best.power_limit_w:g} W"
        ax.plot(*_places([best], unit_s), "*", color=palette()["red"], markersize=13, label=label)
    ax.set_xlabel(f"time to target ({unit})")
    ax.set_ylabel("energy to target")
    times, energies = _places(settings, unit_s)
    if max(times) > _WIDE * min(times):
        ax.set_xscale("log")
        _tick_decades(ax.xaxis)
    if max(energies) > _WIDE * min(energies):
        ax.set_yscale("log")
        _tick_decades(ax.yaxis)
    ax.xaxis.set_major_formatter("{x:g}")
    _in_joules(ax)
    below_axes(ax, 0.5)
    return ax


def _tick_decades(axis: Axis) -> None:
    """Mark 1, 2 and 5 of each decade of a logarithmic axis, and nothing between."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())


def _draw_path(ax: Axes, path: TuningPath, unit_s: float) -> None:
    label = "path of the history"
    if path.unplaced_runs:
        label += f" ({path.unplaced_runs} runs that cannot reach the target left out)"
    ax.plot(
        *_places([step.setting for step in path.steps], unit_s), "-", color=palette()["orange"], alpha=0.7, label=label
    )
    firsts: dict[tuple[int, float], PathStep] = {}
    for step in path.steps:
        firsts.setdefault((step.setting.batch_size, step.setting.power_limit_w), step)
    for (size, limit_w), step in firsts.items():
        place = (step.setting.time_s / unit_s, step.setting.energy_j)
        label = f"{step.first_run}: {size}, {limit_w:g} W"
        ax.annotate(label, place, xytext=(5, 5), textcoords="offset points", fontsize="small")


def _axes(ax: Axes | None, title: str) -> Axes:
    """Return the axes to draw on, by default on a new figure."""
    ax = axes_or_new(ax, _SIZE_IN)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title)
    return ax


def _in_joules(ax: Axes) -> None:
    from matplotlib.ticker import EngFormatter

    ax.yaxis.set_major_formatter(EngFormatter(unit="J"))


def _places(settings: Sequence[Configuration], unit_s: float) -> tuple[list[float], list[float]]:
    return [each.time_s / unit_s for each in settings], [each.energy_j for each in settings]


def _time_unit(longest_s: float) -> tuple[float, str]:
    """Return length in seconds and name of a unit for times up to this."""
    if longest_s <= _SECONDS_S:
        return 1.0, "s"
    return (60.0, "min") if longest_s <= _MINUTES_S else (3600.0, "h")


@dataclass(frozen=True, slots=True)
class FigurePlan:
    """Which figures go to which files.

    Parameters
    ----------
    directory : Path
        Directory for the figures, created if missing.
    form : str
        One of `bftrainer.report.drawing.FORMS`.
    paths : dict of Job to dict of str to Path
        Paths by kind: regret and, if requested, pareto with the path of the job's first simulation.
    """

    directory: Path
    form: str
    paths: dict[Job, dict[str, Path]]

    def draw(self, trace: TrainingTrace, results: Sequence[SimulationResult]) -> list[Path]:
        """Draw and write the figures.

        Jobs that never reach their target have none.

        Returns
        -------
        list of Path
            Files that were written.

        Raises
        ------
        OutputError
            If a file cannot be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.directory}: cannot be written ({error.strerror}).") from None
        written = []
        for job, paths in self.paths.items():
            of_job = [result for result in results if result.simulation.job == job]
            for kind, content in self._drawn(trace, job, of_job).items():
                with replacing(paths[kind]) as stream:
                    stream.write(content)
                written.append(paths[kind])
        return written

    def _drawn(self, trace: TrainingTrace, job: Job, results: Sequence[SimulationResult]) -> dict[str, bytes]:
        """Draw a job's figures, by kind."""
        first = results[0].simulation
        settings = configurations(trace.of(job), job, first.eta_knob)
        if not settings:
            return {}
        best = optimum(settings)
        by_policy: dict[str, list[list[float]]] = {}
        for result in results:
            if result.runs and not result.is_partial:
                by_policy.setdefault(result.simulation.policies, []).append(regrets(result.runs, best))
        curves = [regret_curve(label, each) for label, each in by_policy.items()]
        found = {}
        if curves:
            found["regret"] = rendered(regret_figure(curves, title=str(job)), self.form)
        if "pareto" in self.paths[job]:
            title = f"{job}\n{first.policies}, seed {first.seed}, eta {first.eta_knob:g}"
            path = tuning_path(settings, results[0].history)
            axes = pareto_figure(settings, pareto_front(settings), best=best, path=path, title=title)
            found["pareto"] = rendered(axes, self.form)
        return found


def plan_figures(
    directory: Path | None, form: str, simulations: Sequence[Simulation], *, fronts: bool, force: bool
) -> FigurePlan | None:
    """Plan the figures, and check that they can be drawn; None if no figures are requested.

    Raises
    ------
    SettingsError
        If matplotlib is not installed.
    OutputError
        If a file exists already, unless `force` is true.
    """
    if directory is None:
        return None
    require_matplotlib()
    if not next(each for each in (directory, *directory.parents) if os.path.lexists(each)).is_dir():
        raise OutputError(f"{directory}: Expected a directory or nothing, found a file.")
    paths: dict[Job, dict[str, Path]] = {}
    stems: list[str] = []
    for job in dict.fromkeys(each.job for each in simulations):
        stem = re.sub(r"[^\w.]+", "-", f"{job.dataset}-{job.network}-{job.optimizer}-{job.target_metric}")
        taken = sum(other.startswith(stem) for other in stems)
        stems.append(f"{stem}-{taken + 1}" if taken else stem)
        kinds = ("regret", "pareto") if fronts else ("regret",)
        paths[job] = {kind: directory / f"{kind}-{stems[-1]}.{form}" for kind in kinds}
        for path in paths[job].values():
            if path.exists() and not force:
                raise OutputError(f"{path}: File exists; choose another directory or give --force.")
    return FigurePlan(directory, form, paths)
