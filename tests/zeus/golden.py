"""What the published simulator did, and how ours is compared with it."""

import gzip
import json
import lzma
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from bftrainer import zeus
from bftrainer.errors import BftrainerError
from bftrainer.zeus.simulation.simulator import JobTuning

DATA = Path(__file__).parent / "data"
TOLERANCE = 1e-9


def load(path: Path) -> dict[str, Any]:
    """A golden file."""
    opener = {".gz": gzip.open, ".xz": lzma.open}[path.suffix]
    with opener(path, "rt", encoding="utf-8") as stream:
        return json.load(stream)


def frame(path: Path) -> pd.DataFrame:
    """A CSV file as a frame with correctly rounded numbers: by default from pandas 3.1 on, when asked before."""
    major, minor = map(int, pd.__version__.split(".")[:2])
    return pd.read_csv(path) if (major, minor) >= (3, 1) else pd.read_csv(path, float_precision="round_trip")


def close(ours: float, theirs: Any) -> bool:
    """Whether two numbers agree as far as they must, NaN with NaN; infinity is text in a golden file."""
    theirs = float(theirs)
    if math.isnan(ours) or math.isnan(theirs):
        return math.isnan(ours) and math.isnan(theirs)
    return ours == theirs or abs(ours - theirs) <= TOLERANCE * max(abs(ours), abs(theirs))


class Watching(zeus.BatchSizeOptimizer):
    """Mixed into a policy, writes down what it is asked and told."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, verbose=False, **options)
        self.predictions: list[int] = []
        self.observations: list[list[Any]] = []

    def predict(self, job: zeus.Job) -> int:
        self.predictions.append(super().predict(job))
        return self.predictions[-1]

    def observe(self, job: zeus.Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        self.observations.append([batch_size, cost, converged])
        super().observe(job, batch_size, cost, converged)


class Watched(Watching, zeus.PruningGTSBatchSizeOptimizer):
    """Pruning and sampling, watched."""


class WatchedSampling(Watching, zeus.GTSBatchSizeOptimizer):
    """Sampling alone, watched."""


class WatchedSimulator(zeus.Simulator):
    """A simulator that keeps the state that its last simulation ended in."""

    tuning: JobTuning

    def _start(self, *arguments: Any) -> JobTuning:
        self.tuning = super()._start(*arguments)
        return self.tuning


class Answer:
    """What ours does on a golden case, on the trace and groups that it was simulated on."""

    def __init__(self, trace: Any, groups: Any, case: dict[str, Any]) -> None:
        inputs = case["inputs"]
        self.case, self.job = case, zeus.Job(**inputs["job"])
        knobs = (float(inputs["beta_knob"]), float(inputs["eta_knob"]))
        seed = inputs.get("simulator_seed", inputs.get("seed"))
        group = inputs.get("group", inputs.get("mode", "single"))
        options = inputs.get("policy_kwargs", {} if group == "single" else {"concurrency": True})
        policy = Watched(seed=inputs.get("bso_seed", seed), **options)
        simulator = WatchedSimulator(trace, None, policy, zeus.JITPowerLimitOptimizer(False), seed, verbose=False)
        self.history: list[zeus.HistoryEntry] | None = None
        self.error: BftrainerError | None = None
        try:
            if group == "single":
                self.history = simulator.simulate_one_job(self.job, inputs["num_recurrence"], *knobs)
            else:
                self.history = simulator.simulate_one_alibaba_group(self.job, groups[group], *knobs)
        except BftrainerError as error:
            self.error = error
        self.tuning = simulator.tuning
        assert isinstance(self.tuning.batch_sizes, Watched)
        self.policy: Watched = self.tuning.batch_sizes

    def differences(self) -> list[str]:
        """What is not as published, by name."""
        observed = len(self.policy.observations)
        state = self.tuning.training.rng.bit_generator.state
        never_ran = self.case.get("never_ran_lines", len(self.case.get("stdout_lines", [])))
        checks = {
            "exception": same_exception(self.error, self.case["error"]),
            "history": same_history(self.history, self.case["history"]),
            "predictions": self.policy.predictions == self.case["predictions"],
            "observations": observed == len(self.case["observations"]) and self.is_observed_alike(),
            "runs that never started": never_ran == sum(not run.started for run in self.tuning.runs),
            "path generator": "sample_rng_state" in self.case and state == self.case["sample_rng_state"],
            "bandit": same_bandit(self.policy, self.job, self.case["mab"]),
        }
        return [name for name, same in checks.items() if not same]

    def is_observed_alike(self) -> bool:
        """Whether the policy was told the same, as far as both were told something."""
        pairs = zip(self.policy.observations, self.case["observations"], strict=False)
        return all(
            ours[0] == theirs[0] and close(ours[1], theirs[1]) and ours[2] == theirs[2] for ours, theirs in pairs
        )


def same_exception(ours: BftrainerError | None, theirs: dict[str, str] | None) -> bool:
    """Whether ours is caught by who catches the published one."""
    if ours is None or theirs is None:
        return ours is theirs
    return theirs["type"] in [kind.__name__ for kind in type(ours).__mro__]


def same_history(ours: list[zeus.HistoryEntry] | None, theirs: list[list[Any]] | None) -> bool:
    """Whether batch sizes, limits and verdicts are equal, energies and times as close as they must be."""
    if ours is None or theirs is None:
        return ours is theirs
    return len(ours) == len(theirs) and all(
        (entry.bs, entry.pl, entry.reached) == (row[0], row[1], row[3])
        and close(entry.energy, row[2])
        and close(entry.time, row[4])
        for entry, row in zip(ours, theirs, strict=True)
    )


def same_bandit(policy: Watched, job: zeus.Job, theirs: dict[str, Any] | None) -> bool:
    """Whether arms, beliefs and the generator's state are those that were recorded."""
    ours = policy.mabs.get(job)
    if ours is None or theirs is None:
        return ours is theirs
    numbers = {"mean": "mean", "prec": "precision", "reward_prec": "reward_precision", "n_obs": "observations"}
    return (
        ours.arms == theirs["arms"]
        and ours.rng.bit_generator.state == theirs["rng_state"]
        and all(ours.beliefs.keys() == {int(arm) for arm in theirs[key]} for key in numbers)
        and all(
            close(getattr(ours.beliefs[int(arm)], attribute), value)
            for key, attribute in numbers.items()
            for arm, value in theirs[key].items()
        )
    )


def by_inputs(cases: list[dict[str, Any]], *keys: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Cases with equal inputs of these names, under those inputs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        inputs = case["inputs"] | case["inputs"]["job"]
        found.setdefault("-".join(str(inputs[key]) for key in keys), []).append(case)
    yield from found.items()


@cache
def units() -> dict[str, Any]:
    """What the published classes answer one by one."""
    return load(DATA / "units.json.xz")
