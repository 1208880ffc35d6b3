"""The figure in the README is that of the sample."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]


def test_the_figure_is_up_to_date(tmp_path):
    """The script draws the committed file, which is well-formed."""
    subprocess.run([sys.executable, ROOT / "scripts" / "make_figure", tmp_path / "sample.svg"], check=True)
    committed = (ROOT / "docs" / "figures" / "sample.svg").read_text(encoding="utf-8")
    assert (tmp_path / "sample.svg").read_text(encoding="utf-8") == committed
    assert ElementTree.fromstring(committed).tag.endswith("svg")
