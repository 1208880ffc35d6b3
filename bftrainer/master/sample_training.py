"""A small training script that really trains: which arm of a spiral a point lies on, by a perceptron.

``python -m bftrainer.master.sample_training --batch-size 32`` is what the tutorial's job runs. Small batches take more
steps, so an epoch takes longer; large ones make fewer updates, so more epochs are needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import click
import numpy as np
from numpy.typing import NDArray

from bftrainer.master.training import training_run

__all__ = ["Perceptron", "main", "spirals"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

ARMS, POINTS_PER_ARM, HIDDEN = 3, 1000, 64
MOMENTUM = 0.9
# The points are the job's; what a run's seed decides is its weights and the order of its batches.
DATA_SEED = 20230417


def spirals(rng: np.random.Generator, points_per_arm: int = POINTS_PER_ARM) -> tuple[Floats, Labels]:
    """Noisy points on the arms of a spiral.

    Returns
    -------
    points : array of float, shape (n, 2)
    arms : array of int, shape (n,)
    """
    along = np.tile(np.linspace(0.0, 1.0, points_per_arm), ARMS)
    arms = np.repeat(np.arange(ARMS), points_per_arm)
    angle = 2 * np.pi * (arms / ARMS + 0.75 * along) + rng.normal(0.0, 0.15, along.size)
    return np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1), arms


class Perceptron:
    """A network with one hidden layer, trained by stochastic gradient descent with momentum.

    Parameters
    ----------
    rng : Generator
        Draws the first weights.

    References
    ----------
    Goodfellow, Bengio and Courville, "Deep Learning" (2016), chapter 6 (back-propagation) and 8.3.2 (momentum).
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights = [
            rng.normal(0.0, 1.0, (2, HIDDEN)),
            rng.normal(0.0, 1.0, HIDDEN),
            rng.normal(0.0, HIDDEN**-0.5, (HIDDEN, ARMS)),
            np.zeros(ARMS),
        ]
        self.velocity = [np.zeros_like(each) for each in self.weights]

    def scores(self, points: Floats) -> tuple[Floats, Floats]:
        """The hidden layer, and how much speaks for each arm."""
        inner, bias, outer, offset = self.weights
        hidden = np.maximum(points @ inner + bias, 0.0)
        return hidden, hidden @ outer + offset

    def step(self, points: Floats, arms: Labels, learning_rate: float) -> None:
        """One step down the gradient of the cross-entropy of a batch."""
        hidden, scores = self.scores(points)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(arms.size), arms] -= 1.0
        error = shares / arms.size
        back = (error @ self.weights[2].T) * (hidden > 0)
        gradients = [points.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        for weight, velocity, gradient in zip(self.weights, self.velocity, gradients, strict=True):
            velocity *= MOMENTUM
            velocity -= learning_rate * gradient
            weight += velocity

    def accuracy(self, points: Floats, arms: Labels) -> float:
        """Share of points that are put on their arm."""
        return float((self.scores(points)[1].argmax(axis=1) == arms).mean())


def _batches(rng: np.random.Generator, points: Floats, arms: Labels, size: int) -> Iterator[tuple[Floats, Labels]]:
    order = rng.permutation(arms.size)
    for start in range(0, arms.size, size):
        chosen = order[start : start + size]
        yield points[chosen], arms[chosen]


@click.command()
@click.option("--batch-size", type=click.IntRange(min=1), required=True)
@click.option("--learning-rate", type=float, default=0.05, show_default=True)
@click.option("--epochs", type=click.IntRange(min=1), default=60, show_default=True, help="Give up after so many.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
def main(batch_size: int, learning_rate: float, epochs: int, seed: int) -> None:
    """Train on spirals until the accuracy that ZEUS_TARGET_METRIC asks for."""
    points, arms = spirals(np.random.default_rng(DATA_SEED))
    unseen = spirals(np.random.default_rng(DATA_SEED + 1))
    rng = np.random.default_rng(seed)
    network = Perceptron(rng)
    with training_run(batch_size, epochs) as run:
        for epoch in run.epochs():
            for batch in run.steps(_batches(rng, points, arms, batch_size)):
                network.step(*batch, learning_rate)
            accuracy = network.accuracy(*unseen)
            run.report(accuracy)
            click.echo(f"epoch {epoch + 1:3}: accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
