"""The audit as modules, and the run made by hand."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from tests.scripts.handmade import Run

SCRIPTS = Path(__file__).parents[2] / "scripts"


def load(name: str):
    """A script as a module; the scripts find their helpers beside them."""
    loader = SourceFileLoader(name, str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def audit():
    """The audit script."""
    sys.path.insert(0, str(SCRIPTS))
    yield load("audit")
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def model(audit):
    """Its arithmetic."""
    return sys.modules[audit.optimum.__module__]


@pytest.fixture(scope="module")
def inputs(audit):
    """Its readers."""
    return sys.modules[audit.read_node_log.__module__]


@pytest.fixture
def run(tmp_path):
    """The hand-made run, not yet written."""
    return Run(tmp_path)
