"""Sample of a recurring job: a small network learns scikit-learn's handwritten digits, and a server its batch size.

``bftrainer bso quickstart`` makes its runs. Small batches take more steps, so an epoch takes longer; large ones make
fewer updates, so more epochs are needed, and the largest does not reach the target.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bftrainer.extras import require_extra
from bftrainer.zeus.integrations.served import ServerRun, server_run
from bftrainer.zeus.master.sample_training import Floats, Labels, batches, perceptron
from bftrainer.zeus.master.training import TrialDriver
from bftrainer.zeus.server.client import BatchSizeClient
from bftrainer.zeus.server.messages import TuningParams
from bftrainer.zeus.server.state_messages import JobSummary

JOB = TuningParams.model_validate(
    {
        "job_id": "quickstart-digits",
        "job_id_prefix": "quickstart",
        "batch_sizes": [8, 16, 32, 64, 128, 256, 512],
        "default_batch_size": 16,
        # Runs of half a second differ by what else the machine does.
        "beta_knob": 3.0,
        "target_metric": 0.95,
        "max_epochs": 20,
        "mab_seed": 1,
    }
)
LEARNING_RATE = 0.05
# Images to learn from; accuracy is that on the others, of 1,797. All runs share them.
LEARNED, DATA_SEED = 1400, 20230417


def digits() -> tuple[Floats, Labels]:
    """Load 1,797 images of 64 pixels each, from 0 to 1, in an order that is always the same.

    Raises
    ------
    SettingsError
        If scikit-learn is not installed.
    """
    require_extra("The sample training needs", "sample")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(DATA_SEED).permutation(labels.size)
    return images[order] / 16.0, labels[order]


def train_digits(run: TrialDriver, images: Floats, labels: Labels, seed: int) -> None:
    """Train a new network on digits as a driver says; the seed decides its weights and the order of batches."""
    network, rng = perceptron(run.batch_size, LEARNING_RATE, seed), np.random.default_rng(seed)
    for _ in run.epochs():
        for batch in run.steps(batches(rng, images[:LEARNED], labels[:LEARNED], run.batch_size)):
            network.partial_fit(*batch, classes=range(10))
        run.report(float(network.score(images[LEARNED:], labels[LEARNED:])))


@contextmanager
def private_client() -> Iterator[BatchSizeClient]:
    """Open a client of a batch-size server in this process, which nobody else can reach and which keeps nothing.

    Raises
    ------
    SettingsError
        If what servers need is not installed.
    """
    require_extra("The server needs", "server")
    import httpx
    import uvicorn

    from bftrainer.zeus.server.app import create_app
    from bftrainer.zeus.server.settings import ServerSettings

    # Such a folder is its user's alone.
    with tempfile.TemporaryDirectory(prefix="bftrainer-bso-") as folder:
        socket = f"{folder}/socket"
        app = create_app(ServerSettings(f"sqlite:///{folder}/bso.db"))
        server = uvicorn.Server(uvicorn.Config(app, uds=socket, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, name="batch-size server", daemon=True)
        thread.start()
        try:
            # The first request is repeated until the server listens.
            transport = httpx.HTTPTransport(uds=socket)
            with BatchSizeClient("http://localhost", retries=8, transport=transport) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def recurrences(
    client: BatchSizeClient, runs: int, *, max_power_w: float, measure: str = "model", seed: int = 1
) -> Iterator[ServerRun]:
    """Make runs of the sample job, one after the other; yield each when it has ended.

    Parameters
    ----------
    client : BatchSizeClient
        Client of the server that decides.
    runs : int
    max_power_w : float
        Highest power of this machine; its GPUs do nothing here.
    measure : str
        How energy is measured, see `open_meter`.
    seed : int
        Seed of the first run; each later run uses the next number.

    Raises
    ------
    SettingsError
        If scikit-learn is not installed.
    ServerRequestError, MeasurementError
        See `server_run`.
    """
    images, labels = digits()
    from threadpoolctl import threadpool_limits  # which scikit-learn brings

    # What a first epoch loads would be booked on the first run.
    untimed = perceptron(JOB.default_batch_size, LEARNING_RATE, seed)
    untimed.partial_fit(images[:LEARNED], labels[:LEARNED], classes=range(10)).score(images, labels)
    for number in range(runs):
        deciding = server_run(client, JOB, measure=measure, max_power_w=max_power_w, find=lambda: None)
        # Threads would wait for one another longer than they compute.
        with deciding as run, threadpool_limits(1):
            train_digits(run, images, labels, seed + number)
        yield run


def chosen(job: JobSummary) -> int:
    """Return the batch size believed to be the cheapest; while batch sizes are pruned, that of the cheapest run."""
    means = {arm.batch_size: arm.mean for arm in job.arms if arm.mean is not None}
    return max(means, key=means.__getitem__) if means else job.min_cost_batch_size
