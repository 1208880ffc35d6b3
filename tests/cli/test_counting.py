"""The progress bar: on a terminal, and nowhere else."""

from __future__ import annotations

import sys

import pytest

from bftrainer.cli._shared.progress import counting


def count(number):
    """Count so many of four."""
    with counting("Simulating", 4) as done:
        for each in range(number):
            done(each)


def test_silent_elsewhere_than_on_a_terminal(capsys):
    """What goes to a file or a pipe stays free of bars."""
    count(4)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("number", [0, 3, 4])
def test_a_bar_on_a_terminal(capsys, monkeypatch, number):
    """On a terminal the bar says what is done and how much of it, on stderr alone."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    count(number)
    said = capsys.readouterr()
    assert said.out == ""
    assert "Simulating" in said.err
    assert f"{number}/4" in said.err
