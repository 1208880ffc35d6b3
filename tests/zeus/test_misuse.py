"""What the published classes refuse, ours refuse alike, save for the rows of one table."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.zeus import GTSBatchSizeOptimizer, Job, PruningExploreManager, PruningGTSBatchSizeOptimizer
from tests.zeus.deviations import DEVIATIONS, deviation
from tests.zeus.golden import units

JOB = Job("d", "n", "adam", 0.5, 3, 8, 0.1)
BARE = replace(JOB, default_bs=None)


def asked():
    """An exploration that has asked for batch size 8."""
    manager = PruningExploreManager([8, 16], 8)
    manager.next_batch_size()
    return manager


def registered():
    """The published policy, pruning."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    policy.register_job(JOB, [8, 16])
    return policy


def sampling():
    """Sampling alone, with one batch size."""
    policy = GTSBatchSizeOptimizer(True, verbose=False)
    policy.register_job(JOB, [8])
    return policy


def twice():
    """An exploration that was told of batch size 8, twice."""
    manager = asked()
    for _ in range(2):
        manager.report_batch_size_result(8, 1.0, True)


def prune_without_verdict():
    """A run while pruning of which it is not said whether it converged."""
    policy = registered()
    policy.observe(JOB, policy.predict(JOB), 1.0)


MISUSE = {
    "explore: default not in list": lambda: PruningExploreManager([8, 16], 4),
    "explore: next twice": lambda: asked().next_batch_size(),
    "explore: report other bs": lambda: asked().report_batch_size_result(16, 1.0, True),
    "explore: report before next": lambda: PruningExploreManager([8, 16], 8).report_batch_size_result(8, 1.0, True),
    "explore: report twice": twice,
    "pruning bso: register without default": lambda: registered().register_job(BARE, [8]),
    "pruning bso: register empty": lambda: PruningGTSBatchSizeOptimizer().register_job(JOB, []),
    "pruning bso: predict unregistered": lambda: PruningGTSBatchSizeOptimizer().predict(JOB),
    "gts: predict unregistered": lambda: GTSBatchSizeOptimizer(True).predict(JOB),
    "gts: observe unknown bs": lambda: sampling().observe(JOB, 16, 1.0, True),
    "pruning bso: observe converged=None in pruning": prune_without_verdict,
    "pruning bso: deepcopy after register (passing a used BSO to the Simulator)": lambda: deepcopy(registered()),
    "Job.gen_command without command": lambda: JOB.gen_command(8, 0.1, 1, 1),
    "Job.scale_lr without lr": lambda: replace(JOB, default_lr=None).scale_lr(8),
    "Job.scale_lr unknown optimizer": lambda: replace(JOB, optimizer="lamb").scale_lr(8),
}


def outcome(misuse):
    """The exception, or None."""
    try:
        misuse()
    except BftrainerError as error:
        return error
    return None


@pytest.mark.parametrize(("name", "published", "_message"), units()["errors"], ids=lambda value: str(value)[:40])
def test_published_refusals(name, published, _message):
    """Who catches the published exception catches ours, if no row of the table says otherwise; texts are one line."""
    error = outcome(MISUSE[name])
    row = deviation(name, published)
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if row is None:
        assert published in kinds
    else:
        assert published not in kinds
        assert (type(error).__name__ if error else "no exception") == row.ours
    assert error is None or "\n" not in str(error)


def test_the_table_is_about_recorded_cases():
    """Each row names a misuse that was recorded, or options of the simulated groups, once, with a reason."""
    recorded = {name: kind for name, kind, _ in units()["errors"]}
    about_misuse = [row for row in DEVIATIONS if not row.where.startswith("{")]
    assert all(recorded[row.where] == row.published for row in about_misuse)
    assert len({(row.where, row.published) for row in DEVIATIONS}) == len(DEVIATIONS)
    assert all(row.reason.endswith(".") for row in DEVIATIONS)
