"""A recurring training job, its runs and what they cost; its recurrences: where a run stops, and when to give up."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import and_
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from bftrainer.errors import TuningError, TuningInputError, UnsupportedScalingError, suggestion

# Number of tries that a recurrence has to reach its target.
MAX_TRIES = 20
# A run whose bound allows no epoch is observed at this multiple of the bound.
NEVER_RAN_FACTOR = 100

_SQUARE_ROOT = frozenset({"adam", "adadelta", "adamw"})
_LINEAR = frozenset({"sgd"})

# Columns that identify the job of a row of a trace.
_IDENTITY = ("dataset", "network", "optimizer", "target_metric")

# What stands for a value of a run in a command, as an argument of its own.
_PLACEHOLDERS = ("bs", "batch_size", "lr", "learning_rate", "seed", "epoch", "epochs", "slice_number", "target_metric")
# Names in braces; those of a shell's variables, and with doubled braces, are text.
_IN_BRACES = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)\}(?!\})")
_DOUBLED = re.compile(r"\{(\{[A-Za-z_]\w*\})\}")

# A data frame of the caller's; nothing here imports pandas.
Frame = TypeVar("Frame", bound=Any)


@dataclass(frozen=True)
class Job:
    """A training job that recurs: what is trained, to which target.

    Parameters
    ----------
    dataset, network, optimizer : str
        What is trained, as the traces name it.
    target_metric, max_epochs : float and int
        Validation metric at which a run has reached its target, and epochs after which it gives up.
    default_bs, default_lr : int and float, optional
        Batch size that is used when nothing is known, which should reach the target; its learning rate.
    workdir, command : str and list of str, optional
        Directory and command of a real run; `command` is left out of equality and hash.

    Raises
    ------
    TuningInputError
        If a number is out of range, or `max_epochs` or `default_bs` is not whole.
    """

    dataset: str
    network: str
    optimizer: str
    target_metric: float
    max_epochs: int
    default_bs: int | None = None
    default_lr: float | None = None
    workdir: str | None = None
    command: list[str] | None = field(default=None, hash=False, compare=False)

    def __post_init__(self) -> None:
        if not math.isfinite(self.target_metric):
            raise TuningInputError(f"{self}: Expected a finite target metric, got {self.target_metric}.")
        for name in ("max_epochs", "default_bs", "default_lr"):
            value = getattr(self, name)
            if value is None:
                continue
            if not 0 < value < math.inf:
                raise TuningInputError(f"{self}: Expected {name} above 0, got {value}.")
            if value >= 2**63:
                raise TuningInputError(f"{self}: Expected {name} below 2^63, got {value}.")
            if name != "default_lr":
                if value != int(value):
                    raise TuningInputError(f"{self}: Expected a whole {name}, got {value}.")
                # Histories and files hold plain numbers, even if a job was made from a data frame's.
                object.__setattr__(self, name, int(value))

    def __deepcopy__(self, memo: dict[int, object]) -> Job:
        return self

    def __str__(self) -> str:
        size = "" if self.default_bs is None else f",bs{self.default_bs}"
        what = f"{self.dataset},{self.network},{self.optimizer},{self.target_metric}"
        return f"Job({what}{size}~{self.max_epochs})"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name for JSON; ``Job(**values)`` restores the job."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def filter_df(self, df: Frame) -> Frame:
        """Select the rows of a data frame for this job and its target; `TuningInputError` if it lacks a column."""
        missing = [name for name in _IDENTITY if name not in df.columns]
        if missing:
            raise TuningInputError(f"{self}: Expected columns {', '.join(_IDENTITY)}, found no {', '.join(missing)}.")
        # Uses only the frame's own operators, so that any kind of data frame works.
        rows: Frame = df[reduce(and_, (df[name] == getattr(self, name) for name in _IDENTITY))]
        return rows

    def to_logdir(self) -> str:
        """Make a name for a directory of this job's logs."""
        return (
            f"{self.dataset}+{self.network}+bs{self.default_bs}+{self.optimizer}+lr{self.default_lr}"
            f"+tm{self.target_metric}+me{self.max_epochs}"
        )

    def gen_command(self, batch_size: int, learning_rate: float, seed: int, rec_i: int) -> list[str]:
        """Make the command of one run, `TuningInputError` without one: arguments that are a placeholder are replaced.

        ``{bs}`` or ``{batch_size}``, ``{lr}`` or ``{learning_rate}``, ``{seed}``, and ``{slice_number}`` by `rec_i`,
        the number of the recurrence; ``{epochs}`` or ``{epoch}`` and ``{target_metric}`` by those of the job. A name in
        doubled braces, ``{{x}}``, is the text ``{x}``.
        """
        if self.command is None:
            raise TuningInputError(f"{self}: Missing command to launch runs with.")
        rates, epochs = (learning_rate, learning_rate), (self.max_epochs, self.max_epochs)
        values = (batch_size, batch_size, *rates, seed, *epochs, rec_i, self.target_metric)
        replacements = {f"{{{name}}}": str(value) for name, value in zip(_PLACEHOLDERS, values, strict=True)}
        return [replacements.get(piece) or _DOUBLED.sub(r"\1", piece) for piece in self.command]

    def check_placeholders(self) -> None:
        """Check that all names in braces of the command will be replaced: `TuningInputError` if not."""
        for piece in self.command or ():
            for name in _IN_BRACES.findall(piece):
                if name not in _PLACEHOLDERS:
                    near = suggestion(name, _PLACEHOLDERS)
                    raise TuningInputError(
                        f"Unknown placeholder {{{name}}} in the command.{near} Braces are doubled where they are text."
                    )
                if piece != f"{{{name}}}":
                    raise TuningInputError(f"Expected {{{name}}} as an argument of its own, got {piece!r}.")

    def scale_lr(self, batch_size: int) -> float:
        """Scale the learning rate to `batch_size`: by its square root for Adam and similar, linearly for SGD.

        `TuningInputError` if the job has no defaults to scale from, and of other optimizers.

        References
        ----------
        Goyal et al., arXiv:1706.02677 (linear); Krizhevsky, arXiv:1404.5997 (square root).
        """
        if not self.default_bs or not self.default_lr:
            raise TuningInputError(f"{self}: Missing default batch size and learning rate to scale from.")
        kind = self.optimizer.lower()
        if kind in _SQUARE_ROOT:
            return self.default_lr * math.sqrt(batch_size / self.default_bs)
        if kind in _LINEAR:
            return self.default_lr * batch_size / self.default_bs
        optimizers = ", ".join(sorted(_SQUARE_ROOT | _LINEAR))
        raise UnsupportedScalingError(
            f"{self}: LR scaling for {self.optimizer!r} is not supported. Known: {optimizers}."
        )


class JobSettings(BaseModel):
    """A job in a file; `Job` checks the ranges."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    dataset: str = Field(min_length=1)
    network: str = Field(min_length=1)
    optimizer: str = Field(min_length=1)
    target_metric: float
    max_epochs: int
    default_bs: int | None = None
    default_lr: float | None = None

    def to_job(self) -> Job:
        """Make the job: `TuningInputError` if a number is out of range."""
        return Job(**self.model_dump())


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One run in a history: batch size, GPU power limit (W, if known), energy (J), verdict, and time (s)."""

    bs: int
    pl: int | None
    energy: float
    reached: bool
    time: float


def zeus_cost(energy: float, time: float, eta_knob: float, max_power: float) -> float:
    """Compute a run's cost (J) of energy (J) and time (s) at full power (W), weighted by eta from 0 to 1 (all energy).

    References
    ----------
    You et al., "Zeus", NSDI '23, equation 2.
    """
    return eta_knob * energy + (1.0 - eta_knob) * max_power * time


# Meters and limits of power are not exact.
POWER_TOLERANCE = 1.1


def usage_fault(
    energy_j: float, time_s: float, max_power_w: float, eta_knob: float, *, ended: bool
) -> tuple[str, str] | None:
    """Find what is impossible about energy and time of a run: the field at fault, and what was expected; or None.

    The power is that of all GPUs together. A run that has `ended` must have cost something.
    """
    most_j = POWER_TOLERANCE * max_power_w * time_s
    if energy_j > most_j:
        return "energy", f"Expected at most {most_j:g} J in {time_s:g} s at {max_power_w:g} W, got {energy_j:g}."
    if ended and not zeus_cost(energy_j, time_s, eta_knob, max_power_w) > 0:
        which = "energy" if eta_knob == 1 else "time"
        return which, f"Expected more than 0 of a run that has ended, got {energy_j:g} J in {time_s:g} s."
    return None


def check_knobs(eta_knob: float, beta_knob: float) -> None:
    """Check that `eta_knob` is in [0, 1], and `beta_knob` above 0: `TuningInputError` if not."""
    if not 0.0 <= eta_knob <= 1.0:
        raise TuningInputError(f"Expected eta from 0 (time) to 1 (energy), got {eta_knob}.")
    if not beta_knob > 0.0 or math.isnan(beta_knob):
        raise TuningInputError(f"Expected beta above 0 (inf: never stop early), got {beta_knob}.")


class RecurrenceTracker:
    """Cost of a job's recurrences, for the simulator, tuned tasks and the master.

    A recurrence costs what all its tries do or, without `sum_tries`, what the one does that reached the target. With
    `first_must_reach`, the job is given up if its very first try misses the target; else after `max_tries` of a
    recurrence. See You et al., "Zeus", NSDI '23, section 4.4.
    """

    def __init__(
        self,
        job: Job,
        beta_knob: float,
        *,
        max_tries: int = MAX_TRIES,
        sum_tries: bool = True,
        first_must_reach: bool = True,
    ) -> None:
        self.job, self.beta_knob = job, beta_knob
        self.max_tries, self.sum_tries, self.first_must_reach = max_tries, sum_tries, first_must_reach
        self.min_cost_j, self.best_batch_size = math.inf, job.default_bs
        self.tries: Counter[int] = Counter()
        self.spent_j: defaultdict[int, float] = defaultdict(float)

    def cost_bound_j(self) -> float:
        """Cost at which the next run stops."""
        # If the cheapest recurrence cost nothing, infinity times 0 would be NaN.
        return math.inf if math.isinf(self.beta_knob) else self.beta_knob * self.min_cost_j

    def record_try(
        self, recurrence: int, batch_size: int, cost_j: float, reached: bool, *, started: bool = True
    ) -> str | None:
        """Record a try, whose recurrence counts from 0; return why the job is given up, None if not.

        A try that has not `started`, as the bound allowed it no epoch, cost nothing.
        """
        self.tries[recurrence] += 1
        if started:
            self.spent_j[recurrence] += cost_j
        if reached:
            total_j = self.spent_j[recurrence] if self.sum_tries else cost_j
            if total_j < self.min_cost_j:
                self.min_cost_j, self.best_batch_size = total_j, batch_size
            return None
        if started and recurrence == 0 and self.first_must_reach:
            which = "default" if batch_size == self.job.default_bs else "first"
            return f"{self.job}: The {which} batch size {batch_size} did not converge."
        if self.tries[recurrence] >= self.max_tries:
            return f"{self.job}: Recurrence {recurrence + 1} did not reach the target metric in {self.max_tries} tries."
        return None


@contextmanager
def attach_history(history: Callable[[], Sequence[HistoryEntry]]) -> Iterator[None]:
    """Attach the history so far to an error that ends the recurrences."""
    try:
        yield
    except (TuningError, TuningInputError) as error:
        error.history = [*history()]
        raise
