"""Follow the recurrences of a job: what they cost, where the next run stops, and when to give up."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus.policies.job import HistoryEntry, Job

# Number of tries that a recurrence has to reach its target.
MAX_TRIES = 20

# A run whose bound allows no epoch is observed at this multiple of the bound.
NEVER_RAN_FACTOR = 100


class RecurrenceTracker:
    """Cost of a job's recurrences, for the simulator, tuned tasks and the master.

    Parameters
    ----------
    beta_knob, max_tries : float and int
        Multiple of the lowest cost at which a run stops (infinity: never), and number of tries that a recurrence has.
    sum_tries : bool
        Whether all tries of a recurrence make up its cost, or only the one that reached the target.
    first_must_reach : bool
        Whether the job is given up if the first try of its first recurrence misses the target.

    Attributes
    ----------
    min_cost_j, best_batch_size : float, and int or None
        Cost of the cheapest recurrence, infinity before the first, and the batch size that reached its target; before
        any the default.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.4: early stopping at beta times the lowest cost.
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

    def cost_bound_j(self, others_cost_j: float = math.inf) -> float:
        """Cost at which the next run stops; `others_cost_j` is the lowest cost that others report of the job."""
        # If the cheapest recurrence cost nothing, infinity times 0 would be NaN.
        return math.inf if math.isinf(self.beta_knob) else self.beta_knob * min(self.min_cost_j, others_cost_j)

    def record_try(
        self, recurrence: int, batch_size: int, cost_j: float, reached: bool, *, started: bool = True
    ) -> str | None:
        """Record a try of a recurrence, counted from 0, that has ended; return why the job is given up, None if not.

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
