"""Which batch sizes reach the target at all: outward from the default, both ways, some rounds over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bftrainer.errors import AllPrunedError, TuningInputError, TuningProtocolError, nearest

__all__ = ["PruningExploreManager"]


class PruningExploreManager:
    """Explore batch sizes outward from the default, and keep those that reached the target.

    A round goes from the default downwards until one does not reach its target, then upwards likewise: what lies beyond
    is never tried. The next round starts from the survivors at the cheapest of them. The state is a handful of plain
    values, so that it can be kept anywhere between two calls.

    Parameters
    ----------
    batch_sizes : sequence of int
        Batch sizes to explore; sorted first.
    default : int
        Where the first round starts.
    num_pruning_rounds : int
        Rounds to go; with 0 all batch sizes survive.

    Attributes
    ----------
    batch_sizes : list of int
        Those that have survived so far, in increasing order.
    default : int
        Where this round starts, or the next one does.
    expecting : int or None
        The batch size that was asked for and is not reported yet.
    rounds_left : int
        Rounds that are not over.

    Raises
    ------
    TuningInputError
        If `default` is not among `batch_sizes`, or the rounds are negative.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.4 and algorithm 3.
    """

    def __init__(self, batch_sizes: Sequence[int], default: int, num_pruning_rounds: int = 2) -> None:
        self.batch_sizes = sorted(int(size) for size in batch_sizes)
        if default not in self.batch_sizes:
            close = nearest(default, self.batch_sizes)
            raise TuningInputError(f"Expected the default batch size among {self.batch_sizes}, got {default}.{close}")
        if num_pruning_rounds < 0:
            raise TuningInputError(f"Expected 0 or more rounds of pruning, got {num_pruning_rounds}.")
        self.default = int(default)
        self.num_pruning_rounds = self.rounds_left = num_pruning_rounds
        self.expecting: int | None = None
        self._reached: dict[int, float] = {}
        self._ahead: list[int] = []
        self._upwards: list[int] = []
        self._start_round()

    @property
    def done(self) -> bool:
        """Whether all rounds are over; `batch_sizes` then holds the survivors, in increasing order."""
        return not self.rounds_left

    def next_batch_size(self) -> int:
        """The batch size to try next; what it did must be reported before the next one is asked for.

        Raises
        ------
        StopIteration
            If all rounds are over; its value is the list of survivors, which may be empty.
        AllPrunedError
            If no batch size survived, and there are rounds to go.
        TuningProtocolError
            If the last one was not reported yet.
        """
        if self.expecting is not None:
            raise TuningProtocolError(
                f"Expected a report on batch size {self.expecting} before the next one is asked for."
            )
        if self.done:
            raise StopIteration(list(self.batch_sizes))
        if not self.batch_sizes:
            raise AllPrunedError(
                "Expected a batch size that reaches the target, but none did in the first round of pruning; "
                f"it started at the default, {self.default}."
            )
        self.expecting = self._ahead[0]
        return self.expecting

    def report_batch_size_result(self, batch_size: int, cost: float, reached: bool) -> None:
        """Say what the batch size that was asked for did.

        Raises
        ------
        TuningProtocolError
            If another batch size was asked for, or none.
        """
        if self.expecting is None:
            raise TuningProtocolError(f"Expected no report before a batch size is asked for, got one on {batch_size}.")
        if batch_size != self.expecting:
            raise TuningProtocolError(f"Expected a report on batch size {self.expecting}, got one on {batch_size}.")
        self.expecting = None
        if reached:
            self._reached[int(batch_size)] = float(cost)
            self._ahead = self._ahead[1:]
        else:
            self._ahead = []
        if not self._ahead:
            self._ahead, self._upwards = self._upwards, []
        if not self._ahead:
            self._end_round()

    def _start_round(self) -> None:
        index = self.batch_sizes.index(self.default)
        self._ahead = self.batch_sizes[index::-1]
        self._upwards = self.batch_sizes[index + 1 :]
        self._reached = {}

    def _end_round(self) -> None:
        self.rounds_left -= 1
        self.batch_sizes = sorted(self._reached)
        if self._reached:
            # Of equally cheap ones the first that was tried.
            self.default = min(self._reached, key=lambda size: self._reached[size])
            self._start_round()

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {
            "batch_sizes": list(self.batch_sizes),
            "default": self.default,
            "num_pruning_rounds": self.num_pruning_rounds,
            "rounds_left": self.rounds_left,
            "expecting": self.expecting,
            "reached": [[size, cost] for size, cost in self._reached.items()],
            "ahead": list(self._ahead),
            "upwards": list(self._upwards),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> PruningExploreManager:
        """The manager whose `to_dict` gave `state`."""
        manager = cls.__new__(cls)
        manager.batch_sizes = list(state["batch_sizes"])
        manager.default = state["default"]
        manager.rounds_left = state["rounds_left"]
        # States that were kept before this was know only what is left.
        manager.num_pruning_rounds = state.get("num_pruning_rounds", manager.rounds_left)
        manager.expecting = state["expecting"]
        manager._reached = dict(state["reached"])
        manager._ahead, manager._upwards = list(state["ahead"]), list(state["upwards"])
        return manager
