"""The progress bar: on a terminal, and nowhere else."""

from __future__ import annotations

import sys
import threading

import pytest

from bftrainer.cli._shared import stdio
from bftrainer.cli._shared.stdio import counting


def count(number):
    """Count so many of four."""
    with counting("Simulating", 4) as done:
        for each in range(number):
            done(each)


def test_silent_elsewhere_than_on_a_terminal(capsys):
    """What goes to a file or a pipe stays free of bars."""
    count(4)
    assert capsys.readouterr() == ("", "")


def test_a_line_a_minute_elsewhere(monkeypatch):
    """What takes minutes says how far it is, where no bar can move."""
    said, told = [], threading.Event()

    def tell(line):
        said.append(line)
        told.set()

    monkeypatch.setattr(stdio, "tell", tell)
    monkeypatch.setattr(stdio, "LINE_S", 0.001)
    with counting("Simulating", 4) as done:
        done(1)
        assert told.wait(60.0)
    assert said[0].startswith("Simulating: ")
    assert said[0].endswith(" of 4 after 1 min")


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
