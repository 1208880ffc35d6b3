"""Decisions for one job on the server: the next trial's batch size, the verdict on a report, and learning from it.

Pure: no database and no clock. Pruning and bandit are those of the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from bftrainer.errors import AllPrunedError, NothingConvergedError
from bftrainer.zeus.policies.bandit import RewardLog
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.policies.pruning import BanditSettings, PrunedBandit, PruningExploreManager
from bftrainer.zeus.server.messages import LenientJobSpec, LenientTrainingResult, ReportResponse
from bftrainer.zeus.server.state_messages import Arm


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


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that has a result.

    Parameters
    ----------
    number : int
        Number of the trial.
    kind : TrialType
        Why it got its batch size.
    batch_size, cost_j, converged : int, float and bool
        Its batch size, its cost in joules, and whether it reached its target within its cost bound.
    inherited : bool
        Whether it was another job's, with its cost translated.
    """

    number: int
    kind: TrialType
    batch_size: int
    cost_j: float
    converged: bool
    inherited: bool = False


class PastTrial(Protocol):
    """A trial as it is kept: what was handed out after how many results, and, if it has a result, which one."""

    trial_number: Any
    type: Any
    batch_size: Any
    results_before: Any
    observation: Any
    cost: Any
    converged: Any
    inherited: Any


@dataclass(slots=True)
class TunedJob:
    """A job and the state of its tuning.

    Parameters
    ----------
    spec : LenientJobSpec
        The job.
    seed : int
        Seed of the job's bandit.
    pruned : PrunedBandit
        State of the job's batch sizes.
    min_cost : float or None
        Cost in joules of the cheapest run so far.
    min_cost_batch_size : int
        Batch size of that run; the default before any run.
    exploring : dict of int to int
        Trials that explore, by batch size.
    early : dict of int to list
        Results of explorations that pruning has not asked for yet, by batch size, the oldest first: cost in joules,
        whether the target was reached, and whether the run was another job's.
    played : bool
        Whether the bandit has played before the pruning that is going on; all results then count for its arms.
    """

    spec: LenientJobSpec
    seed: int
    pruned: PrunedBandit
    min_cost: float | None
    min_cost_batch_size: int
    exploring: dict[int, int] = field(default_factory=dict)
    early: dict[int, list[tuple[float, bool, bool]]] = field(default_factory=dict)
    played: bool = False

    @classmethod
    def new(cls, spec: LenientJobSpec, seed: int) -> TunedJob:
        """Make the state of a new job."""
        manager = PruningExploreManager(spec.batch_sizes, spec.default_batch_size, spec.num_pruning_rounds)
        pruned = PrunedBandit(spec.job_id, manager, _settings(spec, seed))
        return cls(spec, seed, pruned, None, spec.default_batch_size)

    @classmethod
    def replayed(cls, spec: LenientJobSpec, seed: int, trials: Iterable[PastTrial], *, published: bool) -> TunedJob:
        """Make the state of a job to which just these trials have happened, in the order that they have.

        Parameters
        ----------
        spec, seed : LenientJobSpec and int
            The job.
        trials : iterable of PastTrial
            What was handed out, and what came of it.
        published : bool
            See `learn`.
        """
        events: list[tuple[tuple[int, int, int], PastTrial, EndedTrial | None]] = []
        for trial in trials:
            before = trial.results_before
            if trial.observation is not None:
                kind, cost_j = TrialType(trial.type), float(trial.cost)
                whose = (bool(trial.converged), bool(trial.inherited))
                ended = EndedTrial(trial.trial_number, kind, trial.batch_size, cost_j, *whose)
                events.append(((trial.observation, 0, 0), trial, ended))
                # Clocks of several servers may have disagreed, where they tell the order.
                before = min(before, trial.observation - 1)
            if not trial.inherited:
                events.append(((before, 1, trial.trial_number), trial, None))
        job = cls.new(spec, seed)
        for _, trial, result in sorted(events, key=lambda event: event[0]):
            if result is None:
                job.hand_out(TrialType(trial.type), trial.batch_size, trial.trial_number)
            else:
                job.learn(result, published=published)
        return job

    @property
    def stage(self) -> Stage:
        """Whether batch sizes are still being pruned."""
        return Stage.PRUNING if self.pruned.bandit is None else Stage.MAB

    def choose(self, number: int, runs: Callable[[int], bool], *, parallel: bool = False) -> tuple[int, TrialType]:
        """Choose the batch size of the next trial; also return why.

        Parameters
        ----------
        number : int
            Number of the trial.
        runs : callable
            Whether a trial of some number is still running; if an exploration was ended without a result, another
            trial takes its place.
        parallel : bool
            Explore all batch sizes at once that the round may still ask for, rather than the next one.

        Raises
        ------
        NothingConvergedError
            If no batch size reached the target in a round of pruning.
        """
        ahead = self.pruned.manager.ahead if self.stage is Stage.PRUNING else []
        for size in ahead if parallel else ahead[:1]:
            if size not in self.early and not (size in self.exploring and runs(self.exploring[size])):
                self.hand_out(TrialType.EXPLORATION, size, number)
                return size, TrialType.EXPLORATION
        if ahead:
            return self.min_cost_batch_size, TrialType.CONCURRENT
        try:
            return self._play(), TrialType.MAB
        except AllPrunedError:
            raise NothingConvergedError(
                "No converged batch sizes has observed. Reconfigure batch_sizes and re-launch the job."
            ) from None

    def hand_out(self, kind: TrialType, batch_size: int, number: int) -> None:
        """Take note of a trial that is, or once was, handed out: `choose` need not be asked again."""
        manager = self.pruned.manager
        if kind is TrialType.EXPLORATION and self.stage is Stage.PRUNING:
            self.exploring[batch_size] = number
            self._advance(published=False)
        elif kind is TrialType.MAB and manager.done and manager.batch_sizes:
            self._play()

    def _play(self) -> int:
        """Have the bandit choose; it begins once pruning is over."""
        pruned = self.pruned
        if pruned.bandit is None:
            pruned.start_bandit(every_run=self.played)
            self.exploring, self.early, self.played = {}, {}, False
        return pruned.predict()

    def judge(self, result: LenientTrainingResult) -> tuple[ReportResponse, float]:
        """Judge a report: whether the run continues, has converged or failed; also return its cost so far in joules."""
        spec = self.spec
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
            return ReportResponse(stop_train=True, converged=False, message=message), cost
        if met:
            return ReportResponse(stop_train=True, converged=True, message="Train succeeded"), cost
        if result.current_epoch >= spec.max_epochs:
            message = f"Train failed to converge within max_epoch({spec.max_epochs})"
            return ReportResponse(stop_train=True, converged=False, message=message), cost
        return ReportResponse(stop_train=False, converged=False, message="Stop condition not met, keep training"), cost

    def learn(self, trial: EndedTrial, *, published: bool) -> None:
        """Learn from a trial that has ended.

        An exploration prunes when its turn comes: explorations beside it, or ones that were asked for before what is
        known now, wait in `early`. So results that come in any order prune as if they had come one after the other.

        Parameters
        ----------
        trial : EndedTrial
            The trial and its result.
        published : bool
            Like the published server, let failed trials lower the bound too.
        """
        size, exploration, pruning = trial.batch_size, trial.kind is TrialType.EXPLORATION, self.stage is Stage.PRUNING
        if exploration and self.exploring.get(size) == trial.number:
            del self.exploring[size]
        self.played = self.played or (trial.kind is TrialType.MAB and pruning)
        self.pruned.observe(size, trial.cost_j, trial.converged, exploration=False)
        if exploration and pruning:
            self.early.setdefault(size, []).append((trial.cost_j, trial.converged, trial.inherited))
            self._advance(published=published)
        elif not (exploration or trial.inherited):  # an exploration after the pruning was in vain
            self._compare(size, trial.cost_j, converged=trial.converged or published)

    def _advance(self, *, published: bool) -> None:
        """Go on with the pruning as far as there are results for it."""
        manager = self.pruned.manager
        while ahead := manager.ahead:
            size = ahead[0]
            if manager.expecting is None and (size in self.early or size in self.exploring):
                manager.next_batch_size()
            if size not in self.early:
                return
            (cost_j, reached, inherited), *later = self.early.pop(size)
            if later:
                self.early[size] = later
            self.pruned.prune(size, cost_j, reached)
            if not inherited:
                self._compare(size, cost_j, converged=reached or published)

    def _compare(self, batch_size: int, cost_j: float, *, converged: bool) -> None:
        """Keep the cost of a run if it is the cheapest one; other jobs' runs never bound this one's."""
        if converged and cost_j < (math.inf if self.min_cost is None else self.min_cost):
            self.min_cost, self.min_cost_batch_size = cost_j, batch_size

    def arms(self) -> list[Arm]:
        """List the bandit's arms."""
        bandit = self.pruned.bandit
        if bandit is None:
            return []
        rows = [(size, *bandit.beliefs[size].to_list()) for size in bandit.arms]
        return [Arm.model_validate(dict(zip(Arm.model_fields, row, strict=True))) for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """Return the state that choices need besides the job and its cheapest run, as plain values for JSON."""
        return {
            "seed": self.seed,
            "exploring": [[size, number] for size, number in self.exploring.items()],
            "early": [[size, [list(result) for result in results]] for size, results in self.early.items()],
            "played": self.played,
            "tuned": self.pruned.to_dict(),
        }

    @classmethod
    def from_dict(
        cls,
        state: Mapping[str, Any],
        spec: LenientJobSpec,
        min_cost: float | None,
        min_cost_batch_size: int,
        rewards: dict[int, RewardLog] | None = None,
    ) -> TunedJob:
        """Restore a job from the state that `to_dict` returned; `rewards` are needed only to learn."""
        settings = _settings(spec, state["seed"])
        pruned = PrunedBandit.from_dict(state["tuned"], spec.job_id, settings, rewards)
        exploring = state["exploring"]
        if not isinstance(exploring, list):  # of a version that explored one batch size at a time: a trial, or None
            exploring = [] if exploring is None else [(pruned.manager.expecting, exploring)]
        early = {size: [(*result,) for result in results] for size, results in state.get("early", ())}
        played = state.get("played", False)
        return cls(spec, state["seed"], pruned, min_cost, min_cost_batch_size, dict(exploring), early, played)


def _settings(spec: LenientJobSpec, seed: int) -> BanditSettings:
    return BanditSettings(
        prior_mean=spec.mab_prior_mean,
        prior_precision=spec.mab_prior_precision,
        window_size=max(0, spec.window_size),
        num_exploration=spec.mab_num_explorations,
        seed=seed,
        verbose=False,
        explorations_alone=True,
    )
