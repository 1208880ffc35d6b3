"""The page for developers names each module."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_list_of_modules_is_up_to_date(tmp_path):
    """What scripts/make_module_list writes is what stands there; if not, run it."""
    page = ROOT / "docs" / "dev" / "architecture.md"
    shutil.copy(page, tmp_path)
    subprocess.run([sys.executable, ROOT / "scripts" / "make_module_list", tmp_path / page.name], check=True)
    assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
