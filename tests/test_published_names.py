"""Code written with the published classes finds them here under their names, with their parameters and attributes."""

import inspect
import pkgutil
import re
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from pydantic import BaseModel

from bftrainer.zeus import (
    GaussianTS,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    Job,
    PruningExploreManager,
    PruningGTSBatchSizeOptimizer,
    Simulator,
)
from bftrainer.zeus.master import ZeusMaster
from bftrainer.zeus.server import ZeusBatchSizeOptimizer

DOCS = Path(__file__).parents[1] / "docs"


@dataclass
class Published:
    """A public class, function or constant: its name, where it is here, and what it shows."""

    name: str
    ours: str
    call: str | None  # None where it is not called, as errors and data are not
    attributes: list[str] = field(default_factory=list)
    methods: dict[str, str] = field(default_factory=dict)


def read_published():
    """What published_names.txt lists, and the names of what differs."""
    text = Path(__file__).with_name("published_names.txt").read_text(encoding="utf-8")
    lines = [line for line in text.replace("\n      ", " ").splitlines() if not line.startswith("#")]
    published, different = [], {line[2:] for line in lines if line.startswith("!")}
    for line in lines:
        if match := re.fullmatch(r"(\S+) = ([\w.]+)(?:\((.*)\))?", line):
            published.append(Published(*match.groups()))
        elif match := re.fullmatch(r"    \.(\w+)\((.*)\)", line):
            published[-1].methods[match[1]] = match[2]
        elif line.startswith("    "):
            published[-1].attributes += line.split()
    return published, different


PUBLISHED, DIFFERENT = read_published()
TRAIN = pd.DataFrame(
    [["d", "n", "sgd", 8, 0.9, 4.0]],
    columns=["dataset", "network", "optimizer", "batch_size", "target_metric", "target_epoch"],
)
POWER = pd.DataFrame(
    [["d", "n", "sgd", 8, 200, 10.0, 150.0]],
    columns=["dataset", "network", "optimizer", "batch_size", "power_limit", "time_per_epoch", "average_power"],
)


@pytest.fixture
def made(tmp_path):
    """An instance of each class whose attributes are those of instances."""
    policies = PruningGTSBatchSizeOptimizer(verbose=False), JITPowerLimitOptimizer(False)
    return {
        Simulator: Simulator(TRAIN, POWER, *policies, verbose=False),
        Job: Job("d", "n", "sgd", 0.9, 12),
        GaussianTS: GaussianTS([8], 1.0, verbose=False),
        GTSBatchSizeOptimizer: GTSBatchSizeOptimizer(True, verbose=False),
        PruningGTSBatchSizeOptimizer: policies[0],
        JITPowerLimitOptimizer: policies[1],
        PruningExploreManager: PruningExploreManager([8, 16], 8),
        ZeusMaster: ZeusMaster(policies[0], str(tmp_path), "/opt/monitor", max_power_w=250),
        ZeusBatchSizeOptimizer: ZeusBatchSizeOptimizer(None),
    }


def check_call(function, wanted):
    """The published parameters come first, in their order and with their defaults; others have defaults."""
    wanted = [one.replace(" ", "") for one in wanted.split(", ") if one]
    ours = [
        str(parameter.replace(annotation=inspect.Parameter.empty)).replace(" ", "")
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and parameter.name != "self"
    ]
    assert ours[: len(wanted)] == wanted
    assert all("=" in one for one in ours[len(wanted) :])


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda each: each.name)
def test_it_is_there_with_all_that_it_shows(published, made):
    """The class, its constructor's parameters, its attributes and its methods' parameters are as published."""
    ours = pkgutil.resolve_name(published.ours)
    shown = made.get(ours, ours) if isinstance(ours, type) else ours
    fields = ours.model_fields if isinstance(ours, type) and issubclass(ours, BaseModel) else {}
    missing = [name for name in published.attributes if name not in fields and not hasattr(shown, name)]
    assert missing == []
    if published.call is not None:
        check_call(ours, published.call)
    for name, call in published.methods.items():
        check_call(getattr(ours, name), call)


def test_the_page_maps_each_name():
    """docs/zeus.md has each name with where it is here, and one table of those that differ, with all of them."""
    page = (DOCS / "zeus.md").read_text(encoding="utf-8")
    mapped, differing = page.split("## What differs")
    short = {published.name.rsplit(".", 1)[-1] for published in PUBLISHED}
    assert sorted(name for name in short if f"`{name}`" not in mapped) == []
    rows = [line.split("|")[1] for line in differing.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`(zeus\.[^`]+)`", row)) == sorted(DIFFERENT)
