"""Callbacks that let a driver lead the training loops of Lightning, Hugging Face's Trainer and Keras.

Each is made for a `TrialDriver`: with `server_run` a batch-size server decides, with `training_run` the master that
launched the script, with `on_all_ranks` either of them for several processes. A loop of one's own needs no callback: it
runs over ``run.epochs()`` and ``run.steps(batches)``, and calls ``run.report(metric)``. Frameworks are imported when a
callback is made.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bftrainer.errors import SettingsError, suggestion
from bftrainer.zeus.master.training import TrialDriver


def _next_epoch(run: TrialDriver, metrics: Mapping[str, Any], monitor: str) -> bool:
    """Report a metric, end the epoch, and begin the next; False if training is over."""
    if monitor not in metrics:
        raise SettingsError(f"Unknown metric {monitor!r}.{suggestion(monitor, sorted(metrics))}")
    run.report(float(metrics[monitor]))
    return run.begin_epoch()


def lightning_callback(run: TrialDriver, monitor: str) -> Any:
    """Make a callback for Lightning's ``Trainer``, of ``pytorch_lightning`` if only that has been imported.

    Parameters
    ----------
    run : TrialDriver
    monitor : str
        Name under which the module logs its metric, in training or validation steps.
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
    """Make a callback for the ``Trainer`` of Hugging Face's transformers, which has to evaluate after each epoch.

    Parameters
    ----------
    run : TrialDriver
    monitor : str
        Name of the metric, such as ``eval_accuracy``. `SettingsError` unless ``eval_strategy`` is "epoch".
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
    """Make a callback for ``fit`` of Keras 3, whatever its backend.

    Parameters
    ----------
    run : TrialDriver
    monitor : str
        Name of the metric, such as ``val_accuracy``.
    """
    keras: Any = import_module("keras")

    class DrivenCallback(keras.callbacks.Callback):  # type: ignore[misc]  # of no known type
        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
            run.begin_epoch()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            run.step()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.model.stop_training |= not _next_epoch(run, logs or {}, monitor)

    return DrivenCallback()
