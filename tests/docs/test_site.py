"""The site: it is built without a warning, holds the API, loads nothing from elsewhere, and copies commands alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from threading import Thread

import pytest

from benchmarks.published import ROOT
from tests.browser import IN_BROWSER, SCHEMES, WIDTHS, asked_for, chromium, shown, violations

pytest.importorskip("material", reason="the extra docs is not installed")
pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")

# A page of each kind: text, tables and pictures, many pictures, an API, one wide table.
PAGES = ("", "report/", "spot/", "api/", "options/")
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
    pages = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
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


@pytest.fixture(scope="module")
def address(site):
    """Where the site is served: from files a browser would not let it load what it searches."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=site)) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    with chromium() as driver:
        yield driver


def in_browser(test):
    """Mark a test as one that takes a browser."""
    for mark in (*IN_BROWSER, pytest.mark.slow):
        test = mark(test)
    return test


@in_browser
@pytest.mark.parametrize("page", PAGES)
def test_pages_are_accessible(address, browser, page):
    """On any screen axe finds nothing, also of the theme; nothing is reported, asked of others or too wide."""
    for scheme, width in product(SCHEMES, WIDTHS):
        shown(browser, f"{address}/{page}", (width, 900), scheme)
        found, passed = violations(browser)
        assert found == [], (scheme, width)
        assert "color-contrast" in passed
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert [each for each in asked_for(browser) if not each.startswith(address)] == []
        assert browser.get_log("browser") == [], (scheme, width)


@in_browser
def test_copying_takes_commands_alone(address, browser):
    """The button of a terminal's block copies what was typed: no prompts, no output, and all lines of it."""
    browser.implicitly_wait(30)
    browser.get(f"{address}/report/")
    browser.find_element("css selector", "[data-clipboard-text]")
    copied = [
        each.get_attribute("data-clipboard-text")
        for each in browser.find_elements("css selector", ".language-console [data-clipboard-text]")
    ]
    assert [
        "bftrainer replay --solver dp --no-baseline -o ten > ten.txt",
        "bftrainer replay --solver dp --no-baseline -maxJ 30 -o thirty > thirty.txt",
        "bftrainer replay --solver dp --no-baseline -maxJ 5 -o five > five.txt",
        "bftrainer replay --solver dp --no-baseline -maxJ 20 -o twenty > twenty.txt",
    ] in [text.splitlines() for text in copied]
    assert not [text for text in copied if "$ " in text or not text]
