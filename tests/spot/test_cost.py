"""What training costs."""

from __future__ import annotations

import pytest

from bftrainer.errors import SettingsError
from bftrainer.nodelogs.availability_trace import churned
from bftrainer.spot import CheckpointedTraining, Prices, run_figures, simulate
from bftrainer.spot.run import COST_FIGURES
from bftrainer.tasksets.measurements import TrainingProfile

HOUR_NS = 3600 * 10**9
PROFILE = TrainingProfile((2, 4), (36.0, 20.0), 60.0, 30.0, samples_per_iteration=8.0)
SETTINGS = CheckpointedTraining(PROFILE, depth=2, max_world_size=4)


def figures(prices, nodes=3, settings=SETTINGS):
    """Ten hours on so many nodes."""
    return run_figures(simulate(churned((0, 10 * HOUR_NS), nodes, []), settings), prices)


def test_cost_by_hand():
    """Three nodes for ten hours at 0.2 cost 6; two of them do 1,000 iterations of 8 samples.

    Four on demand at 0.5 cost 20 and do 1,800: 90 a unit, against 166.7.
    """
    found = figures(Prices(0.2, 0.5))
    assert (found["cost"], found["iterations_done"]) == (pytest.approx(6.0), 1000)
    assert found["iterations_per_currency"] == pytest.approx(1000 / 6)
    assert found["samples_per_currency"] == pytest.approx(8000 / 6)
    assert found["value_against_on_demand"] == pytest.approx(1000 / 6 / 90)
    assert found["samples_per_s"] == pytest.approx(8000 / 36_000)


def test_nodes_on_demand_train_in_whole_pipelines():
    """Of three nodes on demand two train, at 1,000 iterations in ten hours, and three are paid: 15."""
    found = figures(Prices(0.2, 0.5), settings=CheckpointedTraining(PROFILE, depth=2, max_world_size=3))
    assert found["value_against_on_demand"] == pytest.approx(1000 / 6 / (1000 / 15))


def test_figures_without_prices():
    """Without prices they are null, without a price on demand there is no comparison, without nodes no value."""
    assert {name: figures(None)[name] for name in COST_FIGURES} == dict.fromkeys(COST_FIGURES)
    assert figures(Prices(0.2))["value_against_on_demand"] is None
    assert figures(Prices(0.2, 0.5), nodes=0)["iterations_per_currency"] is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Prices(0.0), r"a price from 1e-9 to 1e9, got 0\.0"),
        (lambda: Prices(1.0, -1.0), r"an on-demand price from 1e-9 to 1e9, got -1\.0"),
    ],
)
def test_bad_prices(make, said):
    """Prices of nothing, and below, are refused."""
    with pytest.raises(SettingsError, match=said):
        make()
