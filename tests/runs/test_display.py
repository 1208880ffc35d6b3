"""What a result shows of itself: the brief in a notebook, a sentence at a prompt."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest

from bftrainer import run_replay
from bftrainer.report.words import headline


@pytest.fixture(scope="module")
def result():
    """A short replay of the sample."""
    return run_replay(solver="dp", baseline=False, max_events=60, command="bftrainer-replay --made <b>up</b>")


class Reader(HTMLParser):
    """Text of a page, its elements, and addresses in it."""

    def __init__(self, page):
        super().__init__()
        self.text, self.tags, self.links = "", [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        """Note an element."""
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data):
        """Note text."""
        self.text += data


def test_a_notebook_shows_the_brief(result):
    """Headline, figures and both pictures, without scripts or requests, in a frame that keeps its style to itself."""
    (content,) = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', result._repr_html_()).groups()
    page = Reader(unescape(content))
    assert headline(result.summary()) in page.text
    assert page.tags.count("svg") == 2
    assert "occupancy" in page.text
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert result._repr_html_() == result._repr_html_()


def test_without_matplotlib_there_is_a_sentence(result, monkeypatch):
    """Notebooks show the sentence of a prompt where the libraries of pages are missing."""
    monkeypatch.setattr("bftrainer.extras.find_spec", lambda _: None)
    assert result._repr_html_() is None


def test_a_prompt_shows_a_sentence(result):
    """And not all that was recorded."""
    assert repr(result) == f"<RunResult: {headline(result.summary())}>"
