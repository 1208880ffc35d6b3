"""What users name is shown, and what they leave out is said."""

from __future__ import annotations

import pytest

EVIL = "\\u001b[2J\\u0007\\u202e"


@pytest.fixture
def run(call, here):
    """A finished run whose task's name would clear a terminal, ring, and turn text around."""
    tasks = here / "tasks.toml"
    tasks.write_text(tasks.read_text().replace('"J0"', f'"{EVIL}"'))
    assert (
        call("replay", "-ndmap", "evt.pkl", "-bdfn", "tasks.toml", "--solver", "dp", "--output-dir", "out").status == 0
    )
    return here / "out"


def test_pages_show_names_as_they_can_be_seen(call, here, run):
    """No control character and no mark of direction of a name or a command is in the page; their escapes are."""
    summary = run / "summary.json"
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
