"""Figures of simulated recurring jobs, drawn from results and written to files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bftrainer.errors import OutputError
from bftrainer.files.writing import replacing
from bftrainer.report.drawing import rendered, require_matplotlib
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.figures import (
    RegretCurve,
    pareto_figure,
    regret_curve,
    regret_figure,
    tuning_path,
)
from bftrainer.zeus.simulation.optimum import configurations, pareto_front, regrets
from bftrainer.zeus.simulation.summary import best_of

__all__ = ["FigurePlan", "plan_figures"]


class FigurePlan:
    """Which figures go to which files: regret of each job, and its Pareto front with the path of one history.

    Parameters
    ----------
    directory : Path
        Made if it is not there.
    form : str
        One of `bftrainer.report.drawing.FORMS`.
    jobs : iterable of Job
    fronts : bool
        Whether Pareto fronts are drawn too; the path is that of each job's first simulation.
    """

    def __init__(self, directory: Path, form: str, jobs: Iterable[Job], fronts: bool) -> None:
        self.directory, self.form, self.fronts = directory, form, fronts
        self._stems: dict[Job, str] = {}
        for job in jobs:
            stem = re.sub(r"[^\w.]+", "-", f"{job.dataset}-{job.network}-{job.optimizer}-{job.target_metric}")
            taken = sum(other.startswith(stem) for other in self._stems.values())
            self._stems[job] = f"{stem}-{taken + 1}" if taken else stem

    def path(self, kind: str, job: Job) -> Path:
        """File of a job's figure, `kind` being ``regret`` or ``pareto``."""
        return self.directory / f"{kind}-{self._stems[job]}.{self.form}"

    def check(self, *, force: bool) -> None:
        """Find out before anything is simulated what would keep figures from being drawn.

        Raises
        ------
        SettingsError
            If matplotlib is not installed.
        OutputError
            If a file is in the way, unless `force`.
        """
        require_matplotlib()
        if self.directory.exists() and not self.directory.is_dir():
            raise OutputError(f"{self.directory}: Expected a directory or nothing, found a file.")
        kinds = ("regret", "pareto") if self.fronts else ("regret",)
        for path in (self.path(kind, job) for job in self._stems for kind in kinds):
            if path.exists() and not force:
                raise OutputError(f"{path}: Expected no such file yet; choose another directory or give --force.")

    def draw(self, trace: TrainingTrace, results: Sequence[SimulationResult]) -> list[Path]:
        """Draw and write the figures.

        Jobs that never reach their target have none.

        Returns
        -------
        list of Path
            What was written.

        Raises
        ------
        OutputError
            If a file cannot be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.directory}: Expected a place for figures, got: {error.strerror}.") from None
        written = []
        for job in self._stems:
            of_job = [result for result in results if result.simulation.job == job]
            for kind, content in _figures(trace, job, of_job, self.form, self.fronts).items():
                path = self.path(kind, job)
                with replacing(path) as stream:
                    stream.write(content)
                written.append(path)
        return written


def plan_figures(
    directory: Path | None, form: str, simulations: Sequence[Simulation], *, fronts: bool, force: bool
) -> FigurePlan | None:
    """A plan that can be carried out; None if no figures are wanted.

    Raises
    ------
    SettingsError, OutputError
        As `FigurePlan.check`.
    """
    if directory is None:
        return None
    plan = FigurePlan(directory, form, dict.fromkeys(each.job for each in simulations), fronts)
    plan.check(force=force)
    return plan


def _figures(
    trace: TrainingTrace, job: Job, results: Sequence[SimulationResult], form: str, fronts: bool
) -> dict[str, bytes]:
    """A job's figures by kind."""
    first = results[0].simulation
    settings = configurations(trace.of(job), job, first.eta_knob)
    best = best_of(settings)
    if best is None:
        return {}
    by_policy: dict[str, list[list[float]]] = {}
    for result in results:
        label = f"{result.simulation.policy}+{result.simulation.power_policy}"
        if result.runs and not result.is_partial:
            by_policy.setdefault(label, []).append(regrets(result.runs, best))
    curves: list[RegretCurve] = [regret_curve(label, each) for label, each in by_policy.items()]
    found = {}
    if curves:
        found["regret"] = rendered(regret_figure(curves, title=str(job)), form)
    if fronts:
        title = f"{job}\n{first.policy}+{first.power_policy}, seed {first.seed}, eta {first.eta_knob:g}"
        path = tuning_path(settings, results[0].history)
        front = pareto_front(settings)
        found["pareto"] = rendered(pareto_figure(settings, front, best=best, path=path, title=title), form)
    return found
