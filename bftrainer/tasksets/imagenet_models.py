"""Measured scaling of the seven models whose training the published replays simulate."""

from __future__ import annotations

from bftrainer.model import ScalingCurve

__all__ = ["IMAGENET_CURVES"]

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
