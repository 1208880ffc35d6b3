"""Sample of a recurring job: a small network learns scikit-learn's handwritten digits.

``bftrainer bso quickstart`` makes runs whose batch size a server chooses; the tutorial's job has the master launch
``python -m bftrainer.zeus.integrations.sample_digits --batch-size 32``. Small batches take more steps, so an epoch
takes longer; large ones make fewer updates, so more epochs are needed, and the largest does not reach the target.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.plugins import require_extra
from bftrainer.zeus.integrations.drivers import ServerRun
from bftrainer.zeus.master.hardware import ModelMeter
from bftrainer.zeus.master.script import TrialDriver, training_run
from bftrainer.zeus.server.client import Trial
from bftrainer.zeus.server.messages import JobSpec

if TYPE_CHECKING:
    from bftrainer.zeus.server.service import BatchSizeService

JOB_ID, DEFAULT_BATCH_SIZE, BETA_KNOB = "quickstart-digits", 16, 3.0
LEARNING_RATE, HIDDEN, MOMENTUM = 0.05, 64, 0.9
# Images to learn from; accuracy is that on the others, of 1,797. All runs share them.
LEARNED, DATA_SEED = 1400, 20230417


def load_images() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Load 1,797 images of 64 pixels each, from 0 to 1, and their digits, in an order that is always the same."""
    require_extra("The sample training needs", "sample")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(DATA_SEED).permutation(labels.size)
    return images[order] / 16.0, labels[order]


def train(run: TrialDriver, learning_rate: float, seed: int, *, verbose: bool = False) -> None:
    """Train a new network as a driver says; the seed decides its weights and the order of batches."""
    images, labels = load_images()
    from sklearn.base import clone
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits  # which scikit-learn brings

    descent = {"solver": "sgd", "learning_rate_init": learning_rate, "momentum": MOMENTUM, "shuffle": False}
    network = MLPClassifier((HIDDEN,), batch_size=run.batch_size, random_state=seed, **descent)
    rng = np.random.default_rng(seed)
    # Threads would wait for one another longer than they compute.
    with threadpool_limits(1):
        # What a first epoch loads would be booked on the first run.
        clone(network).partial_fit(images[:LEARNED], labels[:LEARNED], classes=range(10)).score(images, labels)
        for epoch in run.epochs():
            order = rng.permutation(LEARNED)
            # Images that fill no whole batch are left out.
            for start in run.steps(range(0, LEARNED - run.batch_size + 1, run.batch_size)):
                batch = order[start : start + run.batch_size]
                network.partial_fit(images[batch], labels[batch], classes=range(10))
            accuracy = float(network.score(images[LEARNED:], labels[LEARNED:]))
            run.report(accuracy)
            if verbose:
                click.echo(f"epoch {epoch + 1:3}: accuracy {accuracy:.4f}")


def make_served_runs(service: BatchSizeService, runs: int, *, max_power_w: float, seed: int = 1) -> Iterator[ServerRun]:
    """Make runs whose batch size the core of a server chooses, one after the other; yield each when it has ended.

    Their time is the processor's, which other programs of a busy machine do not lengthen, and their energy is modelled
    from it: what runs cost says something of batch sizes even if the runs take half a second.
    """
    job = JobSpec(
        job_id=JOB_ID,
        job_id_prefix="quickstart",
        batch_sizes=[8, 16, 32, 64, 128, 256, 512],
        default_batch_size=DEFAULT_BATCH_SIZE,
        beta_knob=BETA_KNOB,
        target_metric=0.95,
        max_epochs=20,
        mab_seed=1,
        max_power=max_power_w,
        number_of_gpus=1,
        gpu_model="processor",
    )
    service.register_job(job)
    load_images()
    meter = ModelMeter(max_power_w, os.cpu_count() or 1, lambda: (time.process_time(), time.process_time()))
    for number in range(runs):
        with Trial(service, service.predict(JOB_ID)) as trial:
            run = ServerRun(trial, job.max_epochs, meter, time.process_time)
            train(run, LEARNING_RATE, seed + number)
        yield run


@click.command()
@click.option("--batch-size", type=click.IntRange(1, LEARNED), required=True)
@click.option("--learning-rate", type=float, default=LEARNING_RATE, show_default=True)
@click.option("--epochs", type=click.IntRange(min=1), default=20, show_default=True, help="Give up after so many.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
def main(batch_size: int, learning_rate: float, epochs: int, seed: int) -> None:
    """Train until the accuracy that ZEUS_TARGET_METRIC asks for, as a master launches it."""
    try:
        with training_run(batch_size, epochs) as run:
            train(run, learning_rate, seed, verbose=True)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
