"""What a terminal shows: progress there and nowhere else, names as they can be seen, and what was left out."""

import sys
import threading

import pytest

from bftrainer.cli import terminal
from bftrainer.cli.terminal import counting


def test_pages_show_names_as_they_can_be_seen(call, here):
    """No control character and no mark of direction of a name or a command is in the page; their escapes are.

    The name of the task would clear a terminal, ring, and turn text around.
    """
    tasks, summary = here / "tasks.toml", here / "out" / "summary.json"
    tasks.write_text(tasks.read_text().replace('"J0"', '"\\u001b[2J\\u0007\\u202e"'))
    assert call("replay", "-ndmap", "evt.pkl", "-bdfn", "tasks.toml", "--solver", "dp", "-o", "out").status == 0
    summary.write_text(summary.read_text().replace('"command": "', '"command": "\\u001b\\u202e'))
    assert call("report", "out").status == 0
    text = (here / "report.html").read_text()
    ours = text[: text.index("<script>")] + text[text.rindex("</script>") :]
    assert not {"\x1b", "\x07", "\u202e"} & set(ours)
    assert "\\\\u202e" not in ours.partition('id="charts"')[0]
    assert ours.count("\\x1b") > 1


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--solver", "dp", "--dry-run"),
        ("forecast", "--solver", "dp", "--deadline", 10, "--stretches", 2, "--workers", 1),
    ],
)
def test_embedded_tasks_are_told(call, words):
    """A log without a task set is replayed with embedded tasks, and that is said; with one, or without both, not."""
    assert "40 tasks of the embedded sample" in call(*words, "--solver", "dp", "-ndmap", "evt.pkl").err
    assert "embedded" not in call(*words, "--solver", "dp", "-ndmap", "evt.pkl", "-bdfn", "tasks.toml").err


def count(number):
    """Count so many of four."""
    with counting("Simulating", 4) as done:
        for each in range(number):
            done(each)


def test_a_line_a_minute_elsewhere(monkeypatch, capsys):
    """What goes to a file or a pipe stays free of bars; what takes minutes says how far it is."""
    count(4)
    assert capsys.readouterr() == ("", "")
    said, told = [], threading.Event()

    def tell(line):
        said.append(line)
        told.set()

    monkeypatch.setattr(terminal, "tell", tell)
    monkeypatch.setattr(terminal, "LINE_S", 0.001)
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
