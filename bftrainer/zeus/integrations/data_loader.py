"""A data loader with the arguments and the behaviour of Zeus's, for scripts that were written with that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bftrainer.errors import SettingsError, TrainingStoppedError, TuningError
from bftrainer.zeus.integrations.ranks import Ranks, find_ranks, on_all_ranks
from bftrainer.zeus.master.script import RunEnvironment
from bftrainer.zeus.master.training import TrainingRun, TrialDriver, training_run


class ZeusDataLoader:
    """A loader of PyTorch that measures the training run, tries power limits in it, and reports it to the master.

    The one with `max_epochs` loads training data and leads the run, as the environment asks; others only load.
    All else of a ``DataLoader`` is there too.

    Parameters
    ----------
    *args, **kwargs : object
        Arguments of ``torch.utils.data.DataLoader``, the data set first.
    batch_size : int
        Samples in a batch of this process; the run's batch size is that of all processes together.
    max_epochs : int
        Epochs after which the run gives up; -1: this loader does not lead.
    distributed : str or None
        ``dp`` for data-parallel training in several processes of one node, whose group is initialised.

    Raises
    ------
    SettingsError, TuningInputError
        If `distributed` is something else, the group of processes is not initialised, or the environment has no target
        metric, or a variable with an invalid value.

    References
    ----------
    https://ml.energy/zeus/, version 0.2, "Integrating Zeus".
    """

    def __init__(
        self, *args: Any, batch_size: int, max_epochs: int = -1, distributed: str | None = None, **kwargs: Any
    ) -> None:
        if distributed not in (None, "dp"):
            raise SettingsError(f"Expected distributed to be None or 'dp', got {distributed!r}.")
        self._loader = import_module("torch.utils.data").DataLoader(*args, batch_size=batch_size, **kwargs)
        self.max_epochs = max_epochs
        self._ranks: Ranks | None = None
        self._run: TrialDriver | None = None
        self._measured: TrainingRun | None = None
        if max_epochs != -1:
            self._environment = RunEnvironment.read(os.environ)
            self._ranks = find_ranks(os.environ) if distributed == "dp" else None

    @property
    def target_metric(self) -> float:
        """Metric at which the run has reached its target; of a loader that leads."""
        return self._leading().target_metric

    def epochs(self) -> Iterator[int]:
        """Yield the numbers of the epochs to train, from 0, until the target or `max_epochs`; on all ranks alike.

        `TrainingStoppedError` if one more epoch would reach the cost threshold; the report is written before.
        `TuningError` if the loader was made without `max_epochs`.
        """
        self._leading()
        with self._open_run() if self._ranks is None else on_all_ranks(self._open_run(), self._ranks) as run:
            self._run = run
            try:
                yield from run.epochs()
            finally:
                self._run = None
        if not run.reached and run.epochs_done < run.max_epochs:
            raise TrainingStoppedError(f"One more epoch after {run.epochs_done} would reach the cost threshold.")

    def report_metric(self, metric: float, higher_is_better: bool = True) -> None:
        """Report the validation metric of an epoch, the same one on all ranks."""
        if self._run is None:
            raise TuningError("Expected a metric of one of the epochs(), got one before they began.")
        if self._measured is not None:
            self._measured.higher_is_better = higher_is_better
        self._run.report(float(metric))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader) if self._run is None else self._run.steps(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while there is none yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def _leading(self) -> RunEnvironment:
        if self.max_epochs == -1:
            raise TuningError("Expected the loader that was made with max_epochs, got one without.")
        return self._environment

    @contextmanager
    def _open_run(self) -> Iterator[TrainingRun]:
        """Open the run, on one process or rank 0."""
        cuda = import_module("torch").cuda
        batch_size = self._loader.batch_size * (1 if self._ranks is None else self._ranks.size)
        synchronize = cuda.synchronize if cuda.is_available() else None
        with training_run(batch_size, self.max_epochs, synchronize=synchronize) as self._measured:
            yield self._measured
