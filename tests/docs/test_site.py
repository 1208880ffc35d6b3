"""The site: it is built without a warning, holds the API, loads nothing from elsewhere, and copies commands alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks.published import ROOT

pytest.importorskip("material", reason="the extra docs is not installed")
pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")

EDITED = "https://forge.example/edit/main/docs/{path}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, as `scripts/check docs` builds it, with links to where pages are edited."""
    place = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", place],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "BFTRAINER_EDIT_URI": EDITED},
        check=True,
    )
    return place


@pytest.mark.slow
def test_the_site_is_whole(site):
    """Every page is there, can be edited, and asks no other site for anything; the API holds docstrings."""
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    for name in pages:
        stem = name.removesuffix(".md")
        text = (site / "index.html" if stem == "index" else site / stem / "index.html").read_text(encoding="utf-8")
        assert f'href="{EDITED.format(path=name)}"' in text, name
        assert not re.search(
            r"<(script|img|iframe)[^>]+src=\"(https?:)?//|<link[^>]+stylesheet[^>]+href=\"(https?:)?//", text
        )
    api = (site / "api" / "index.html").read_text(encoding="utf-8")
    for words in ("run_replay", "Allocator", "AllocationProblem", "BatchSizeClient"):
        assert re.search(rf'<h3 id="[\w.]+\.{words}"', api), words
    assert "Node counts, strictly increasing, first 0." in api


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_copying_takes_commands_alone(site):
    """The button of a terminal's block copies what was typed: no prompts, no output, and all lines of it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        browser.implicitly_wait(30)
        browser.get((site / "gallery" / "index.html").as_uri())
        browser.find_element("css selector", "[data-clipboard-text]")
        copied = [
            each.get_attribute("data-clipboard-text")
            for each in browser.find_elements("css selector", ".language-console [data-clipboard-text]")
        ]
        assert copied[0].splitlines() == [
            "bftrainer replay --solver dp --no-baseline -o ten > ten.txt",
            "bftrainer replay --solver dp --no-baseline -maxJ 30 -o thirty > thirty.txt",
        ]
        assert not [text for text in copied if "$ " in text or not text]
    finally:
        browser.quit()
