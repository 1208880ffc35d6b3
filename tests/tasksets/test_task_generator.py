from collections import Counter

import numpy as np
import pytest

from bftrainer.errors import InvalidTaskError, SettingsError
from bftrainer.tasksets import read_task_set
from bftrainer.tasksets.task_generator import IMAGENET_CURVES, generate_tasks


def generated(scenario="nas", count=70, seed=1, **options):
    """Tasks from a seed."""
    return generate_tasks(scenario, count, np.random.default_rng(seed), **options)


def test_hpo_is_many_equal_trials():
    """HPO tasks differ in name and submission alone."""
    tasks = generated("hpo", 5, interval_s=60.0, model="resnet18")
    assert [task.submit_s for task in tasks] == [0.0, 60.0, 120.0, 180.0, 240.0]
    assert len({task.name for task in tasks}) == 5
    assert len({(task.grow_cost_s, task.shrink_cost_s, task.scaling, task.work) for task in tasks}) == 1
    assert tasks[0].scaling is IMAGENET_CURVES["resnet18"]


def test_nas_mixes_all_models():
    """NAS tasks take each of the seven models equally often, in an order and with costs that are drawn."""
    tasks = generated("nas", 70)
    assert Counter(task.name.split("-")[1] for task in tasks) == dict.fromkeys(IMAGENET_CURVES, 10)
    assert len({task.grow_cost_s for task in tasks}) == 70


@pytest.mark.parametrize("scenario", ["hpo", "nas"])
def test_costs_are_in_the_published_range(scenario):
    """Costs are drawn from 17 to 19 s for growing, and 11 to 13 s for shrinking."""
    for task in generated(scenario):
        assert 17 <= task.grow_cost_s <= 19
        assert 11 <= task.shrink_cost_s <= 13


def test_seed_decides():
    """Equal seeds give equal tasks, others do not."""
    assert generated(seed=5) == generated(seed=5)
    assert generated(seed=5) != generated(seed=6)


def test_dates():
    """With a start, submissions are dates."""
    submissions = [task.submit_ns for task in generated(count=2, start_ns=10**18, interval_s=0.5)]
    assert submissions == [10**18, 10**18 + 5 * 10**8]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scenario": "npo"}, SettingsError, "Unknown scenario 'npo'. Did you mean 'hpo'?"),
        ({"scenario": "hpo", "model": "resnet"}, SettingsError, "Unknown model 'resnet'. Did you mean 'resnet18'?"),
        ({"count": 0}, SettingsError, "Expected at least one task, got 0."),
        ({"interval_s": -1.0}, SettingsError, "Expected an interval >= 0 s, got -1.0."),
        ({"interval_s": float("nan")}, SettingsError, "Expected an interval >= 0 s, got nan."),
        ({"interval_s": 1e30, "start_ns": 10**18}, SettingsError, "Expected 70 submissions before the year 2262"),
        ({"max_nodes": 65}, InvalidTaskError, "Expected max_nodes within the scaling curve"),
        ({"min_nodes": 9, "max_nodes": 8}, InvalidTaskError, "Expected min_nodes <= max_nodes, got 9 > 8"),
    ],
)
def test_bad_options(options, error, message):
    """Options out of range are refused, with a suggestion where one helps."""
    with pytest.raises(error) as caught:
        generated(**options)
    assert str(caught.value).startswith(message)


def test_curves_are_the_published_ones(published):
    """The embedded throughputs are those of the published task set."""
    tasks = read_task_set(published / "ImageNet-imgps-Jbnd-1001J.pkl").tasks
    assert {task.name.split("-", 1)[1]: task.scaling for task in tasks} == IMAGENET_CURVES
