"""Training on several processes: rank 0 asks, measures and reports, and all of them begin and stop together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from bftrainer.errors import SettingsError, TrainingStoppedError
from bftrainer.zeus.master.training import TrialDriver


class Ranks(Protocol):
    """The processes of a training run, of which this is the one with number `rank`, from 0 to `size` - 1."""

    rank: int
    size: int

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value, a tuple of plain values, on all ranks; all have to call it."""


class TorchRanks(Ranks):
    """The processes of ``torch.distributed``'s default group, whatever its backend; the group has to be initialised."""

    def __init__(self) -> None:
        self._group = sys.modules["torch"].distributed
        self.rank, self.size = self._group.get_rank(), self._group.get_world_size()

    def broadcast(self, value: Any) -> Any:
        """See `Ranks`."""
        values = [value]
        self._group.broadcast_object_list(values, src=0)
        return values[0]


def find_ranks(environ: Mapping[str, str]) -> Ranks | None:
    """Find the processes of this run, if there are several: `SettingsError` if their group is not initialised."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = TorchRanks()
        return ranks if ranks.size > 1 else None
    if (size := environ.get("WORLD_SIZE", "1")) != "1":
        raise SettingsError(f"Expected torch.distributed.init_process_group() first, as WORLD_SIZE is {size}.")
    return None


class RankedRun(TrialDriver):
    """A run of several ranks: rank 0 opens the driver, the others hear from it. Made by `on_all_ranks`."""

    def __init__(self, ranks: Ranks, open_driver: Callable[[], TrialDriver]) -> None:
        self.ranks, self._open = ranks, open_driver
        self._driver: TrialDriver | None = None
        self._agree(lambda _: None)

    def begin_epoch(self) -> bool:
        """See `TrialDriver`; all ranks have to call it."""
        return bool(self._agree(lambda driver: driver.begin_epoch()))

    def step(self) -> None:
        """See `TrialDriver`; rank 0 sets the power limits of all GPUs."""
        if self._driver is not None:
            self._driver.step()

    def report(self, metric: float) -> bool:
        """See `TrialDriver`; all ranks have to call it, and the metric of rank 0 counts."""
        return bool(self._agree(lambda driver: driver.report(metric)))

    def _agree(self, ask: Callable[[TrialDriver], Any]) -> Any:
        """Ask the driver on rank 0, and return the answer on all ranks; where that fails, all ranks raise."""
        answer: tuple[Any, ...] = ()
        if self.ranks.rank == 0:
            try:
                driver = self._driver = self._driver or self._open()
                answer = (None, ask(driver), driver.batch_size, driver.max_epochs, driver.epochs_done, driver.reached)
            except BaseException as error:  # whatever it is, the others must not wait for ever; it is raised again
                self.ranks.broadcast((f"{type(error).__name__}: {error}",))
                raise
        failure, *state = self.ranks.broadcast(answer)
        if failure is not None:
            raise TrainingStoppedError(f"Rank 0 failed: {failure}")
        result, self.batch_size, self.max_epochs, self.epochs_done, self.reached = state
        return result


@contextmanager
def on_all_ranks(
    opening: AbstractContextManager[TrialDriver],
    ranks: Ranks | None = None,
    *,
    all_nodes_measured: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Iterator[TrialDriver]:
    """Open a driver on rank 0 alone, and let all ranks train as it says.

    Parameters
    ----------
    opening : context manager of TrialDriver
        Made by `server_run` or `training_run`; ranks other than 0 do not enter it.
    ranks : Ranks, optional
        The processes; by default those of ``torch.distributed``, if there are several.
    all_nodes_measured : bool
        Whether the driver's meter counts the energy of all nodes. Those of this package count that of rank 0's node.
    environ : mapping of str to str, optional
        Variables that ``torchrun`` sets; by default the process's environment.

    Raises
    ------
    SettingsError
        If there are several processes whose group is not initialised, or several nodes of which not all are measured.
    TrainingStoppedError
        On ranks other than 0, by this and all methods, if rank 0 failed.
    """
    environ = os.environ if environ is None else environ
    ranks = ranks or find_ranks(environ)
    if ranks is None:
        with opening as driver:
            yield driver
        return
    here = int(environ.get("LOCAL_WORLD_SIZE", ranks.size))
    if here < ranks.size and not all_nodes_measured:
        raise SettingsError(
            f"Expected all {ranks.size} ranks on one node, whose energy is measured, got {here}; with a meter of all "
            "nodes, say all_nodes_measured=True."
        )
    with ExitStack() as stack:
        yield RankedRun(ranks, lambda: stack.enter_context(opening))
