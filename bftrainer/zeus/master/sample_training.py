"""Sample training script: a scikit-learn perceptron that learns which arm of a spiral a point lies on.

The tutorial's job runs ``python -m bftrainer.zeus.master.sample_training --batch-size 32``. Small batches
take more steps, so an epoch takes longer; large ones make fewer updates, so more epochs are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.extras import require_extra
from bftrainer.zeus.master.training import training_run

if TYPE_CHECKING:
    from sklearn.neural_network import MLPClassifier

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

ARMS, POINTS_PER_ARM, HIDDEN = 3, 1000, 64
MOMENTUM = 0.9
# All runs of the job share the points; a run's seed decides the weights and the order of batches.
DATA_SEED = 20230417


def spirals(rng: np.random.Generator, points_per_arm: int = POINTS_PER_ARM) -> tuple[Floats, Labels]:
    """Draw noisy points on the arms of a spiral.

    Returns
    -------
    points : array of float, shape (n, 2)
    arms : array of int, shape (n,)
    """
    along = np.tile(np.linspace(0.0, 1.0, points_per_arm), ARMS)
    arms = np.repeat(np.arange(ARMS), points_per_arm)
    angle = 2 * np.pi * (arms / ARMS + 0.75 * along) + rng.normal(0.0, 0.15, along.size)
    return np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1), arms


def perceptron(batch_size: int, learning_rate: float, seed: int) -> MLPClassifier:
    """Make a network with one hidden layer, trained by stochastic gradient descent with momentum.

    Raises
    ------
    SettingsError
        If scikit-learn is not installed.
    """
    require_extra("The sample training needs", "sample")
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        (HIDDEN,),
        solver="sgd",
        learning_rate_init=learning_rate,
        momentum=MOMENTUM,
        batch_size=batch_size,
        random_state=seed,
        shuffle=False,
    )


def batches(rng: np.random.Generator, points: Floats, arms: Labels, size: int) -> Iterator[tuple[Floats, Labels]]:
    """Yield an epoch's batches of one size, in random order; points that fill no whole batch are left out."""
    order = rng.permutation(arms.size)
    for start in range(0, arms.size - size + 1, size):
        chosen = order[start : start + size]
        yield points[chosen], arms[chosen]


@click.command()
@click.option("--batch-size", type=click.IntRange(1, ARMS * POINTS_PER_ARM), required=True)
@click.option("--learning-rate", type=float, default=0.05, show_default=True)
@click.option("--epochs", type=click.IntRange(min=1), default=60, show_default=True, help="Give up after so many.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
def main(batch_size: int, learning_rate: float, epochs: int, seed: int) -> None:
    """Train on spirals until the accuracy that ZEUS_TARGET_METRIC asks for."""
    points, arms = spirals(np.random.default_rng(DATA_SEED))
    unseen = spirals(np.random.default_rng(DATA_SEED + 1))
    rng = np.random.default_rng(seed)
    try:
        network = perceptron(batch_size, learning_rate, seed)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    with training_run(batch_size, epochs) as run:
        for epoch in run.epochs():
            for batch in run.steps(batches(rng, points, arms, batch_size)):
                network.partial_fit(*batch, classes=range(ARMS))
            accuracy = float(network.score(*unseen))
            run.report(accuracy)
            click.echo(f"epoch {epoch + 1:3}: accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
