"""Generate task sets like the published ones: hyper-parameter optimisation and neural architecture search."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import numpy as np

from bftrainer.errors import SettingsError, suggestion
from bftrainer.model import NS_PER_S, ScalingCurve, TaskSpec

_NODES = (0, 1, 2, 4, 8, 16, 32, 64)

# Images per second of ImageNet training on Summit nodes (6 V100 each), as published with the BFTrainer log replayer
# (Liu et al., arXiv:2106.12091).
_IMAGES_PER_S = {
    "AlexNet": (7115.3, 13071.7, 21066.1, 40484.9, 74002.9, 130762.0, 202135.4),
    "vgg16": (1193.3, 2389.2, 4691.7, 9257.9, 18348.9, 36208.5, 70151.7),
    "resnet18": (5218.8, 10582.5, 20436.0, 39584.0, 78023.8, 144762.5, 262723.0),
    "DenseNet": (989.9, 1952.5, 3849.8, 7608.1, 14993.2, 28812.2, 57773.9),
    "mnasnet1": (3245.7, 6001.9, 11489.3, 23075.6, 43899.7, 83474.2, 160493.6),
    "shufflenet": (2831.0, 5259.0, 9988.0, 20379.2, 38895.3, 74125.1, 145081.5),
    "mobilenet": (3039.9, 5893.0, 11386.0, 22024.8, 42488.4, 82268.3, 155213.8),
}

IMAGENET_CURVES: dict[str, ScalingCurve] = {
    model: ScalingCurve(_NODES, (0.0, *rates)) for model, rates in _IMAGES_PER_S.items()
}
"""Model name -> throughput in images/s at 0 to 64 nodes."""


DEFAULT_WORK = 1.3e8  # images; the published tasks do 100 epochs of 1.3 million
_GROW_COST_S = (17.0, 19.0)
_SHRINK_COST_S = (11.0, 13.0)
_SUMMIT_GPUS_PER_NODE = 6
_LAST_NS = np.iinfo(np.int64).max


def generate_tasks(
    scenario: Literal["hpo", "nas"],
    count: int,
    rng: np.random.Generator,
    *,
    model: str = "shufflenet",
    work: float = DEFAULT_WORK,
    min_nodes: int = 1,
    max_nodes: int = 64,
    interval_s: float = 36.0,
    start_ns: int | None = None,
    user: str | None = None,
) -> tuple[TaskSpec, ...]:
    """Generate tasks of one of the two scenarios of arXiv:2106.12091, section 5.

    "hpo" is many equal trials of one `model`, with one pair of costs; "nas" the seven models mixed, equally often, each
    task with its own costs. Tasks train on `work` images each, and are submitted every `interval_s` from `start_ns` on
    (nanoseconds since the epoch; None counts seconds from the window's start).
    """
    if count < 1:
        raise SettingsError(f"Expected at least one task, got {count}.")
    if not 0 <= interval_s < math.inf:
        raise SettingsError(f"Expected an interval >= 0 s, got {interval_s}.")
    if start_ns is not None and start_ns + (count - 1) * interval_s * NS_PER_S >= _LAST_NS:
        raise SettingsError(f"Expected {count} submissions before the year 2262, got one every {interval_s} s.")
    names = list(IMAGENET_CURVES)
    if scenario not in ("hpo", "nas"):
        raise SettingsError(f"Unknown scenario {scenario!r}.{suggestion(scenario, ['hpo', 'nas'])}")
    if scenario == "hpo" and model not in names:
        raise SettingsError(f"Unknown model {model!r}.{suggestion(model, names)}")
    models = [model] * count
    if scenario == "nas":
        models = [names[index] for index in rng.permutation(np.resize(np.arange(len(names)), count))]
    group = f"hpo-{model}" if scenario == "hpo" else "nas"
    draws = 1 if scenario == "hpo" else count
    grow, shrink = (np.resize(rng.uniform(*bounds, draws), count) for bounds in (_GROW_COST_S, _SHRINK_COST_S))
    alike = partial(TaskSpec, min_nodes=min_nodes, max_nodes=max_nodes, work=work, group=group, user=user)
    return tuple(
        alike(
            name=f"J{i:05d}-{models[i]}",
            scaling=IMAGENET_CURVES[models[i]],
            grow_cost_s=float(grow[i]),
            shrink_cost_s=float(shrink[i]),
            submit_s=i * interval_s if start_ns is None else 0.0,
            submit_ns=None if start_ns is None else start_ns + round(i * interval_s * NS_PER_S),
            gpus_per_node=_SUMMIT_GPUS_PER_NODE,
        )
        for i in range(count)
    )
