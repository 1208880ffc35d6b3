"""docs/master.md names what the master's commands and files take and leave."""

from __future__ import annotations

import inspect

import pytest

from benchmarks.published import ROOT
from bftrainer.cli.zeus.master import run, status
from bftrainer.zeus.master import ZeusMaster
from bftrainer.zeus.master.script import MEASURES, JobFile, LaunchedJob, RunEnvironment
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES

PAGE = (ROOT / "docs" / "master.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [run, status], ids=lambda command: command.name)
def test_every_option_is_described(command):
    """Each option of each command stands on the page."""
    options = [max(option.opts, key=len) for option in command.params if option.opts[0].startswith("-")]
    assert [name for name in options if f"`{name}" not in PAGE] == []


def test_every_key_and_name_is_described():
    """Keys of the job file, policies, meters and environment variables stand on the page."""
    wanted = {*JobFile.model_fields, *LaunchedJob.model_fields, *BATCH_SIZES.names(), *MEASURES} - {"schema_", "oracle"}
    told = RunEnvironment(target_metric=0.5, max_power_w=1.0, gpus=1).variables()
    assert sorted(name for name in {*wanted, *told} if f"`{name}`" not in PAGE) == []


def test_the_published_signature_is_ours():
    """`ZeusMaster` takes the published arguments in their order, with their defaults."""
    ours = [
        parameter.name if parameter.default is inspect.Parameter.empty else f"{parameter.name}={parameter.default}"
        for parameter in inspect.signature(ZeusMaster).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    assert f"`ZeusMaster({', '.join(ours)})`" in PAGE
    by_name = [
        parameter.name
        for parameter in inspect.signature(ZeusMaster).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert [name for name in by_name if f"`{name}`" not in PAGE] == ["find"]
