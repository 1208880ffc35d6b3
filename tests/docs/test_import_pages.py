"""The pages about scheduler logs say all that there is to say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bftrainer.cli.logs.imports import import_log
from bftrainer.schedulers.import_log import import_log as import_files
from bftrainer.schedulers.import_settings import LOG_FORMATS, OWN_SETTINGS, SETTINGS, settings_of

DOCS = Path(__file__).parents[2] / "docs"


def page(name):
    """Text of a page."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LOG_FORMATS)
def test_every_format_has_a_section(name):
    """It shows how a log is imported, the common page leads to it, and its options stand on either."""
    shared, sections = page("import"), page("import-formats")
    assert f"](import-formats.md#{name})" in shared
    (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", sections, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert re.search(rf"bftrainer import (--format {name} )?", section)
    flags = [f"--{option.replace('_', '-')}" for option in settings_of(name)]
    assert [flag for flag in flags if flag not in section and flag not in shared] == []


def test_every_option_is_described():
    """What all formats take stands on the common page."""
    text, shared = page("import"), set(SETTINGS) - set(OWN_SETTINGS)
    options = [max(option.opts, key=len) for option in import_log.params if option.name in shared]
    assert [option for option in options if f"{option}" not in text] == []


def test_every_figure_is_described(tmp_path):
    """What is written beside a node log stands on the common page."""
    text = page("import")
    (tmp_path / "counts.csv").write_text("timestamp,count\n2026-09-01T08:00:00,1\n2026-09-01T09:00:00,2\n")
    figures = import_files("counts", [tmp_path / "counts.csv"]).quality.summary()
    assert [name for name in figures if f"`{name}`" not in text] == []
