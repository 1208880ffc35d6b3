"""The site: it is built without a warning, holds the API, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys

import pytest

from benchmarks.published import ROOT

pytest.importorskip("material", reason="the extra docs is not installed")
pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")

EDITED = "https://forge.example/edit/main/docs/{path}"


@pytest.mark.slow
def test_the_site_is_whole(tmp_path):
    """Every page is there, can be edited, and asks no other site for anything; the API holds docstrings."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1", "BFTRAINER_EDIT_URI": EDITED}
    subprocess.run(command, cwd=ROOT, env=env, check=True)
    pages = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
    for name in pages:
        stem = name.removesuffix(".md")
        text = (tmp_path / "index.html" if stem == "index" else tmp_path / stem / "index.html").read_text(
            encoding="utf-8"
        )
        assert f'href="{EDITED.format(path=name)}"' in text, name
        assert not re.search(
            r"<(script|img|iframe)[^>]+src=\"(https?:)?//|<link[^>]+stylesheet[^>]+href=\"(https?:)?//", text
        )
    api = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    for words in ("run_replay", "Allocator", "AllocationProblem", "BatchSizeClient"):
        assert re.search(rf'<h3 id="[\w.]+\.{words}"', api), words
    assert "Node counts, strictly increasing, first 0." in api
