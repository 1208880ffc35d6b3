"""Decisions for one job on the server: the next trial's batch size, the verdict on a report, and learning from it.

Pure: no database and no clock. Pruning and bandit are those of the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import StrEnum
from operator import itemgetter

from bftrainer.errors import AllPrunedError, NothingConvergedError
from bftrainer.zeus.policies.bandit import BanditSettings, PrunedBandit, PruningExploreManager
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.server.messages import Arm, JobSpec, ReportResponse, TrainingResult, TrialRow


class Stage(StrEnum):
    """Stage of a job's tuning."""

    PRUNING = "Pruning"
    MAB = "MAB"
    # The published name of the member; the other enumerations have such names too.
    Pruning = PRUNING


class TrialType(StrEnum):
    """Why a trial got its batch size."""

    EXPLORATION = "Exploration"
    CONCURRENT = "Concurrent"
    MAB = "MAB"
    Exploration = EXPLORATION
    Concurrent = CONCURRENT


class TrialStatus(StrEnum):
    """Whether a trial is running, has a result, or was ended without one."""

    DISPATCHED = "Dispatched"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    Dispatched = DISPATCHED
    Succeeded = SUCCEEDED
    Failed = FAILED


class TunedJob:
    """A job and the state of its tuning; `published`: like the published server, let failed trials lower the bound."""

    def __init__(self, spec: JobSpec, seed: int, *, published: bool = False) -> None:
        settings = BanditSettings(
            prior_mean=spec.mab_prior_mean,
            prior_precision=spec.mab_prior_precision,
            window_size=max(0, spec.window_size),
            num_exploration=spec.mab_num_explorations,
            seed=seed,
            verbose=False,
            explorations_alone=True,
        )
        manager = PruningExploreManager(spec.batch_sizes, spec.default_batch_size, spec.num_pruning_rounds)
        self.spec, self.published = spec, published
        self.pruned = PrunedBandit(spec.job_id, manager, settings)
        self.min_cost: float | None = None  # of the cheapest run so far, in joules
        self.min_cost_batch_size = spec.default_batch_size
        self.exploring = 0  # number of the trial that the pruning waits for

    @classmethod
    def replay(cls, spec: JobSpec, seed: int, trials: Iterable[TrialRow], *, published: bool) -> TunedJob:
        """Make the state of a job to which just these trials have happened, in their order; excluded ones have not."""
        events: list[tuple[int, int, int, TrialRow]] = []
        for trial in trials:
            if trial.excluded is None:
                before, number = trial.results_before, trial.trial_number
                if trial.observation is not None:
                    events.append((trial.observation, 0, number, trial))
                    # Clocks of the published server's workers may have disagreed, where they tell the order.
                    before = min(before, trial.observation - 1)
                events.append((before, 1, number, trial))
        job = cls(spec, seed, published=published)
        for _, is_start, number, trial in sorted(events, key=itemgetter(0, 1, 2)):
            if is_start:
                job.hand_out(trial.type, trial.batch_size, number)
            else:
                job.learn(trial)
        return job

    @property
    def stage(self) -> Stage:
        """Whether batch sizes are still being pruned."""
        return Stage.PRUNING if self.pruned.bandit is None else Stage.MAB

    def choose(self, number: int, runs: Callable[[int], bool]) -> tuple[int, TrialType]:
        """Choose the batch size of the next trial, whose number is given; also return why.

        `runs` says whether a trial is running: one takes the place of an exploration that ended without a result.
        """
        manager = self.pruned.manager
        if self.stage is Stage.PRUNING and manager.ahead:
            if manager.expecting is not None and runs(self.exploring):
                return self.min_cost_batch_size, TrialType.CONCURRENT
            size, kind = manager.ahead[0], TrialType.EXPLORATION
            self.hand_out(kind, size, number)
            return size, kind
        try:
            return self.pruned.predict(), TrialType.MAB
        except AllPrunedError:
            raise NothingConvergedError(
                "No converged batch sizes has observed. Reconfigure batch_sizes and re-launch the job."
            ) from None

    def hand_out(self, kind: str, batch_size: int, number: int) -> None:
        """Take note of a trial that is or was handed out; an exploration that the pruning does not ask for is none."""
        manager = self.pruned.manager
        if kind == TrialType.EXPLORATION and self.stage is Stage.PRUNING and manager.ahead[:1] == [batch_size]:
            if manager.expecting is None:
                manager.next_batch_size()
            self.exploring = number
        elif kind == TrialType.MAB and manager.done and manager.batch_sizes:
            self.pruned.skip_prediction()

    def judge(self, result: TrainingResult) -> tuple[ReportResponse, float]:
        """Judge a report: whether the run continues, has converged or failed; also return its cost so far in joules."""
        spec, stop, converged = self.spec, True, False
        cost = zeus_cost(result.energy, result.time, spec.eta_knob, spec.max_power)
        met = (
            result.metric >= spec.target_metric if spec.higher_is_better_metric else result.metric <= spec.target_metric
        )
        if spec.beta_knob is not None and self.min_cost is not None and cost > spec.beta_knob * self.min_cost:
            # The published message has this line break too.
            message = (
                f"Batch Size({result.batch_size}) exceeded the cost upper bound: current cost({cost}) >\n"
                f"{' ' * 20}beta_knob({spec.beta_knob})*min_cost({self.min_cost})"
            )
        elif met:
            converged, message = True, "Train succeeded"
        elif result.current_epoch >= spec.max_epochs:
            message = f"Train failed to converge within max_epoch({spec.max_epochs})"
        else:
            stop, message = False, "Stop condition not met, keep training"
        return ReportResponse.model_construct(stop_train=stop, converged=converged, message=message), cost

    def learn(self, trial: TrialRow) -> None:
        """Learn from a trial that has ended with a result; the bandit does when it is asked next."""
        assert trial.cost is not None
        is_expected = self.pruned.manager.expecting is not None and self.exploring == trial.trial_number
        self.pruned.record(trial.batch_size, trial.cost, bool(trial.converged), exploration=is_expected)
        if (trial.converged or self.published) and trial.cost < (math.inf if self.min_cost is None else self.min_cost):
            self.min_cost, self.min_cost_batch_size = trial.cost, trial.batch_size

    def arms(self) -> list[Arm]:
        """List the bandit's arms."""
        self.pruned.learn_recorded()
        bandit = self.pruned.bandit
        if bandit is None:
            return []
        rows = [(size, *bandit.beliefs[size].to_list()) for size in bandit.arms]
        return [Arm.model_validate(dict(zip(Arm.model_fields, row, strict=True))) for row in rows]
