"""Callbacks by which a driver leads the loops of Lightning, Hugging Face's Trainer and Keras; Zeus's data loader.

Each callback is made for a `TrialDriver`: with `server_run` a batch-size server decides, with `training_run` the master
that launched the script, with `on_all_ranks` either of them for several processes. A loop of one's own needs none: it
runs over ``run.epochs()`` and ``run.steps(batches)``, and calls ``run.report(metric)``. Frameworks are imported when a
callback is made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bftrainer.errors import SettingsError, TrainingStoppedError, TuningError, suggestion
from bftrainer.zeus.integrations.drivers import Ranks, find_ranks, on_all_ranks
from bftrainer.zeus.master.script import RunEnvironment
from bftrainer.zeus.master.training import TrainingRun, TrialDriver, training_run


def _next_epoch(run: TrialDriver, metrics: Mapping[str, Any], monitor: str) -> bool:
    """Report a metric, end the epoch, and begin the next; False if training is over."""
    if monitor not in metrics:
        raise SettingsError(f"Unknown metric {monitor!r}.{suggestion(monitor, sorted(metrics))}")
    run.report(float(metrics[monitor]))
    return run.begin_epoch()


def lightning_callback(run: TrialDriver, monitor: str) -> Any:
    """Make a callback for Lightning's ``Trainer``, of ``pytorch_lightning`` if only that has been imported.

    `monitor` is the name under which the module logs its metric, in training or validation steps.
    """
    older = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    lightning: Any = import_module("pytorch_lightning" if older else "lightning.pytorch")

    class DrivenCallback(lightning.Callback):  # type: ignore[misc]  # of no known type
        def on_train_start(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            run.begin_epoch()

        def on_train_batch_start(self, *_: Any) -> None:
            run.step()

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            # The validation of an epoch is part of it, and over by now.
            trainer.should_stop |= not _next_epoch(run, trainer.callback_metrics, monitor)

    return DrivenCallback()


def transformers_callback(run: TrialDriver, monitor: str) -> Any:
    """Make a callback for the ``Trainer`` of Hugging Face's transformers, with ``eval_strategy`` "epoch".

    `monitor` is the name of the metric, such as ``eval_accuracy``.
    """
    transformers: Any = import_module("transformers")

    class DrivenCallback(transformers.TrainerCallback):  # type: ignore[misc]  # of no known type
        # Evaluations before and after training are none of the run's.
        training = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if (strategy := args.eval_strategy) != "epoch":
                raise SettingsError(f"Expected eval_strategy='epoch', got {getattr(strategy, 'value', strategy)!r}.")
            self.training = run.begin_epoch()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            run.step()

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:  # noqa: ARG002
            if self.training:
                self.training = _next_epoch(run, metrics, monitor)
                control.should_training_stop |= not self.training

    return DrivenCallback()


def keras_callback(run: TrialDriver, monitor: str) -> Any:
    """Make a callback for ``fit`` of Keras 3, whatever its backend; `monitor` is a metric such as ``val_accuracy``."""
    keras: Any = import_module("keras")

    class DrivenCallback(keras.callbacks.Callback):  # type: ignore[misc]  # of no known type
        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
            run.begin_epoch()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            run.step()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.model.stop_training |= not _next_epoch(run, logs or {}, monitor)

    return DrivenCallback()


class ZeusDataLoader:
    """A loader of PyTorch that measures the training run, tries power limits in it, and reports it to the master.

    Parameters
    ----------
    *args, **kwargs : object
        Arguments of ``torch.utils.data.DataLoader``, the data set first.
    batch_size : int
        Samples in a batch of this process; the run's batch size is that of all processes together.
    max_epochs : int
        Epochs after which the run gives up; -1: this loader only loads.
    distributed : str or None
        ``dp`` for data-parallel training in several processes of one node, whose group is initialised.

    Raises
    ------
    SettingsError, TuningInputError
        If `distributed` is something else, the group is not initialised, or a variable is missing or invalid.

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
        """Yield the epochs to train, from 0, on all ranks: `TrainingStoppedError` if one more would cost too much."""
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
