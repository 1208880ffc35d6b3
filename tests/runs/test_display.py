"""What a result shows of itself: the brief in a notebook, a sentence at a prompt."""

from __future__ import annotations

import re
from html import unescape

import pytest

from bftrainer import run_replay
from bftrainer.report.glossary import headline


@pytest.fixture(scope="module")
def result():
    """A short replay of the sample."""
    return run_replay(solver="dp", baseline=False, max_events=60, command="bftrainer-replay --made <b>up</b>")


def test_a_notebook_shows_the_brief(result):
    """Headline, figures and both pictures, without scripts or requests, in a frame that keeps its style to itself."""
    (content,) = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', result._repr_html_()).groups()
    page = unescape(content)
    text = unescape(re.sub(r"<[^>]+>", "", page))
    assert headline(result.summary()) in text
    assert "occupancy" in text
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert all(link.startswith("#") for link in re.findall(r' (?:src|href|xlink:href)="([^"]*)"', page))
    assert result._repr_html_() == result._repr_html_()


def test_without_matplotlib_there_is_a_sentence(result, monkeypatch):
    """Notebooks show the sentence of a prompt where the libraries of pages are missing."""
    monkeypatch.setattr("bftrainer.extras.find_spec", lambda _: None)
    assert result._repr_html_() is None


def test_a_prompt_shows_a_sentence(result):
    """And not all that was recorded."""
    assert repr(result) == f"<RunResult: {headline(result.summary())}>"
