"""Figures that scripts draw are those of the sample, and of the sources, as they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.scripts.loading import load_script

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "figure"), [("make_figure", "sample.svg"), ("make_architecture_figure", "architecture.svg")]
)
def test_the_figure_is_up_to_date(script, figure, tmp_path):
    """The script draws the committed file, which is well-formed; if not, run it and look at what it drew."""
    subprocess.run([sys.executable, ROOT / "scripts" / script, tmp_path / figure], check=True)
    committed = (ROOT / "docs" / "figures" / figure).read_text(encoding="utf-8")
    assert (tmp_path / figure).read_text(encoding="utf-8") == committed
    assert ElementTree.fromstring(committed).tag.endswith("svg")


def test_the_list_of_modules_is_up_to_date(tmp_path):
    """The page for developers names each module; if not, run scripts/make_module_list."""
    page = ROOT / "docs" / "dev" / "architecture.md"
    shutil.copy(page, tmp_path)
    subprocess.run([sys.executable, ROOT / "scripts" / "make_module_list", tmp_path / page.name], check=True)
    assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


@pytest.mark.long
def test_the_rooms_are_in_order(monkeypatch):
    """Arrows of the figure point down: no room imports, by whatever way, from one that imports from it."""
    script = load_script("make_architecture_figure", monkeypatch)
    used = script.used_rooms()
    line = {room: number for number, floor in enumerate(script.levels(used)) for room in floor}
    assert set(line) == set(used) >= {"solvers", "bftrainer.cli", "bftrainer.model", "bftrainer.runs"}
    assert [(above, below) for above in used for below in used[above] if line[above] >= line[below]] == []
